"""Members of a group whose partitions the master assigns: pull, push, and rebalances."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.system.behaviour.shells import BLOCKING, Shell
from tests.system.behaviour.sites import GROUP, SHARED, SINGLE, Site, bodies, eventually, whole
from tubemq_client import BoundStart, ClientSettings, Partition, errors
from tubemq_client._core.balance import BalancedSession
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.model import ConsumerSettings

TOPICS = {SHARED: ()}
READY_MS = 30_000
SOON_MS = 15_000
QUIET_MS = 500

Consumer = Any

LONG = pytest.mark.parametrize(
    ("shell", "site"),
    [
        ("sync", "embedded"),
        ("aio", "embedded"),
        pytest.param("sync", "genuine", marks=pytest.mark.real),
        pytest.param("aio", "genuine", marks=[pytest.mark.real, pytest.mark.soak]),
    ],
    indirect=True,
)
"""Scenarios that wait long for a genuine server meet it with one shell; soak has the other."""


def latest(**options: Any) -> ConsumerSettings:
    return ConsumerSettings(consume_position="latest", **options)


@pytest.fixture
def join(shell: Shell, site: Site, group: str) -> Callable[..., Any]:
    """Return a factory of members that start at the latest record and send heartbeats often."""
    quick = replace(site.settings, heartbeat_period_ms=250)

    def join(topics: Any = TOPICS, **options: Any) -> Any:
        options.setdefault("consumer", latest())
        return shell.Consumer(quick, group, topics, **options)

    return join


@pytest.fixture
def a_round_ms(request: pytest.FixtureRequest) -> int:
    """Time for a balance round and the heartbeat after it."""
    return 4_000 if "genuine" in request.node.name else 600


def has(consumer: Consumer, count: int) -> None:
    """Wait until `count` partitions are held."""
    eventually(lambda: len(consumer.assignment) == count or None)


def receive(consumer: Consumer) -> Any:
    batch = consumer.receive(SOON_MS)
    assert batch is not None, f"nothing came; trouble: {consumer.last_errors}"
    return batch


def receive_whole(consumer: Consumer, count: int) -> Any:
    """Receive a batch with that many records. One with fewer is rejected: it comes again."""

    def ask() -> Any:
        batch = receive(consumer)
        if (found := whole(batch, count)) is None:
            consumer.reject(batch)
        return found

    return eventually(ask)


# -- on every server ------------------------------------------------------------------------------


def test_batches_come_back_until_confirmed_and_the_group_continues(
    join: Callable[..., Any], site: Site
) -> None:
    partition = site.partition()
    with join() as consumer:
        assert consumer.partitions_ready(READY_MS)
        has(consumer, 3)
        start, *_ = site.send(partition, b"a", b"b")
        batch = receive_whole(consumer, 2)
        assert (batch.partition, batch.start, bodies(batch)) == (partition, start, [b"a", b"b"])
        assert batch.broker.broker_id == partition.broker_id
        assert batch.broker.address[1] > 0
        assert consumer.receive(QUIET_MS) is None  # one batch of a partition is out at a time
        assert consumer.reject(batch) == start
        with pytest.raises(errors.StaleBatch, match="settled"):
            consumer.confirm(batch)
        # Servers may split what they deliver again.
        eventually(lambda: consumer.confirm(receive(consumer)) == start + 56 or None)
        offset = consumer.consumed_offsets[partition]
        assert (offset.current, offset.max_offset, offset.lag) == (start + 56, start + 56, 0)
        assert consumer.receive(QUIET_MS) is None
    (offset_c,) = site.send(partition, b"c")
    with join() as consumer:
        batch = receive(consumer)
        assert (batch.start, bodies(batch)) == (offset_c, [b"c"])
        consumer.confirm(batch)


@LONG
def test_partitions_move_when_members_come_and_go(join: Callable[..., Any]) -> None:
    heard: list[tuple[str, int]] = []
    topics = {GROUP: ()}
    first = join(
        topics,
        on_assigned=lambda partitions: heard.append(("assigned", len(partitions))),
        on_revoked=lambda partitions: heard.append(("revoked", len(partitions))),
    )
    with first:
        has(first, 12)
        with join(topics) as second:
            has(second, 6)
            has(first, 6)
            assert not set(first.assignment) & set(second.assignment)
        has(first, 12)
    assert heard[:2] == [("assigned", 12), ("revoked", 6)]
    assert sum(count for kind, count in heard[2:] if kind == "assigned") == 6


@LONG
def test_a_batch_in_hand_can_be_confirmed_when_its_partition_is_revoked(
    join: Callable[..., Any], site: Site
) -> None:
    """It moves only then: the next owner continues behind it."""
    hand: list[Any] = []
    confirm_now = threading.Event()
    first = join(on_revoked=lambda _: confirm_now.set(), consumer=latest())
    with first:
        has(first, 3)
        for number in range(3):
            site.send(site.partition(number=number), b"%d" % number)
        hand = [receive(first) for _ in range(3)]
        with join() as second:
            assert confirm_now.wait(30)
            for batch in hand:
                first.confirm(batch)
            eventually(lambda: second.assignment or None)
            assert second.receive(QUIET_MS) is None
            assert first.last_errors == second.last_errors == {}


def test_a_handler_gets_every_batch_and_its_failures_do_not_lose_any(
    join: Callable[..., Any], site: Site
) -> None:
    seen: list[bytes] = []
    with join() as consumer:
        has(consumer, 3)
        runner = Runner(lambda: consumer.run(handler_of(seen), workers=2, on_error="retry"))
        for number in range(3):
            site.send(site.partition(number=number), b"x%d" % number, b"y%d" % number)
        eventually(lambda: len(seen) >= 7 or None)
        consumer.stop()
        runner.join()
    assert sorted(set(seen)) == [b"fails", b"x0", b"x1", b"x2", b"y0", b"y1", b"y2"]
    assert seen.count(b"fails") == 1


@LONG
def test_filters_belong_to_their_topic(join: Callable[..., Any], site: Site) -> None:
    with join({SHARED: ("red",), SINGLE: ()}) as consumer:
        has(consumer, 4)
        site.send(site.partition(), b"red", stream="red")
        site.send(site.partition(), b"blue", stream="blue")
        site.send(site.partition(SINGLE), b"plain")
        found = [receive(consumer) for _ in range(2)]
        assert sorted(body for batch in found for body in bodies(batch)) == [b"plain", b"red"]


@LONG
def test_a_bound_group_begins_where_its_members_say(
    join: Callable[..., Any], site: Site, a_round_ms: int
) -> None:
    """Nothing is dealt out before all are there; the larger of two offsets wins."""
    zero, one = site.partition(), site.partition(number=1)
    start, second, _ = site.send(zero, b"a", b"b", b"c")
    (other,) = site.send(one, b"d")
    first = BoundStart("session", 2, {zero: start, one: other})
    larger = BoundStart("session", 2, {zero: second})
    with join(bound=first) as consumer:
        assert not consumer.partitions_ready(a_round_ms)
        with join(bound=larger) as late:
            eventually(lambda: one in consumer.assignment or None)
            eventually(lambda: zero in late.assignment or None)
            batch = eventually(lambda: _of(late.receive(QUIET_MS), zero))
            assert (batch.start, bodies(batch)[0]) == (second, b"b")
            assert eventually(lambda: _of(consumer.receive(QUIET_MS), one)).start == other


def test_a_refused_join_raises_the_reason(shell: Shell, site: Site, group: str) -> None:
    with shell.Consumer(site.settings, group, TOPICS):
        with pytest.raises(errors.GroupInconsistent):
            shell.Consumer(site.settings, group, {SINGLE: ()}).__enter__()
        with pytest.raises(errors.GroupInconsistent):
            shell.Consumer(site.settings, group, TOPICS, bound=BoundStart("session", 1)).__enter__()
    with pytest.raises(errors.UnknownTopic):
        shell.Consumer(site.settings, group, {"nowhere": ()}).__enter__()


# -- on the embedded server -----------------------------------------------------------------------


@pytest.fixture
def member(shell: Shell, settings: ClientSettings, group: str) -> Callable[..., Any]:
    """Return a factory of members with heartbeats every 200 ms, on two brokers that a test can
    break."""
    quick = replace(settings, heartbeat_period_ms=200, register_pause_ms=100)

    def member(topics: Any = TOPICS, **options: Any) -> Any:
        return shell.Consumer(quick, group, topics, **options)

    return member


@pytest.fixture
def here(by_hand: EmbeddedTubeMQ, settings: ClientSettings) -> Site:
    return Site(settings, by_hand.broker_ids)


def test_iterating_confirms_what_was_worked_on(
    member: Callable[..., Any], here: Site, by_hand: EmbeddedTubeMQ
) -> None:
    site_send(here, by_hand, b"a", b"b", b"c")
    with member() as consumer:
        for batch in consumer.batches():
            assert len(batch) == 1
            break  # leaving rejects
    with member() as consumer:
        assert sum(len(batch) for batch in consumer.batches(1_000)) == 3
    with member() as consumer:
        assert list(consumer.batches(700)) == []


def test_a_batch_not_confirmed_in_time_comes_again(
    member: Callable[..., Any], here: Site, by_hand: EmbeddedTubeMQ
) -> None:
    site_send(here, by_hand, b"a")
    with member(consumer=ConsumerSettings(confirm_timeout_ms=1_500)) as consumer:
        late = receive(consumer)
        again = receive(consumer)
        assert bodies(late) == bodies(again) == [b"a"]
        with pytest.raises(errors.StaleBatch):
            consumer.confirm(late)
        assert isinstance(consumer.last_errors[str(late.partition)], errors.StaleBatch)
        consumer.confirm(again)


def test_frozen_partitions_and_paused_consumers_fetch_nothing(
    member: Callable[..., Any], here: Site, by_hand: EmbeddedTubeMQ
) -> None:
    with member() as consumer:
        has(consumer, 6)
        one = here.partition()
        consumer.freeze([one])
        consumer.pause()
        assert (consumer.frozen, consumer.paused) == ([one], True)
        site_send(here, by_hand, b"a", b"b")
        assert consumer.receive(QUIET_MS) is None
        consumer.resume()
        assert bodies(receive(consumer)) == [b"b"]
        assert consumer.receive(QUIET_MS) is None
        consumer.unfreeze()
        assert bodies(receive(consumer)) == [b"a"]
        assert len(consumer.assignment) == 6


def test_local_confirmations_are_sent_when_the_member_leaves(
    member: Callable[..., Any], here: Site, by_hand: EmbeddedTubeMQ
) -> None:
    site_send(here, by_hand, b"a", b"b")
    local = ConsumerSettings(confirm_locally=True)
    with member(consumer=local) as consumer:
        assert consumer.confirm(receive(consumer)) == -1
        consumer.confirm(receive(consumer))
    with member(consumer=local) as consumer:
        assert consumer.receive(900) is None


def test_what_a_handler_raises_ends_the_run_and_is_raised(
    member: Callable[..., Any], here: Site, by_hand: EmbeddedTubeMQ
) -> None:
    site_send(here, by_hand, b"a")

    def fail(batch: Any) -> None:
        raise ZeroDivisionError("of the user")

    with member() as consumer:
        with pytest.raises(ZeroDivisionError, match="of the user"):
            consumer.run(fail, workers=3)
        assert bodies(receive(consumer)) == [b"a"]


def test_what_a_callback_raises_is_raised_by_the_next_receive(
    member: Callable[..., Any],
) -> None:
    def fail(partitions: list[Partition]) -> None:
        raise ZeroDivisionError("in the callback")

    with member(on_assigned=fail) as consumer, pytest.raises(ZeroDivisionError, match="callback"):
        consumer.receive(SOON_MS)


def test_a_callback_that_would_end_a_thread_ends_the_consumer_with_a_word(
    shell: Shell, member: Callable[..., Any]
) -> None:
    """Otherwise no partition would be taken or given back any more. A loop ends with `sys.exit`."""

    def leave(partitions: list[Partition]) -> None:
        sys.exit("in the callback")

    if shell is BLOCKING:
        with member(on_assigned=leave) as consumer, pytest.raises(SystemExit, match="callback"):
            consumer.receive(SOON_MS)


def test_a_restarted_broker_takes_partitions_away_and_they_come_back(
    member: Callable[..., Any], here: Site, by_hand: EmbeddedTubeMQ
) -> None:
    lost: list[Partition] = []
    site_send(here, by_hand, b"a")
    with member(on_lost=lost.extend) as consumer:
        has(consumer, 6)
        consumer.confirm(receive(consumer))
        by_hand.broker(1).restart()
        eventually(lambda: len(lost) == 3 or None)
        has(consumer, 6)
        site_send(here, by_hand, b"b")
        assert bodies(receive(consumer)) == [b"b"]


def test_a_master_that_forgets_costs_nothing(
    member: Callable[..., Any], here: Site, by_hand: EmbeddedTubeMQ
) -> None:
    moved: list[list[Partition]] = []
    with member(on_assigned=moved.append, on_revoked=moved.append, on_lost=moved.append) as one:
        has(one, 6)
        by_hand.forget_members()
        with member() as two:
            eventually(lambda: len(two.assignment) == 3 or None)
            has(one, 3)
    assert sum(map(len, moved)) == 6 + 3


def test_a_closed_consumer_raises(member: Callable[..., Any]) -> None:
    with member() as consumer:
        pass
    with pytest.raises(errors.ClosedError):
        consumer.receive(0)
    consumer.close()


def test_mistakes_are_listed_before_anything_is_sent(shell: Shell) -> None:
    elsewhere = Partition(1, "elsewhere", 0)
    with pytest.raises(errors.ConfigError) as caught:
        shell.Consumer(
            ClientSettings(masters=(("127.0.0.1", 1),)),
            "group",
            {SHARED: "red"},
            bound=BoundStart(" ", 0, {elsewhere: 5}),
        )
    text = str(caught.value)
    for part in ("'red'", "session_key", "source_count 0", "not subscribed", "multiple of 28"):
        assert part in text


def test_names_that_no_heartbeat_could_carry_are_refused(shell: Shell) -> None:
    nowhere = ClientSettings((("127.0.0.1", 1),))
    with pytest.raises(errors.ConfigError) as caught:
        shell.Consumer(nowhere, "g#1", {"a b": ["x,y", ""]})
    for problem in ("group: 'g#1'", "topics: 'a b'", "filter 'x,y'", "filter ''"):
        assert problem in str(caught.value)


@pytest.mark.parametrize(
    "work", ["master_heartbeat_if_due", "broker_heartbeats_if_due", "rebalance"]
)
def test_receive_raises_when_heartbeats_have_stopped(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """A mistake of ours must not look like a topic without records."""

    def fail(self: Any) -> Any:
        raise RuntimeError("a mistake")
        yield

    monkeypatch.setattr(BalancedSession, work, fail)
    with EmbeddedTubeMQ(1, [TopicSpec(SHARED)], http=False) as server:
        options = ClientSettings((server.master_address,))
        consumer = shell.Consumer(options, "silent", TOPICS)
        with consumer, pytest.raises(RuntimeError, match="a mistake"):
            consumer.receive(SOON_MS)


# -- tools ----------------------------------------------------------------------------------------


class Runner:
    """Run a blocking function in another thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


def handler_of(seen: list[bytes]) -> Callable[[Any], None]:
    def handle(batch: Any) -> None:
        if b"x1" in bodies(batch) and b"fails" not in seen:
            seen.append(b"fails")
            raise ZeroDivisionError
        seen.extend(bodies(batch))

    return handle


def site_send(site: Site, server: EmbeddedTubeMQ, *values: bytes) -> None:
    """Send a record to each of the first broker's partitions, visible at once."""
    for number, value in enumerate(values):
        site.send(site.partition(number=number), value)
    server.broker(1).flush()


def _of(batch: Any, partition: Partition) -> Any:
    return batch if batch is not None and batch.partition == partition else None
