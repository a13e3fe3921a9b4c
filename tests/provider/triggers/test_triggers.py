"""Events, waits and outages of triggers, on an embedded cluster and a state in memory."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.models import crypto
from airflow.models.trigger import Trigger
from airflow.sdk import BaseHook
from airflow.triggers.base import BaseEventTrigger
from cryptography.fernet import Fernet

from tests.kit.look_ups import look_up_under_way
from tests.system.behaviour.sites import eventually
from tubemq_client import Partition, Record
from tubemq_client.aio import Metadata
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.chunking import split
from tubemq_provider.queues.tubemq import TubeMQMessageQueueProvider
from tubemq_provider.triggers.lag import TubeMQLagTrigger
from tubemq_provider.triggers.offsets import TubeMQOffsetTrigger
from tubemq_provider.triggers.rocketmq import RocketMQOffsetTrigger

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"


class State(dict[str, Any]):
    """Asset state in memory; `away` makes the API server fail."""

    away = False

    async def aget(self, key: str, default: Any = None) -> Any:
        if self.away:
            raise RuntimeError("503 from the API server")
        return self.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))


class Watcher(TubeMQLagTrigger):
    """The trigger over a state in memory."""

    kept: State

    @property
    def state(self) -> State:
        return self.kept


def watcher(state: State, **arguments: Any) -> Watcher:
    options = {"cluster": "test", "poll_interval": 1.0, "fire_again_after": 60.0} | arguments
    found = Watcher(topic=TOPIC, group="lake", **options)
    found.kept = state
    return found


def produce(hook: TubeMQHook, count: int, key: str = "1:0") -> None:
    partition = Partition.from_key(TOPIC, key)
    list(hook.produce(TOPIC, [Record(b"x", partition=partition)] * count))


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await asyncio.wait_for(scene(), 45)
        finally:
            await asyncio.get_running_loop().shutdown_asyncgens()

    asyncio.run(whole())


async def fired(events: AsyncIterator[Any]) -> dict[str, Any]:
    event = await anext(events)
    payload: dict[str, Any] = event.payload
    return payload


async def quiet(events: AsyncIterator[Any], seconds: float = 2.5) -> bool:
    """Return True if nothing is fired for some polls. Ends the iteration."""
    try:
        await asyncio.wait_for(anext(events), seconds)
    except TimeoutError:
        return True
    return False


def cursor(offsets: dict[str, int]) -> dict[str, Any]:
    return {"v": 1, "h": "0123456789", "seq": 1, "next": offsets}


class TestLag:
    def test_fires_for_records_and_again_when_the_position_moves(
        self, hook: TubeMQHook, mq: EmbeddedTubeMQ
    ) -> None:
        produce(hook, 5)
        state = State()

        async def scene() -> None:
            events = watcher(state).run()
            first = await fired(events)
            assert (first["lag"], first["reason"]) == (5, "lag")
            assert first["ends"]["1:0"] == 140
            state["cursor"] = cursor({"1:0": 84, "1:1": 84, "2:0": 0, "2:1": 0})
            second = await fired(events)
            assert (second["lag"], second["reason"]) == (2, "lag")
            assert await quiet(events)

        run(scene)

    def test_is_quiet_where_everything_is_read(self, hook: TubeMQHook) -> None:
        produce(hook, 5)
        state = State(cursor=cursor({"1:0": 140, "1:1": 140, "2:0": 0, "2:1": 0}))

        async def scene() -> None:
            assert await quiet(watcher(state).run())

        run(scene)

    def test_a_restarted_triggerer_does_not_fire_twice_for_one_position(
        self, hook: TubeMQHook
    ) -> None:
        produce(hook, 5)
        state = State()

        async def scene() -> None:
            events = watcher(state).run()
            await fired(events)
            assert await quiet(events)
            assert await quiet(watcher(state).run())
            state["cursor"] = cursor({"1:0": 28})
            assert (await fired(watcher(state).run()))["reason"] == "lag"

        run(scene)

    def test_a_log_shorter_than_the_position_fires(self, hook: TubeMQHook) -> None:
        """Only the run can report what happened to the log."""
        produce(hook, 2)
        state = State(cursor=cursor({"1:0": 2800, "1:1": 2800, "2:0": 0, "2:1": 0}))

        async def scene() -> None:
            assert (await fired(watcher(state).run()))["lag"] == 2

        run(scene)

    def test_survives_outages_of_brokers_masters_and_the_api_server(
        self, hook: TubeMQHook, mq: EmbeddedTubeMQ, caplog: pytest.LogCaptureFixture
    ) -> None:
        state = State()
        state.away = True

        async def scene() -> None:
            events = watcher(state).run()
            assert await quiet(events, 2.0)
            state.away = False
            mq.broker(1).crash()
            mq.broker(2).crash()
            later = watcher(state).run()
            waiting = asyncio.ensure_future(anext(later))
            await asyncio.sleep(2)
            await asyncio.to_thread(mq.broker(1).restart)
            await asyncio.to_thread(mq.broker(2).restart)
            await asyncio.to_thread(produce, hook, 3)
            assert (await waiting).payload["lag"] == 3

        run(scene)
        assert sum("not reachable" in record.message for record in caplog.records) <= 2

    def test_a_dead_broker_does_not_affect_the_others(
        self, hook: TubeMQHook, mq: EmbeddedTubeMQ
    ) -> None:
        produce(hook, 3)
        mq.broker(2).crash()

        async def scene() -> None:
            assert (await fired(watcher(State()).run()))["lag"] == 3
            events = TubeMQOffsetTrigger(topic=TOPIC, group="lake", min_lag=3).run()
            assert await fired(events) == {"status": "ready"}

        run(scene)

    def test_waits_for_a_topic_that_does_not_exist_yet(
        self, hook: TubeMQHook, mq: EmbeddedTubeMQ
    ) -> None:
        async def scene() -> None:
            found = Watcher(topic="later", group="lake", cluster="test", poll_interval=1.0)
            found.kept = State()
            waiting = asyncio.ensure_future(anext(found.run()))
            await asyncio.sleep(1)
            assert not waiting.done()
            mq.add_topic("later")
            await asyncio.to_thread(list, hook.produce("later", [Record(b"x")]))
            assert (await waiting).payload["topic"] == "later"

        run(scene)

    def test_reads_a_chunked_cursor_and_claims_of_the_ledger(self, hook: TubeMQHook) -> None:
        produce(hook, 5)
        read = {"1:0": 140, "1:1": 140, "2:0": 0, "2:1": 0}
        whole = cursor(read | {f"{n}:0": 0 for n in range(3, 9000)})
        head, pieces = split(whole)
        assert pieces
        state = State({"cursor": head} | {f"cursor~{k}": v for k, v in pieces.items()})
        plan = {"plan": {"ranges": {"1:0": [56, 140]}}, "by": "a run", "at": ""}
        claimed = cursor(read | {"1:0": 56}) | {"pending": {"c-2": plan}, "done": {}}
        ledger = State(
            {"tubemq-ledger/cursor": {"ledger": 1, "rev": 3, "doc": claimed}, "cursor": {}}
        )

        async def scene() -> None:
            assert await quiet(watcher(state).run())
            assert await quiet(watcher(ledger).run())

        run(scene)

    def test_a_hundred_watchers_share_one_connection_per_server(
        self, hook: TubeMQHook, mq: EmbeddedTubeMQ
    ) -> None:
        produce(hook, 1)

        async def scene() -> None:
            events = [watcher(State()).run() for _ in range(100)]
            await asyncio.gather(*(fired(each) for each in events))
            assert _connections(mq) == [1, 1]
            for each in events:
                await each.aclose()
            await asyncio.to_thread(eventually, lambda: _connections(mq) == [0, 0] or None)

        run(scene)

    def test_follows_a_connection_that_is_edited(
        self, hook: TubeMQHook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A watcher lives for months; the masters may have moved."""
        produce(hook, 3)
        right = os.environ["AIRFLOW_CONN_TUBEMQ_DEFAULT"]
        wrong = json.dumps({**json.loads(right), "host": "127.0.0.1:1"})
        monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", wrong)
        away = asyncio.Event()
        found = watcher(State())

        class Told(logging.Handler):
            def emit(self, _: logging.LogRecord) -> None:
                away.set()

        async def scene(events: AsyncIterator[Any]) -> dict[str, Any]:
            waiting = asyncio.ensure_future(anext(events))
            await away.wait()
            monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", right)
            payload: dict[str, Any] = (await waiting).payload
            return payload

        async def both() -> None:
            assert (await scene(found.run()))["lag"] == 3
            monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", wrong)
            away.clear()
            deferred = TubeMQOffsetTrigger(topic=TOPIC, group="lake", min_lag=3, poll_interval=0.1)
            assert await scene(deferred.run()) == {"status": "ready"}

        root, told = logging.getLogger(), Told(logging.WARNING)
        root.addHandler(told)
        try:
            run(both)
        finally:
            root.removeHandler(told)

    def test_wrong_arguments_are_all_named_when_the_dag_is_parsed(self) -> None:
        with pytest.raises(ConfigError) as caught:
            TubeMQLagTrigger(topic=TOPIC, group="lake", min_lag=0, max_wait=-1, poll_interval=0)
        assert len(caught.value.problems) == 3
        soon = TubeMQLagTrigger(
            topic=TOPIC,
            group="lake",
            min_lag="5",  # type: ignore[arg-type]
        )
        assert soon.min_lag == 5
        for wrong in ({"max_wait": timedelta(minutes=5)}, {"poll_interval": float("nan")}):
            with pytest.raises(ConfigError, match=next(iter(wrong))):
                TubeMQLagTrigger(topic=TOPIC, group="lake", **wrong)  # type: ignore[arg-type]

    @pytest.mark.parametrize(("topic", "group"), [("1 bad", "lake"), (TOPIC, "g g"), (TOPIC, "")])
    def test_an_invalid_name_is_not_waited_for(self, topic: str, group: str) -> None:
        with pytest.raises(ConfigError):
            TubeMQLagTrigger(topic=topic, group=group)

    @pytest.mark.parametrize("more", ["&min_lag=5", "&group=other", "#lake", "&max_wait="])
    def test_parts_of_a_queue_uri_without_effect_are_refused(self, more: str) -> None:
        provider = TubeMQMessageQueueProvider()
        queue = "tubemq://main/orders?group=lake"
        found = {"cluster": "main", "topic": TOPIC, "group": "lake"}
        assert provider.trigger_kwargs(queue) == found
        with pytest.raises(ConfigError):
            provider.trigger_kwargs(queue + more)

    def test_its_arguments_have_no_secret_and_recreate_it(self) -> None:
        found = TubeMQLagTrigger(topic=TOPIC, group="lake", cluster="test", min_lag=7)
        path, arguments = found.serialize()
        assert path == "tubemq_provider.triggers.lag.TubeMQLagTrigger"
        assert TubeMQLagTrigger(**arguments).serialize() == (path, arguments)
        assert isinstance(BaseEventTrigger.hash(path, arguments), int)


