"""Expectations of users of other clients: started once, errors with reasons, visible in a log."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.servers import client_settings, embedded_tubemq
from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import eventually
from tubemq_client import (
    BoundStart,
    ClientSettings,
    Delivery,
    IdleReason,
    Partition,
    Producer,
    Record,
    errors,
)
from tubemq_client.config import ClientConfig, ConsumerConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

pytestmark = pytest.mark.timeout(60)

TOPIC, OTHER = "habits", "others"
P0 = Partition(1, TOPIC, 0)
SOON_MS = 15_000


mq = embedded_tubemq([TOPIC, OTHER], http=True, switches=Switches(balance_period_ms=200))


@pytest.fixture
def options(mq: EmbeddedTubeMQ) -> dict[str, Any]:
    return {"masters": mq.masters, "group": "habitual", "heartbeat_period_ms": 1_000}


settings = client_settings(heartbeat_period_ms=250)


def send(settings: ClientSettings, *bodies: bytes, topic: str = TOPIC) -> None:
    with Producer(settings) as producer:
        records = [Record(body, partition=Partition(1, topic, 0)) for body in bodies]
        list(producer.send_many(topic, records))


def members(shell: Shell, settings: ClientSettings, **more: Any) -> list[Any]:
    return [
        kind(settings, "habitual", {TOPIC: ()}, **more)
        for kind in (shell.Consumer, shell.AssignedConsumer)
    ]


# -- one object, one life -------------------------------------------------------------------------


def test_a_client_may_be_started_and_closed_without_a_context(
    shell: Shell, settings: ClientSettings
) -> None:
    send(settings, b"a")
    consumer = shell.AssignedConsumer(settings, "habitual", {TOPIC: ()})
    consumer.start()
    try:
        consumer.assign(P0)
        batch = consumer.receive(SOON_MS)
        assert [message.body for message in batch.messages()] == [b"a"]
        consumer.confirm(batch)
    finally:
        consumer.close()
    assert consumer.closed


@pytest.mark.parametrize("again", ["start", "enter"])
def test_starting_twice_is_refused_and_changes_nothing(
    again: str, shell: Shell, settings: ClientSettings
) -> None:
    clients = [
        *members(shell, settings),
        shell.Producer(settings),
        shell.Metadata(settings),
        shell.RangeReader(settings, group="habitual"),
    ]
    for client in clients:
        with client, pytest.raises(errors.ConfigError, match="was started before"):
            client.start() if again == "start" else client.__enter__()
        with pytest.raises(errors.ConfigError, match="make another"):
            client.start()


def test_settings_can_be_read_back(shell: Shell, settings: ClientSettings) -> None:
    for client in [*members(shell, settings), shell.Producer(settings)]:
        assert client.settings == settings


# -- from a configuration -------------------------------------------------------------------------


def test_a_member_is_made_of_a_configuration(shell: Shell, options: dict[str, Any]) -> None:
    config = ConsumerConfig.parse({**options, "topics": {TOPIC: [], OTHER: []}})
    send(config.settings(), b"a")
    send(config.settings(), b"b", topic=OTHER)
    with shell.Consumer(config) as consumer:
        assert consumer.topics == {TOPIC: (), OTHER: ()}
        found = []
        while len(found) < 2:
            batch = consumer.receive(SOON_MS)
            found += [message.body for message in batch.messages()]
            consumer.confirm(batch)
    assert sorted(found) == [b"a", b"b"]


def test_a_configured_group_starts_where_it_says(shell: Shell, options: dict[str, Any]) -> None:
    send(ClientConfig.parse({"masters": options["masters"]}).settings(), b"a", b"b")
    bound = {"session_key": "s", "source_count": 1, "offsets": {TOPIC: {"1:0": 28}}}
    config = ConsumerConfig.parse({**options, "topic": TOPIC, "bound": bound})
    with shell.Consumer(config) as consumer:
        batch = consumer.receive(SOON_MS)
        assert [message.body for message in batch.messages()] == [b"b"]


@pytest.mark.parametrize(
    ("kind", "changes", "arguments", "problem"),
    [
        ("Consumer", {}, {"group": "other"}, "group: the configuration has it"),
        ("Consumer", {}, {"bound": BoundStart("s", 1)}, "bound: the configuration has it"),
        ("Consumer", {"corrupt_records": "quarantine"}, {}, "fail or drop"),
        (
            "AssignedConsumer",
            {"bound": {"session_key": "s", "source_count": 1}},
            {},
            "assigns partitions itself",
        ),
    ],
)
def test_what_would_have_no_effect_beside_a_configuration_is_refused(
    kind: str,
    changes: dict[str, Any],
    arguments: dict[str, Any],
    problem: str,
    shell: Shell,
    options: dict[str, Any],
) -> None:
    config = ConsumerConfig.parse({**options, "topic": TOPIC, **changes})
    with pytest.raises(errors.ConfigError, match=problem):
        getattr(shell, kind)(config, **arguments)


def test_settings_alone_do_not_make_a_member(shell: Shell, settings: ClientSettings) -> None:
    with pytest.raises(errors.ConfigError, match="or a ConsumerConfig alone"):
        shell.Consumer(settings)


# -- why nothing comes ----------------------------------------------------------------------------


def test_none_of_receive_has_a_reason(shell: Shell, settings: ClientSettings) -> None:
    send(settings, b"a")
    with shell.AssignedConsumer(settings, "habitual", {TOPIC: ()}) as consumer:
        assert consumer.receive(0) is None
        assert consumer.idle_reason is IdleReason.NO_PARTITION
        consumer.assign(P0)
        batch = consumer.receive(SOON_MS)
        assert consumer.receive(0) is None
        assert consumer.idle_reason is IdleReason.UNCONFIRMED
        consumer.confirm(batch)
        assert consumer.receive(100) is None
        assert consumer.idle_reason is IdleReason.WAITING
        consumer.freeze([P0])
        assert consumer.idle_reason is IdleReason.FROZEN
        consumer.pause()
        assert consumer.idle_reason is IdleReason.PAUSED
        consumer.resume()
        consumer.unfreeze()
        send(settings, b"b")
        assert consumer.receive(SOON_MS) is not None


def test_positions_are_of_wall_clock_time(shell: Shell, settings: ClientSettings) -> None:
    send(settings, b"a")
    before = time.time_ns() // 1_000_000
    with shell.AssignedConsumer(settings, "habitual", {TOPIC: ()}) as consumer:
        consumer.assign(P0)
        found = consumer.consumed_offsets[P0]
        assert before - 1_000 <= found.updated_at_ms <= time.time_ns() // 1_000_000 + 1_000


# -- confirming without the batch -----------------------------------------------------------------


def test_a_delivery_confirms_in_the_place_of_its_batch(
    shell: Shell, settings: ClientSettings
) -> None:
    send(settings, b"a", b"b")
    with shell.AssignedConsumer(settings, "habitual", {TOPIC: ()}) as consumer:
        consumer.assign(P0)
        text = str(consumer.receive(SOON_MS).delivery)
        assert text.startswith("1:habits:0#")
        delivery = pickle.loads(pickle.dumps(Delivery.parse(text)))
        assert consumer.confirm(delivery) == 56
        with pytest.raises(errors.StaleBatch):
            consumer.confirm(delivery)
    with pytest.raises(ValueError, match="is no delivery"):
        Delivery.parse("1:habits#3")


def test_a_record_that_cannot_be_read_ends_a_run_that_retries(
    shell: Shell, settings: ClientSettings, mq: EmbeddedTubeMQ
) -> None:
    """It is there at every delivery, so to try again would never end."""
    send(settings, b"a", b"b")
    mq.broker(1).corrupt_next(1_000)
    seen: list[bytes] = []

    def handle(batch: Any) -> None:
        seen.extend(message.body for message in batch.messages())

    with (
        shell.Consumer(settings, "habitual", {TOPIC: ()}) as consumer,
        pytest.raises(errors.CorruptRecord),
    ):
        consumer.run(handle, on_error="retry")
    # The workaround in the docstring of `run`.
    with shell.Consumer(settings, "habitual", {TOPIC: ()}, corrupt_records="drop") as consumer:
        batch = consumer.receive(SOON_MS)
        assert list(batch.messages()) == []
        consumer.confirm(batch)
    assert seen == []


def test_a_record_that_cannot_be_read_ends_a_loop_over_batches(
    shell: Shell, settings: ClientSettings, mq: EmbeddedTubeMQ
) -> None:
    """The error leaves the loop, and is raised by the next one too; "drop" continues."""
    send(settings, b"a", b"b")
    mq.broker(1).corrupt_next(1_000)
    with shell.AssignedConsumer(settings, "habitual", {TOPIC: ()}) as consumer:
        consumer.assign(P0)
        for _ in range(2):
            with pytest.raises(errors.CorruptRecord, match="corrupt_records"):
                all_messages(consumer.batches(SOON_MS))
    with shell.AssignedConsumer(
        settings, "habitual", {TOPIC: ()}, corrupt_records="drop"
    ) as consumer:
        consumer.assign(P0)
        assert all_messages(consumer.batches(1_000)) == []
        assert consumer.consumed_offsets[P0].lag == 0


def all_messages(batches: Iterable[Any]) -> list[Any]:
    return [message for batch in batches for message in batch.messages()]


def test_a_record_that_cannot_be_read_is_passed_over_by_confirming_its_batch(
    shell: Shell, settings: ClientSettings, mq: EmbeddedTubeMQ
) -> None:
    """`receive` gives the batch, and only looking into it fails: what to do is the caller's."""
    send(settings, b"a", b"b")
    mq.broker(1).corrupt_next(1_000)
    with shell.Consumer(settings, "habitual", {TOPIC: ()}) as consumer:
        for settle in (consumer.reject, consumer.confirm):
            batch = consumer.receive(SOON_MS)
            with pytest.raises(errors.CorruptRecord, match="corrupt_records"):
                list(batch.messages())
            settle(batch)
        assert consumer.receive(SOON_MS).start > batch.start


