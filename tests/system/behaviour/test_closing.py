"""Closing a member of a group: while others close it too, receive, or are being asked to leave."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.system.behaviour.conftest import embedded
from tests.system.behaviour.shells import BLOCKING, Shell
from tests.system.behaviour.sites import SHARED, Site, bodies, eventually
from tests.system.behaviour.windows import settings_for
from tubemq_client import ClientSettings, ConsumerSettings, Partition, errors
from tubemq_client._core.assigned import AssignedSession
from tubemq_client._core.balance import BalancedSession
from tubemq_client._wire.methods import GET_MESSAGES
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

TOPICS = {SHARED: ()}
PARTITION = Partition(1, SHARED, 0)
FOR_EVER = -1

KINDS = pytest.mark.parametrize("kind", ["AssignedConsumer", "Consumer"])


@pytest.fixture
def server() -> Iterator[EmbeddedTubeMQ]:
    with embedded(Switches(balance_period_ms=50)) as server:
        yield server


@pytest.fixture
def options(server: EmbeddedTubeMQ) -> ClientSettings:
    return replace(settings_for(server.masters, rpc_timeout_ms=3_000), heartbeat_period_ms=200)


def enter(shell: Shell, kind: str, options: ClientSettings, group: str) -> Any:
    """Start a member that holds the partition."""
    consumer = getattr(shell, kind)(options, group, TOPICS).__enter__()
    if kind == "AssignedConsumer":
        consumer.assign(PARTITION)
    eventually(lambda: PARTITION in consumer.assignment or None)
    return consumer


class Side:
    """Call a function in another thread and keep its result or error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as error:  # noqa: BLE001 - what the test is about
            self.outcome = error

    def join(self) -> Any:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.outcome


@KINDS
def test_many_may_close_at_once_and_each_finds_it_closed(
    shell: Shell, kind: str, server: EmbeddedTubeMQ, options: ClientSettings, group: str
) -> None:
    Site(options, [1]).send(PARTITION, b"a")
    consumer = enter(shell, kind, options, group)
    batch = eventually(lambda: consumer.receive(1_000))
    still_held: list[bool] = []

    def close() -> None:
        consumer.close()
        still_held.append(server.broker(1).revoke_lease(group, SHARED, 0))

    assert [side.join() for side in [Side(close) for _ in range(5)]] == [None] * 5
    assert still_held == [False] * 5, "whoever returns finds everything given back"
    consumer.close()
    with pytest.raises(errors.TubeMQError):
        consumer.confirm(batch)
    successor = enter(shell, kind, options, group)
    with closing(successor):
        assert bodies(eventually(lambda: successor.receive(1_000))) == [b"a"]


@KINDS
def test_receive_raises_when_another_thread_closes(
    shell: Shell, kind: str, options: ClientSettings, group: str
) -> None:
    consumer = enter(shell, kind, options, group)
    waiting = Side(lambda: consumer.receive(FOR_EVER))
    consumer.close()
    assert isinstance(waiting.join(), errors.ClosedError)
    with pytest.raises(errors.ClosedError):
        consumer.receive(FOR_EVER)


