"""`EmbeddedTubeMQ`: start, stop and handle a whole TubeMQ in this process.

This is the only module of the package that starts a thread: one daemon thread with an event loop, on
which all state lives. Every public method here may be called from any other thread; it runs its
work on the loop and waits for it. What runs there is `runtime`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from tubemq_client.embedded.broker import Clock, Faults
from tubemq_client.embedded.positions import PositionKey
from tubemq_client.embedded.runtime import Ports, Runtime, ServedBroker
from tubemq_client.embedded.storage import Store
from tubemq_client.embedded.store import Ends
from tubemq_client.embedded.switches import Switches, TopicSpec
from tubemq_client.errors import ClosedError, ConfigError

__all__ = ["BrokerHandle", "EmbeddedTubeMQ", "StoreHandle"]

T = TypeVar("T")

_CALL_TIMEOUT_S = 30.0
_SIGNAL_POLL_S = 0.5


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


class EmbeddedTubeMQ:
    """A TubeMQ of one master and `brokers` brokers on loopback, as a context manager.

    `topics` (specs or names) are deployed on every broker. Without `data_dir` everything lives in
    memory; with it, topics, ports, records and positions come back on the next start, and killing
    the process loses what was not flushed (see `Switches`). `ports` 0 mean "any free one". `http`
    needs the extra `embedded`. Raises `ConfigError` for a host that is not loopback, a port in use
    or a directory in use.
    """

    def __init__(
        self,
        brokers: int = 1,
        topics: Iterable[TopicSpec | str] = (),
        *,
        data_dir: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        ports: Ports | None = None,
        http: bool = True,
        switches: Switches | None = None,
        clock: Clock = _wall_clock,
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"brokers {brokers} is less than 1", subject="embedded server")
        self._runtime = Runtime(
            brokers=brokers,
            topics=[_spec(topic) for topic in topics],
            data_dir=data_dir,
            host=_loopback(host),
            ports=ports or Ports(),
            http=http,
            switches=switches or Switches(),
            clock=clock,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        state = f"masters={self.masters!r}" if self._loop else "stopped"
        return f"{type(self).__name__}({state})"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ------------------------------------------------------------------ life

    def start(self) -> Self:
        """Start and wait until every listener accepts; doing it twice changes nothing."""
        if self._loop is not None:
            return self
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name="embedded-tubemq", daemon=True
        )
        self._thread.start()
        try:
            self._await(self._runtime.start)
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self) -> None:
        """Stop in order: flush, save, close; doing it twice changes nothing."""
        if self._loop is None:
            return
        try:
            self._await(self._runtime.stop)
        finally:
            self._end_loop()

    def run_until_signal(self) -> None:
        """Start, wait for SIGINT or SIGTERM, stop in order. Main thread only."""
        woken = threading.Event()
        former = {
            number: signal.signal(number, lambda *_: woken.set())
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            self.start()
            while not woken.wait(_SIGNAL_POLL_S):
                pass
        finally:
            self.stop()
            for number, handler in former.items():
                signal.signal(number, handler)

    # ------------------------------------------------------------------ addresses

    @property
    def masters(self) -> str:
        """What clients connect to, ``host:port``."""
        return f"{self._runtime.host}:{self._runtime.ports.master}"

    @property
    def master_web(self) -> str | None:
        """``http://host:port`` of the master's administration (path ``/webapi.htm``), or None."""
        return self._runtime.web_url(self._runtime.ports.master_web)

    @property
    def broker_ids(self) -> list[int]:
        return list(self._runtime.served)

    # ------------------------------------------------------------------ handling

    def broker(self, broker_id: int) -> BrokerHandle:
        """The broker with this id (they count from 1). Raises `KeyError`."""
        return BrokerHandle(self, self._runtime.served[broker_id])

    def add_topic(
        self, topic: TopicSpec | str, *, brokers: Iterable[int] | None = None
    ) -> TopicSpec:
        """Deploy a topic on every broker, or on those named; an existing one grows to the spec."""
        spec = _spec(topic)
        self._do(lambda: self._runtime.add_topic(spec, brokers))
        return spec

    def topics(self) -> list[str]:
        return self._do(self._runtime.cluster.topic_names)

    def set_standby(self, standby: bool) -> None:
        """Make the master answer like a stand-by, or like the active one again."""
        self._do(lambda: setattr(self._runtime.master, "standby", standby))

    def silence_master(self, *method_ids: int) -> None:
        """Never answer these methods at the master; none means answer all."""
        self._do(lambda: setattr(self._runtime.master, "silent", set(method_ids)))

    def forget_members(self) -> None:
        """Make the master forget all producers and consumers, as a fail-over does."""
        self._do(self._runtime.master.forget_members)

    def tick(self) -> None:
        """Do now what timers do: flush what is due, end silent leases and members, save."""
        self._do(self._runtime.tick)

    # ------------------------------------------------------------------ the loop

    def _do(self, work: Callable[[], T]) -> T:
        """Run `work` on the loop's thread and wait for its result."""

        async def run() -> T:
            return work()

        return self._await(run)

    def _await(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._loop is None:
            raise ClosedError("the embedded server is not running")

        async def run() -> T:
            return await work()

        coroutine: Coroutine[Any, Any, T] = run()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_TIMEOUT_S)

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_CALL_TIMEOUT_S)