# -- the log --------------------------------------------------------------------------------------


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """Messages of a level."""
    caplog.set_level(logging.INFO, "tubemq_client")
    return lambda level: [r.getMessage() for r in caplog.records if r.levelname == level]


def test_a_members_life_cycle_is_logged_at_info_and_never_per_record(
    shell: Shell, settings: ClientSettings, told: Callable[[str], list[str]]
) -> None:
    send(settings, *[b"x"] * 50)
    with shell.Consumer(settings, "habitual", {TOPIC: ()}) as consumer:
        consumer.confirm(consumer.receive(SOON_MS))
    lines = "\n".join(told("INFO"))
    for words in ("joined, reads habits", "took 1:habits:0 at broker 1:", " left"):
        assert words in lines
    assert len(told("INFO")) < 20


def test_events_that_need_an_action_are_warnings(
    shell: Shell,
    settings: ClientSettings,
    mq: EmbeddedTubeMQ,
    told: Callable[[str], list[str]],
) -> None:
    send(settings, b"a")
    quick = replace(settings, rpc_timeout_ms=1_000)
    with shell.Consumer(quick, "habitual", {TOPIC: ()}) as consumer:
        assert consumer.partitions_ready(SOON_MS)
        consumer.confirm(consumer.receive(SOON_MS))
        mq.broker(1).stop()
        consumer.receive(1_000)
        eventually(lambda: any("broker 1:" in text for text in told("WARNING")) or None)
        mq.broker(1).restart()
        send(settings, b"b")
        assert consumer.receive(SOON_MS) is not None
    assert any("answers again" in text for text in told("INFO"))


