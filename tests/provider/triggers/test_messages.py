"""Watcher of messages: at least one event per record, confirmations, and outages.

Airflow's own manager of shared streams drives the trigger, as a triggerer does.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.triggers.base import BaseEventTrigger
from airflow.triggers.shared_stream import SharedStreamManager

from tests.system.behaviour.sites import eventually
from tubemq_client import Message, Partition, Record
from tubemq_client.aio import Session
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.errors import ConfigError
from tubemq_provider.hooks import sharing
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.triggers.messages import TubeMQMessageTrigger

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC, GROUP = "orders", "notices"
PARTITION = Partition.from_key(TOPIC, "1:0")


def trigger(**arguments: Any) -> TubeMQMessageTrigger:
    return TubeMQMessageTrigger(topic=TOPIC, group=GROUP, cluster="test", **arguments)


def produce(hook: TubeMQHook, *bodies: bytes, **more: Any) -> None:
    list(hook.produce(TOPIC, [Record(body, partition=PARTITION, **more) for body in bodies]))


class Triggerer:
    """One run of a triggerer: events in the order in which it receives them; unless it `stores`
    them,
    it dies before the database has any."""

    def __init__(self, *, stores: bool = True) -> None:
        self.manager = SharedStreamManager()
        self.stores = stores

    async def events(self) -> AsyncIterator[str]:
        watcher = trigger()
        key = watcher.shared_stream_key()
        raw = self.manager.subscribe(trigger_id=1, trigger=watcher, key=key)
        async for event in watcher.filter_shared_stream(raw):
            seq = self.manager.bind_pending_event(trigger_id=1, key=key)
            assert seq is not None
            if self.stores:
                self.manager.confirm_persisted([seq])
            yield event.payload["body"]


async def take(events: AsyncIterator[str], count: int) -> list[str]:
    return [await anext(events) for _ in range(count)]


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await asyncio.wait_for(scene(), 45)
        finally:
            await asyncio.get_running_loop().shutdown_asyncgens()

    asyncio.run(whole())


def position(mq: EmbeddedTubeMQ) -> int:
    return mq.broker(1).position(GROUP, TOPIC, 0) or 0


@pytest.fixture
def hook(mq: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch) -> TubeMQHook:
    """Return a connection whose members send heartbeats every second."""
    extra = {"cluster": "test", "heartbeat_period_ms": 1000, "connect_timeout_ms": 1000}
    connection = {"conn_type": "tubemq", "host": mq.masters, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
    return TubeMQHook()


def test_records_are_confirmed_when_their_events_are_stored_and_fire_again_otherwise(
    hook: TubeMQHook, mq: EmbeddedTubeMQ
) -> None:
    produce(hook, b"a", b"b", b"c")

    async def scene() -> None:
        killed = Triggerer(stores=False)
        assert await take(killed.events(), 2) == ["a", "b"]
        await killed.manager.stop_all()
        assert position(mq) == 0

        again = Triggerer()
        events = again.events()
        assert await take(events, 3) == ["a", "b", "c"]
        await asyncio.to_thread(produce, hook, b"d")
        assert await anext(events) == "d"
        await again.manager.stop_all()

    run(scene)
    assert position(mq) == 3 * 28


def test_a_dead_broker_is_waited_out(hook: TubeMQHook, mq: EmbeddedTubeMQ) -> None:
    async def scene() -> None:
        life = Triggerer()
        events = life.events()
        first = asyncio.ensure_future(anext(events))
        await asyncio.to_thread(produce, hook, b"a")
        assert await first == "a"
        second = asyncio.ensure_future(anext(events))
        await asyncio.to_thread(mq.broker(1).stop)
        await asyncio.to_thread(mq.broker(1).restart)
        await asyncio.to_thread(produce, hook, b"b")
        # A confirmation that the dead broker has not heard lets its record ring again.
        found = await second
        assert found in {"a", "b"}
        assert found == "b" or await anext(events) == "b"
        await life.manager.stop_all()

    run(scene)


def test_records_of_an_earlier_member_confirm_nothing_of_the_next(
    hook: TubeMQHook, mq: EmbeddedTubeMQ
) -> None:
    produce(hook, b"a")

    async def scene() -> None:
        stream = trigger().stream()
        records = stream.open_stream()
        _, before = await anext(records)
        going = stream._next

        async def fails(*_: Any) -> Any:
            stream._next = going  # type: ignore[method-assign]
            raise OSError("the member is lost")

        stream._next = fails  # type: ignore[method-assign]
        payload, again = await anext(records)
        assert payload["body"] == "a"
        # Members count their deliveries from one: those of two may have one number.
        await stream.acknowledge(replace(before, delivery=again.delivery), clean=True)
        assert position(mq) == 0
        await stream.acknowledge(again, clean=True)
        await records.aclose()

    run(scene)
    assert position(mq) == 28


def test_without_shared_streams_batches_are_confirmed_as_they_are_taken(
    hook: TubeMQHook, mq: EmbeddedTubeMQ
) -> None:
    produce(hook, b"a")

    async def scene() -> None:
        events = trigger().run()
        assert (await anext(events)).payload["body"] == "a"
        more = asyncio.ensure_future(anext(events))
        await asyncio.to_thread(produce, hook, b"b")
        assert (await more).payload["body"] == "b"
        await events.aclose()

    run(scene)
    assert position(mq) == 28


def test_watchers_of_a_cluster_share_its_connections(hook: TubeMQHook, mq: EmbeddedTubeMQ) -> None:
    produce(hook, b"a")

    async def scene() -> None:
        watchers = [
            TubeMQMessageTrigger(topic=TOPIC, group=f"notices_{n}", cluster="test").run()
            for n in range(8)
        ]
        await asyncio.gather(*(anext(events) for events in watchers))
        assert mq.broker(1).connections == 1
        for events in watchers:
            await events.aclose()
        await asyncio.to_thread(eventually, lambda: mq.broker(1).connections == 0 or None)

    run(scene)


def test_the_size_of_an_event_is_bounded() -> None:
    message = Message(b"x" * 9999, {"k": "v" * 9000}, "s1", "202601010000", 7, 28)
    payload = trigger(max_body_bytes=10).payload(PARTITION, message)
    assert payload["body"] == "x" * 10
    assert payload["truncated"]
    assert (payload["size"], payload["attributes"], payload["offset"]) == (9999, {}, 28)
    assert len(json.dumps(payload)) < 400


@pytest.mark.parametrize(
    ("body", "limit", "expected"),
    [
        ("größer".encode(), 4096, ("größer", "utf-8")),
        ("gröz".encode(), 3, ("gr", "utf-8")),
        (b"\xff\x00", 4096, ("/wA=", "base64")),
        (b"", 4096, ("", "utf-8")),
    ],
)
def test_bodies_are_text_or_base64(body: bytes, limit: int, expected: tuple[str, str]) -> None:
    message = Message(body, {}, None, None, 1, None)
    payload = trigger(max_body_bytes=limit).payload(PARTITION, message)
    assert (payload["body"], payload["encoding"]) == expected


def test_its_arguments_have_no_secret_and_recreate_it() -> None:
    made = MessageQueueTrigger(
        scheme="tubemq", kind="message", topic=TOPIC, group=GROUP, filters=["b", "a"]
    )
    path, kwargs = made.serialize()
    assert path == "tubemq_provider.triggers.messages.TubeMQMessageTrigger"
    assert kwargs["filters"] == ["a", "b"]
    again = TubeMQMessageTrigger(**kwargs)
    assert again.serialize() == (path, kwargs)
    assert BaseEventTrigger.hash(path, kwargs)
    assert set(kwargs) == {
        "topic",
        "group",
        "cluster",
        "filters",
        "begin",
        "max_body_bytes",
        "corrupt_records",
        "tubemq_conn_id",
    }
    assert again.shared_stream_key() != trigger().shared_stream_key()


def test_wrong_arguments_are_all_named_when_the_dag_is_parsed() -> None:
    with pytest.raises(ConfigError) as caught:
        trigger(max_body_bytes=1 << 20, begin="now", filters=["a b"])
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match="kind 'letters' is not one of lag, message"):
        MessageQueueTrigger(scheme="tubemq", kind="letters", topic=TOPIC, group=GROUP).serialize()


def test_a_cluster_that_has_moved_is_followed(
    hook: TubeMQHook, mq: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher lives for months: the connection is edited under it."""
    produce(hook, b"before")
    topics = [TopicSpec(TOPIC, stores=1, partitions=1)]
    switches = Switches(unflushed_records=1)

    async def scene() -> None:
        stream = trigger().stream()
        stream.look_ms = 200
        records = stream.open_stream()
        payload, record = await anext(records)
        assert payload["body"] == "before"
        await stream.acknowledge(record, clean=True)
        waiting = asyncio.ensure_future(anext(records))
        with EmbeddedTubeMQ(brokers=1, topics=topics, switches=switches, http=False) as other:
            await asyncio.to_thread(mq.stop)
            known = json.loads(os.environ["AIRFLOW_CONN_TUBEMQ_DEFAULT"])
            moved = json.dumps({**known, "host": other.masters})
            monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", moved)
            await asyncio.to_thread(produce, TubeMQHook(), b"after")
            assert (await waiting)[0]["body"] == "after"
            await records.aclose()

    run(scene)


def test_validated_arguments_are_used() -> None:
    one = trigger(filters="alerts", max_body_bytes="10")
    assert (one.filters, one.max_body_bytes) == (["alerts"], 10)
    with pytest.raises(ConfigError, match="filters"):
        trigger(filters=[f"s{n}" for n in range(501)])


def test_a_client_that_cannot_be_made_leaves_no_session(hook: TubeMQHook) -> None:
    async def scene() -> None:
        def broken(session: Any) -> Any:
            raise ConfigError("no client")

        async def settings() -> Any:
            return hook.config.settings()

        for _ in range(2):
            with pytest.raises(ConfigError):
                await sharing.Connected(settings, Session, broken).__aenter__()
        assert not sharing._open.get(asyncio.get_running_loop())

    run(scene)