class BrokerHandle:
    """One broker, with the faults that can be had from it."""

    def __init__(self, server: EmbeddedTubeMQ, served: ServedBroker) -> None:
        self._server = server
        self._served = served

    @property
    def broker_id(self) -> int:
        return self._served.broker.broker_id

    @property
    def address(self) -> str:
        """``host:port`` of the RPC listener."""
        return f"{self._served.host}:{self._served.port}"

    @property
    def web(self) -> str | None:
        """``http://host:port`` of the administration (any path), or None."""
        return self._served.web_url

    def store(self, topic: str, store_id: int = 0) -> StoreHandle:
        """A store of this broker, opened if it does not exist yet."""
        return StoreHandle(self._server, self._served, topic, store_id)

    def flush(self) -> None:
        """Make every store's records stable."""
        self._do(self._served.broker.storage.flush)

    def expire_to(self, topic: str, offset: int, store_id: int = 0) -> None:
        """Move a store's min offset, as retention does."""
        self.store(topic, store_id).expire_to(offset)

    def crash(self, *, lose_unflushed: bool = True, lose_positions: bool = False) -> int:
        """Die like on SIGKILL, connections included; the number of acknowledged records lost.

        Their offsets will be given out again. `lose_positions` also takes confirmed offsets back
        to the last save.
        """
        return self._await(
            lambda: self._served.crash(lose_unflushed=lose_unflushed, lose_positions=lose_positions)
        )

    def stop(self) -> None:
        """Stop in order: everything stable, batches in flight count as consumed."""
        self._await(self._served.stop)

    def restart(self) -> None:
        """Come back on the same port; a running broker is stopped in order first."""
        self._await(self._served.restart)

    def stop_reading(self, stopped: bool = True) -> None:
        """Answer fetches with 503."""
        self._set("reading", not stopped)

    def stop_writing(self, stopped: bool = True) -> None:
        """Answer sends with 503."""
        self._set("writing", not stopped)

    def overflow_every(self, sends: int) -> None:
        """Refuse every n-th send with 419; 0 ends it."""
        self._set("overflow_every", sends)

    def corrupt_next(self, records: int = 1) -> None:
        """Give the next delivered records a wrong checksum; the stored ones stay sound."""
        self._set("corrupt_next", records)

    def silence(self, *method_ids: int) -> None:
        """Never answer these methods; none means answer all."""
        self._set("silent", set(method_ids))

    def revoke_lease(self, group: str, topic: str, partition_id: int) -> bool:
        """Make the owner's next call fail with 411; whether there was an owner."""
        key = PositionKey(group, topic, partition_id)
        return self._do(lambda: self._served.broker.release_lease(key))

    def steal_lease(
        self, group: str, topic: str, partition_id: int, client_id: str = "thief"
    ) -> None:
        """Give the partition to `client_id`: the owner's next call fails with 412."""
        key = PositionKey(group, topic, partition_id)
        self._do(lambda: self._served.broker.steal_lease(key, client_id))

    def groups(self) -> list[str]:
        """Every group the broker has booked."""
        return self._do(self._served.broker.positions.groups)

    def position(self, group: str, topic: str, partition_id: int) -> int | None:
        """The group's confirmed offset, None if it has none."""
        key = PositionKey(group, topic, partition_id)
        found = self._do(lambda: self._served.broker.positions.get(key))
        return None if found is None else found.confirmed

    def _set(self, name: str, value: Any) -> None:
        faults: Faults = self._served.broker.faults
        self._do(lambda: setattr(faults, name, value))

    def _do(self, work: Callable[[], T]) -> T:
        return self._server._do(work)

    def _await(self, work: Callable[[], Awaitable[T]]) -> T:
        return self._server._await(work)


class StoreHandle:
    """One store of one broker."""

    def __init__(
        self, server: EmbeddedTubeMQ, served: ServedBroker, topic: str, store_id: int
    ) -> None:
        self._server = server
        self._storage = served.broker.storage
        self._topic = topic
        self._store_id = store_id

    @property
    def ends(self) -> Ends:
        """Its marks: min, stable, file, memory."""
        return self._server._do(lambda: self._open().log.ends)

    def flush(self) -> Ends:
        """Make everything stable; the marks afterwards."""
        self._server._do(lambda: self._open().flush())
        return self.ends

    def write(self) -> Ends:
        """Put everything into the file without making it stable; the marks afterwards."""
        self._server._do(lambda: self._open().log.write())
        return self.ends

    def swap(self) -> Ends:
        """Turn the receiving memory buffer into the backup buffer; the marks afterwards."""
        self._server._do(lambda: self._open().log.swap())
        return self.ends

    def expire_to(self, offset: int) -> Ends:
        """Forget records below `offset`, as retention does; the marks afterwards."""
        self._server._do(lambda: self._open().expire_to(offset))
        return self.ends

    def truncate_to(self, offset: int) -> int:
        """Lose records from `offset` on, so that offsets are reused; the number lost."""
        return self._server._do(lambda: self._open().truncate_to(offset))

    def corrupt(self, offset: int) -> None:
        """Spoil the stored checksum of the record at `offset`. Raises `ValueError` if absent."""
        self._server._do(lambda: self._open().log.corrupt(offset))

    def _open(self) -> Store:
        return self._storage.open(self._topic, self._store_id)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _spec(topic: TopicSpec | str) -> TopicSpec:
    return TopicSpec(topic) if isinstance(topic, str) else topic


def _loopback(host: str) -> str:
    """`host` as an IPv4 loopback address. TubeMQ's address texts cannot carry IPv6."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise ConfigError(
            f"host {host!r} is not an IPv4 loopback address; the embedded server has no "
            "authentication and serves this machine only",
            subject="embedded server",
        )
    return host