def test_a_run_ends_in_peace_wherever_another_closes(
    options: ClientSettings, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only threads can meet here: tasks are alone from the first word of `close` to the second."""
    consumer = enter(BLOCKING, "Consumer", options, group)
    stop = consumer._stop

    def stop_late() -> None:
        consumer._ready.notify()  # it is closing, and its run is not stopped yet
        if threading.current_thread() is consumer._closer:
            running._thread.join(2)
        stop()

    running = Side(lambda: consumer.run(lambda batch: None))
    eventually(lambda: any(worker.is_alive() for worker in consumer._workers) or None)
    monkeypatch.setattr(consumer, "_stop", stop_late)
    closing = Side(consumer.close)
    assert [closing.join(), running.join()] == [None, None]
    assert isinstance(Side(lambda: consumer.run(print)).join(), errors.ClosedError)


def test_closing_does_not_mind_workers_that_have_yet_to_start(
    options: ClientSettings, group: str
) -> None:
    consumer = enter(BLOCKING, "Consumer", options, group)
    consumer._workers = [threading.Thread(target=print)]
    assert Side(consumer.close).join() is None


def test_closing_waits_once_for_all_handlers_that_hang(
    shell: Shell, options: ClientSettings, group: str
) -> None:
    """Also with many: threads cannot be cancelled, and each would be waited for in turn."""
    held, go_on = [Partition(1, SHARED, number) for number in range(3)], threading.Event()
    for partition in held:
        Site(options, [1]).send(partition, b"a")
    busy: list[Any] = []

    async def hang_on_loop(batch: Any) -> None:
        busy.append(batch)
        await asyncio.sleep(30)

    def hang(batch: Any) -> None:
        busy.append(batch)
        go_on.wait(30)

    impatient = ConsumerSettings(close_wait_ms=2_000)
    consumer = shell.Consumer(options, group, TOPICS, consumer=impatient).__enter__()
    running = Side(
        lambda: consumer.run(hang_on_loop if shell.name == "aio" else hang, workers=len(held))
    )
    eventually(lambda: len(busy) == len(held) or None)
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 5, "close_wait_ms and a little, not once for each"
    go_on.set()
    running.join()


@KINDS
def test_a_fetch_without_an_answer_does_not_keep_the_group(
    shell: Shell, kind: str, server: EmbeddedTubeMQ, options: ClientSettings, group: str
) -> None:
    consumer = enter(shell, kind, options, group)
    server.broker(1).silence(GET_MESSAGES.id)
    waiting = Side(lambda: consumer.receive(FOR_EVER))
    consumer.close()
    assert isinstance(waiting.join(), errors.TubeMQError)
    server.broker(1).silence()
    with closing(enter(shell, kind, options, group)) as successor:
        assert PARTITION in successor.assignment


def test_a_queued_pull_raises_when_the_partition_is_lost(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings, group: str
) -> None:
    """The first waits for an answer, the second for the first, and then the lease is gone."""
    consumer = enter(shell, "AssignedConsumer", options, group)
    server.broker(1).silence(GET_MESSAGES.id)
    with closing(consumer):
        pulling = [Side(lambda: consumer.pull(PARTITION)) for _ in range(2)]
        eventually(lambda: consumer.stats.fetches or None)
        assert server.broker(1).revoke_lease(group, SHARED, 0)
        outcomes = {type(side.join()) for side in pulling}
    assert outcomes == {errors.RpcTimeout, errors.ConfigError}


def test_a_queued_pull_raises_when_the_member_is_closed(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings, group: str
) -> None:
    consumer = enter(shell, "AssignedConsumer", options, group)
    server.broker(1).silence(GET_MESSAGES.id)
    pulling = [Side(lambda: consumer.pull(PARTITION)) for _ in range(2)]
    eventually(lambda: consumer.stats.fetches or None)
    consumer.close()
    outcomes = [side.join() for side in pulling]
    assert any(isinstance(outcome, errors.ClosedError) for outcome in outcomes)
    assert all(isinstance(outcome, errors.TubeMQError) for outcome in outcomes)


def test_a_pull_that_hangs_at_many_brokers_does_not_delay_close(shell: Shell, group: str) -> None:
    """Closing waits as long as one request may take, not until every broker has answered."""
    brokers = range(1, 9)
    held = [Partition(broker, SHARED, 0) for broker in brokers]
    with embedded(Switches(), len(brokers)) as server:
        options = replace(settings_for(server.masters), rpc_timeout_ms=1_000)
        consumer = shell.AssignedConsumer(options, group, TOPICS).__enter__()
        for partition in held:
            consumer.assign(partition)
            server.broker(partition.broker_id).silence(GET_MESSAGES.id)
        waiting = Side(lambda: consumer.receive(FOR_EVER))
        eventually(lambda: consumer.last_errors or None)
        consumer.close()
        kept = [server.broker(broker).revoke_lease(group, SHARED, 0) for broker in brokers]
        assert not any(kept), "all is given back"
        assert isinstance(waiting.join(), errors.ClosedError)
        assert set(map(str, held)) - consumer.last_errors.keys(), "the last were not asked any more"


@pytest.mark.parametrize("work", ["master_heartbeat_if_due", "broker_heartbeats_if_due"])
def test_assign_raises_when_heartbeats_have_stopped(
    shell: Shell,
    options: ClientSettings,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    work: str,
) -> None:
    """A mistake of ours must not end in leases that are lost in silence."""

    def fail(self: Any) -> Any:
        raise RuntimeError("a mistake")
        yield

    monkeypatch.setattr(AssignedSession, work, fail)
    consumer = shell.AssignedConsumer(options, group, TOPICS)
    with consumer:
        for call in (consumer.receive, consumer.partitions_ready):
            with pytest.raises(RuntimeError, match="a mistake"):
                call(10_000)


def test_a_callback_may_close_the_consumer(
    shell: Shell, options: ClientSettings, group: str
) -> None:
    closed: list[Any] = []

    def taken(partitions: list[Partition]) -> Any:
        closed.append(partitions)
        return consumer._client.close() if shell.name == "aio" else consumer.close()

    consumer = shell.Consumer(options, group, TOPICS, on_assigned=taken)
    with consumer:
        assert isinstance(Side(lambda: consumer.receive(FOR_EVER)).join(), errors.ClosedError)
    assert len(closed) == 1


def test_a_member_leaves_although_its_last_order_is_under_way(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings, group: str
) -> None:
    """A member that is asked to give partitions back while it closes gives each back once."""
    leaving = threading.Event()
    first = shell.Consumer(options, group, TOPICS, on_revoked=lambda _: leaving.set())
    with first:
        eventually(lambda: len(first.assignment) == 3 or None)
        with shell.Consumer(options, group, TOPICS) as second:
            assert leaving.wait(20)
            first.close()
            eventually(lambda: len(second.assignment) == 3 or None)
            assert isinstance(second._consumer, BalancedSession)