# -- arguments of another kind --------------------------------------------------------------------


def test_other_things_than_settings_are_refused_by_name(shell: Shell, mq: EmbeddedTubeMQ) -> None:
    for given, said in (
        (mq.masters, r"of type str, not ClientSettings; ClientConfig.parse"),
        (
            ClientConfig.parse({"masters": mq.masters}),
            r"ClientConfig, not .* write config.settings",
        ),
    ):
        for kind in (shell.Consumer, shell.AssignedConsumer):
            with pytest.raises(errors.ConfigError, match=said):
                kind(given, "habitual", {TOPIC: ()})
        for kind in (shell.Producer, shell.Metadata):
            with pytest.raises(errors.ConfigError, match=said):
                kind(given)


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        ([TOPIC], "topics is of type list, not a mapping"),
        (TOPIC, "topics is of type str, not a mapping"),
        ({TOPIC: None}, "topics: the filters of 'habits' are None"),
        ({TOPIC: "alpha"}, "topics: the filters of 'habits' are the text 'alpha'"),
    ],
)
def test_topics_that_are_no_mapping_are_refused_by_name(
    shell: Shell, settings: ClientSettings, topics: Any, said: str
) -> None:
    for kind in (shell.Consumer, shell.AssignedConsumer):
        with pytest.raises(errors.ConfigError, match=said):
            kind(settings, "habitual", topics)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"attributes": {"n": 7}}, "value of 'n' is 7, of type int, not text"),
        ({"attributes": {7: "n"}}, "attribute key is 7, of type int"),
        ({"stream_id": 7}, "stream_id is 7, of type int"),
        ({"msg_time": 202601011200}, "msg_time is 202601011200, of type int"),
        ({"partition": "1:0"}, "partition is '1:0', not a Partition"),
        ({"key": 7}, "key is 7, neither text nor bytes"),
    ],
)
def test_a_field_of_another_kind_is_refused_by_name(
    shell: Shell, settings: ClientSettings, more: dict[str, Any], said: str
) -> None:
    with shell.Producer(settings) as producer:
        with pytest.raises(errors.ConfigError, match=said):
            producer.send(TOPIC, b"x", **more)
        assert producer.send(TOPIC, b"x").partition.topic == TOPIC


def test_bodies_in_the_place_of_records_are_refused(shell: Shell, settings: ClientSettings) -> None:
    bodies: Any = [b"a", b"b"]
    with shell.Producer(settings) as producer:
        with pytest.raises(errors.ConfigError, match="of type bytes, not a Record"):
            list(producer.send_many(TOPIC, bodies))
        assert producer.send(TOPIC, b"x").partition.topic == TOPIC


@pytest.mark.parametrize("offset", [-28, 29, 28 << 70, "28"])
def test_an_offset_that_is_none_is_refused(
    offset: Any, shell: Shell, settings: ClientSettings
) -> None:
    """Brokers continue at the group's position when they get a negative one."""
    with shell.AssignedConsumer(settings, "habitual", {TOPIC: ()}) as consumer:
        with pytest.raises(errors.ConfigError, match="not a multiple of 28"):
            consumer.assign(P0, offset)
        with pytest.raises(errors.ConfigError, match="not a multiple of 28"):
            consumer.keep_share({P0: offset})
        with pytest.raises(errors.ConfigError, match="'newest' is not one of"):
            consumer.assign(P0, position="newest")
        assert consumer.assignment == []
        consumer.keep_share(lambda _: offset)
        with pytest.raises(errors.ConfigError, match="not a multiple of 28"):
            consumer.receive(SOON_MS)
