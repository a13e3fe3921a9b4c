"""`EmbeddedTubeMQ`: start, stop and control a whole TubeMQ in this process.

A facade over `runtime`, which lives on a separate thread (`loop_thread`). Every public method may
be called from any other thread; it runs its work there and waits for it.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from tubemq_client.embedded._scripting import ScriptableReplies
from tubemq_client.embedded.broker import Clock
from tubemq_client.embedded.handles import BrokerHandle
from tubemq_client.embedded.loop_thread import LoopThread
from tubemq_client.embedded.options import ServerTls, Switches, TopicSpec
from tubemq_client.embedded.runtime import Ports, Runtime
from tubemq_client.embedded.scripted_replies import ScriptedReplies, WebAnswer
from tubemq_client.errors import ConfigError
from tubemq_client.model import Address

__all__ = ["EmbeddedTubeMQ"]

_SIGNAL_POLL_S = 0.5


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


class EmbeddedTubeMQ(ScriptableReplies):
    """A TubeMQ of `brokers` brokers on loopback, as a context manager.

    `topics` (specs or names) are deployed on every broker. Without `data_dir` everything lives in
    memory; with it, topics, ports, records and positions come back on the next start, and killing
    the process loses what was not flushed (see `Switches`). `http` needs the extra `embedded`.
    `clock` gives ms since the epoch. Of several `masters` the first one is active and the others
    stand by (`fail_over`). With `tls` master and brokers listen on TLS ports too, and a
    client that asks the master over TLS is sent to those. Raises `ConfigError` for a host that is
    not loopback, a port in use or a directory in use.
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
        tls: ServerTls | None = None,
        masters: int = 1,
    ) -> None:
        counts = {"brokers": brokers, "masters": masters}
        problems = [f"{name} {count} is less than 1" for name, count in counts.items() if count < 1]
        if problems:
            raise ConfigError(problems, subject="embedded server")
        self._runtime = Runtime(
            brokers=brokers,
            topics=[_spec(topic) for topic in topics],
            data_dir=data_dir,
            host=_loopback(host),
            ports=ports or Ports(),
            http=http,
            switches=switches or Switches(),
            clock=clock,
            tls=tls,
            masters=masters,
        )
        self._thread = LoopThread("embedded-tubemq")

    @property
    def _scripted(self) -> ScriptedReplies:
        return self._runtime.master.scripted

    def __repr__(self) -> str:
        state = f"masters={self.masters!r}" if self._thread.running else "stopped"
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

    # ------------------------------------------------------------------ life cycle

    def start(self) -> Self:
        """Start and wait until every listener accepts connections. Idempotent."""
        if self._thread.running:
            return self
        self._thread.start()
        try:
            self._thread.wait(self._runtime.start)
        except BaseException:
            self._thread.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop in order: flush, save, close. Idempotent."""
        if not self._thread.running:
            return
        try:
            self._thread.wait(self._runtime.stop)
        finally:
            self._thread.stop()

    def run_until_signal(self, ready: Callable[[], None] | None = None) -> None:
        """Start if need be, call `ready`, wait for SIGINT or SIGTERM, stop in order.

        Signal handlers are installed before the start, so a process that `ready` notifies may send
        a signal at once. Main thread only.
        """
        signalled = threading.Event()
        former = {
            number: signal.signal(number, lambda *_: signalled.set())
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            self.start()
            if ready is not None:
                ready()
            while not signalled.wait(_SIGNAL_POLL_S):
                pass
        finally:
            self.stop()
            for number, handler in former.items():
                signal.signal(number, handler)

    # ------------------------------------------------------------------ addresses

    @property
    def masters(self) -> str:
        """Addresses for clients, ``host:port``, comma-separated for several masters."""
        return ",".join(f"{host}:{port}" for host, port in self.master_addresses)

    @property
    def master_address(self) -> Address:
        """Address of the first master."""
        return self.master_addresses[0]

    @property
    def master_addresses(self) -> tuple[Address, ...]:
        """Addresses of all masters, in the form of `ClientSettings.masters`."""
        runtime = self._runtime
        return tuple((runtime.host, served.ports.rpc) for served in runtime.masters.served)

    @property
    def tls_masters(self) -> str | None:
        """Like `masters`, over TLS; None without TLS."""
        ports = [served.ports.tls for served in self._runtime.masters.served]
        return ",".join(f"{self._runtime.host}:{port}" for port in ports) if any(ports) else None

    @property
    def master_web(self) -> str | None:
        """``host:port`` of the active master's administration (``/webapi.htm``), None
        without HTTP."""
        return self._runtime.web_address(self._runtime.masters.active.ports.web)

    @property
    def master_webs(self) -> list[str]:
        """Like `master_web`, for every master."""
        webs = (self._runtime.web_address(m.ports.web) for m in self._runtime.masters.served)
        return [web for web in webs if web is not None]

    @property
    def broker_ids(self) -> list[int]:
        """Ids of all brokers."""
        return list(self._runtime.served)

    # ------------------------------------------------------------------ controls

    def broker(self, broker_id: int) -> BrokerHandle:
        """Return the broker with this id (they count from 1). Raises `KeyError`."""
        return BrokerHandle(self._thread, self._runtime.served[broker_id])

    def add_topic(
        self, topic: TopicSpec | str, *, brokers: Iterable[int] | None = None
    ) -> TopicSpec:
        """Deploy a topic on all or some brokers; an existing one grows to the spec."""
        spec = _spec(topic)
        self._thread.do(lambda: self._runtime.add_topic(spec, brokers))
        return spec

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return self._thread.do(self._runtime.cluster.topic_names)

    def set_standby(self, *, standby: bool = True) -> None:
        """Make the master answer like a stand-by, or like the active one again."""
        self._thread.do(lambda: setattr(self._runtime.master, "standby", standby))

    def fail_over(self) -> Address:
        """Kill the active master and return its address. The next one takes over after some time
        (`Switches`) and knows no members. Raises `ConfigError` if none stands by."""
        host, port = self._thread.wait(self._runtime.masters.fail_over).rsplit(":", 1)
        return (host, int(port))

    def wait_switched(self) -> None:
        """Wait until the new active master knows topics and brokers."""
        self._thread.wait(self._runtime.masters.wait_switched_over)

    def restart_masters(self) -> None:
        """Start killed masters again; they stand by."""
        self._thread.wait(self._runtime.restart_masters)

    def silence_master(self, *method_ids: int) -> None:
        """Never answer these methods at the master; without ids, answer all again."""
        self._thread.do(lambda: setattr(self._runtime.master, "silent", set(method_ids)))

    def forget_members(self) -> None:
        """Make the master forget all producers and consumers, as a fail-over does."""
        self._thread.do(self._runtime.master.forget_members)

    def break_web(
        self,
        status: int = 200,
        body: str = "",
        *,
        location: str | None = None,
        times: int = 1,
        broker_id: int | None = None,
    ) -> None:
        """Answer the next HTTP requests to the master, or to one broker, with this instead.

        `location` redirects them, as a stand-by does with status 302. ``times=0`` turns it off.
        """
        answer = WebAnswer(status, body, {"location": location} if location else {})
        runtime = self._runtime
        server = runtime.master if broker_id is None else runtime.served[broker_id].broker
        self._thread.do(lambda: server.scripted_pages.order(answer, times))

    def lose_events(self, count: int = 1) -> None:
        """Lose the next balance events in transit; the master does not send them again."""
        self._thread.do(lambda: setattr(self._runtime.master.balance.faults, "lose_events", count))

    def repeat_events(self, count: int = 1) -> None:
        """Send the next balance events once more than they should be."""
        faults = self._runtime.master.balance.faults
        self._thread.do(lambda: setattr(faults, "repeat_events", count))

    def withhold_balance(self, *, withhold: bool = True) -> None:
        """Let balance rounds pass without effect, or with effect again."""
        self._thread.do(lambda: setattr(self._runtime.master.balancer, "withheld", withhold))

    def renew_broker_list(self) -> None:
        """Change the id of the list of broker addresses, so that clients fetch it again."""
        self._thread.do(self._runtime.cluster.renew_broker_list)

    def balance(self) -> int:
        """Run one balance round of the master now; return the id of its events."""
        return self._thread.do(self._runtime.master.balancer.round)

    def rotate_visit_token(self, generations: int = 1) -> None:
        """Make new visit tokens now; brokers recognise the last six."""
        self._thread.do(lambda: self._runtime.tokens.rotate(generations))

    def tick(self) -> None:
        """Run all timers now: flush what is due, expire leases and members, balance."""
        self._thread.do(self._runtime.tick)


def _spec(topic: TopicSpec | str) -> TopicSpec:
    return TopicSpec(topic) if isinstance(topic, str) else topic


def _loopback(host: str) -> str:
    """Return `host` as an IPv4 loopback address; TubeMQ's address texts cannot carry IPv6."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        loopback = ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"host {host!r} is not an IPv4 loopback address; the embedded server serves this "
            "machine only",
            subject="embedded server",
        )
    return host