class TestOffsets:
    def test_offsets_of_thousands_of_partitions_fit_mysqls_64_kib(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The task could not be deferred beyond some 1900 partitions. Rows of before are read."""
        monkeypatch.setattr(crypto, "get_fernet", lambda: Fernet(Fernet.generate_key()))
        draw = random.Random(1)
        offsets = {
            f"{number // 4}:{number % 4}": draw.randrange(10**11) * 28 for number in range(3_000)
        }
        of_queues = {f"broker-a:{key.replace(':', '')}": at for key, at in offsets.items()}
        named = {"topic": TOPIC, "group": "lake"}
        for made, name, given in (
            (TubeMQOffsetTrigger(**named, positions=offsets), "positions", offsets),
            (TubeMQOffsetTrigger(**named, until=offsets), "until", offsets),
            (RocketMQOffsetTrigger(**named, until=of_queues), "until", of_queues),
        ):
            path, arguments = made.serialize()
            assert len(Trigger(path, arguments).encrypted_kwargs) < 2**16
            for kept in (arguments, {**arguments, name: given}):
                again = type(made)(**json.loads(json.dumps(kept)))
                assert getattr(again, name) == given
                assert again.serialize() == (path, arguments)

    def test_fires_when_ends_reach_their_offsets(self, hook: TubeMQHook) -> None:
        produce(hook, 2)

        async def scene() -> None:
            events = TubeMQOffsetTrigger(
                topic=TOPIC, group="ready", until={"1:0": 84}, poll_interval=0.5
            ).run()
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(1.5)
            assert not waiting.done()
            await asyncio.to_thread(produce, hook, 1)
            assert (await waiting).payload == {"status": "ready"}

        run(scene)

    def test_fifty_sensors_of_a_topic_share_a_look(
        self, hook: TubeMQHook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks: list[str] = []
        look = Metadata.reachable_ends

        async def counted(client: Metadata, topic: str, *others: Any, **options: Any) -> Any:
            looks.append(topic)
            return await look(client, topic, *others, **options)

        monkeypatch.setattr(Metadata, "reachable_ends", counted)

        async def scene() -> None:
            for number in range(50):
                waits = {"min_lag": 1} if number % 2 else {"until": {"1:0": 28}}
                trigger = TubeMQOffsetTrigger(topic=TOPIC, group=f"ready{number}", **waits)  # type: ignore[arg-type]
                async with trigger.connected() as client:
                    assert not await trigger.is_ready(client)

        run(scene)
        assert looks == [TOPIC]

    def test_fires_for_lag_and_for_a_log_below_the_position(self, hook: TubeMQHook) -> None:
        produce(hook, 5)

        async def scene() -> None:
            for positions, min_lag in (({"1:0": 28}, 4), ({"1:0": 2800}, 100)):
                events = TubeMQOffsetTrigger(
                    topic=TOPIC, group="lake", min_lag=min_lag, positions=positions
                ).run()
                assert await fired(events) == {"status": "ready"}

        run(scene)

    def test_waits_for_a_dead_broker(self, hook: TubeMQHook, mq: EmbeddedTubeMQ) -> None:
        mq.broker(2).crash()

        async def scene() -> None:
            events = TubeMQOffsetTrigger(
                topic=TOPIC, group="ready", partitions=["2:0"], poll_interval=0.5
            ).run()
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(2)
            assert not waiting.done()
            await asyncio.to_thread(mq.broker(2).restart)
            assert (await waiting).payload == {"status": "ready"}

        run(scene)

    def test_survives_an_api_server_that_does_not_answer(
        self, hook: TubeMQHook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked, right = [], BaseHook.aget_connection

        async def away(conn_id: str) -> Any:
            asked.append(conn_id)
            if len(asked) < 3:
                raise RuntimeError("503 from the API server")
            return await right(conn_id)

        monkeypatch.setattr(BaseHook, "aget_connection", away)

        async def scene() -> None:
            events = TubeMQOffsetTrigger(topic=TOPIC, group="ready", poll_interval=0.1).run()
            assert await fired(events) == {"status": "ready"}
            assert len(asked) == 3

        run(scene)

    def test_waits_for_a_look_up_of_another_topic_in_the_same_group(
        self, hook: TubeMQHook, mq: EmbeddedTubeMQ
    ) -> None:
        mq.add_topic("mails")
        held = look_up_under_way(hook.get_settings(), "mails", "ready")

        async def scene() -> None:
            await asyncio.to_thread(held.__enter__)
            events = TubeMQOffsetTrigger(topic=TOPIC, group="ready").run()
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            await asyncio.to_thread(held.__exit__, None, None, None)
            assert (await waiting).payload == {"status": "ready"}

        run(scene)

    def test_permanent_errors_are_reported(
        self, hook: TubeMQHook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connection = {"conn_type": "tubemq", "host": "127.0.0.1:1", "extra": {"clustr": "x"}}
        monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))

        async def scene() -> None:
            events = TubeMQOffsetTrigger(topic=TOPIC, group="ready").run()
            found = await fired(events)
            assert found["status"] == "error"
            assert "clustr" in found["message"]

        run(scene)


def _connections(mq: EmbeddedTubeMQ) -> list[int]:
    """Return the number of connections of each broker."""
    return [mq.broker(broker_id).connections for broker_id in (1, 2)]
