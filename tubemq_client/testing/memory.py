"""A TubeMQ in memory: the embedded server's master and brokers without sockets, threads or time.

Requests are encoded to the bytes of a wire, through the real framing and envelopes, and are
answered by the same code that answers an embedded server's connections. Time is a `ManualClock`:
leases expire and logs are flushed when a test lets time pass (`elapse`), so what takes a minute on
a cluster takes none here and is reproducible. Faults are switched on by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tubemq_client import errors
from tubemq_client._wire import envelope, methods
from tubemq_client._wire.framing import FrameDecoder
from tubemq_client.embedded.broker import Broker
from tubemq_client.embedded.broker_rpc import BrokerRpc
from tubemq_client.embedded.cluster import Audit, BrokerRecord, Cluster, ManageStatus, TopicProps
from tubemq_client.embedded.master import Master
from tubemq_client.embedded.options import Switches, TopicSpec
from tubemq_client.embedded.rpc import Service, answer
from tubemq_client.model import Address, BrokerNode
from tubemq_client.testing.clock import ManualClock
from tubemq_client.testing.scripted import ScriptedDriver, TracedRequest

__all__ = ["MemoryTubeMQ"]

Tamper = Callable[[TracedRequest, Any], Any]
"""Function from a request and its reply to the reply to deliver, None for silence; may raise."""

_OWNER = "memory"
_SERIAL = 1
_TIMEOUT_MS = 10_000
_BY_NAME = {method.name: method for method in methods.BY_ID.values()}


class MemoryTubeMQ:
    """One master and `brokers` brokers with `topics` on each. Drive conversations with `driver()`.

    `tamper`, if set, gets every reply and may change, lose or replace it; the request has taken
    effect by then, as with a reply lost on a network. `unplugged` addresses refuse connections.
    """

    def __init__(
        self,
        brokers: int = 1,
        topics: Iterable[TopicSpec] = (),
        *,
        switches: Switches | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.switches = switches or Switches(flush_interval_ms=None, unflushed_records=None)
        self.master_address: Address = ("master", 8715)
        self.unplugged: set[Address] = set()
        self.tamper: Tamper | None = None
        self._cluster = Cluster(self.switches)
        self._master = Master(self._cluster, self.switches, self.clock)
        self._master.address = "{}:{}".format(*self.master_address)
        self._brokers: dict[int, Broker] = {}
        self._services: dict[Address, Service] = {self.master_address: self._master}
        for broker_id in range(1, brokers + 1):
            self._add_broker(broker_id)
        for topic in topics:
            self._deploy(topic)

    def __repr__(self) -> str:
        return f"<MemoryTubeMQ of {len(self._brokers)} brokers at {self.clock()}>"

    def driver(self, **options: int) -> ScriptedDriver:
        """Return a driver whose requests this cluster answers, on its clock."""
        return ScriptedDriver(self.reply, self.clock, **options)

    def node(self, broker_id: int = 1) -> BrokerNode:
        """Return the broker as clients know it."""
        return BrokerNode(broker_id, f"broker{broker_id}", 8123)

    def broker(self, broker_id: int = 1) -> Broker:
        """Return the embedded broker: its stores, leases and faults."""
        return self._brokers[broker_id]

    def stop_broker(self, broker_id: int) -> None:
        """Stop in order: all records become stable, leases end, connections are refused."""
        self._brokers[broker_id].stop()
        self._cluster.broker_stopped(broker_id)
        self.unplugged.add(self.node(broker_id).address)

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again."""
        self._brokers[broker_id].start()
        self._cluster.broker_started(broker_id)
        self.unplugged.discard(self.node(broker_id).address)

    def elapse(self, ms: int) -> None:
        """Let time pass, and run the servers' timers: expire leases and members, flush."""
        self.clock.advance(ms)
        self._master.sweep()
        for broker in self._brokers.values():
            broker.sweep_leases()
            broker.tick()

    def balance(self) -> int:
        """Run one balance round of the master; return the id of its events."""
        return self._master.balancer.round()

    def flush(self) -> None:
        """Make everything stable."""
        for broker in self._brokers.values():
            broker.storage.flush()

    def reply(self, traced: TracedRequest) -> Any:
        """Return the reply of the server at the address; None if it stays silent."""
        if traced.address in self.unplugged or traced.address not in self._services:
            host, port = traced.address
            raise errors.ConnectError(f"cannot connect to {host}:{port}: Connection refused")
        reply = self._exchange(traced)
        return reply if self.tamper is None else self.tamper(traced, reply)

    def _exchange(self, traced: TracedRequest) -> Any:
        """Send the request and its reply through the wire's own code."""
        method = _BY_NAME[traced.method]
        decoder = FrameDecoder()
        decoder.receive_data(envelope.encode_request(_SERIAL, method, traced.request, _TIMEOUT_MS))
        frame = decoder.next_frame()
        assert frame is not None, "one request is one frame"
        data = answer(frame, self._services[traced.address])
        if data is None:
            return None
        decoder.receive_data(data)
        frame = decoder.next_frame()
        assert frame is not None, "one reply is one frame"
        return envelope.decode_response(frame.payload, method, "{}:{}".format(*traced.address))

    def _add_broker(self, broker_id: int) -> None:
        node = self.node(broker_id)
        audit = Audit.new(_OWNER, self.clock())
        record = BrokerRecord(broker_id, node.host, node.port, 0, 0, audit, ManageStatus.ONLINE)
        self._cluster.put_broker(record)
        self._cluster.broker_started(broker_id)
        broker = Broker(broker_id, self._cluster, self.switches, self.clock)
        self._brokers[broker_id] = broker
        self._services[node.address] = BrokerRpc(broker)

    def _deploy(self, topic: TopicSpec) -> None:
        for broker_id in self._brokers:
            props = TopicProps(stores=topic.stores, partitions=topic.partitions)
            self._cluster.deploy(topic.name, broker_id, props, _OWNER, self.clock())
        if topic.max_message_mb is not None:
            self._cluster.topics[topic.name].max_message_mb = topic.max_message_mb
        self._cluster.changed()
