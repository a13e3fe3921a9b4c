"""Consumers of server-balanced groups, by hand: register, heartbeat, acknowledge, leave."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.client.embedded.rpc import Wire
from tubemq_client import _pb
from tubemq_client._wire import methods, strings
from tubemq_client.model import BrokerNode, Partition


class Player:
    """One member. It holds the partitions of its events, and acknowledges on request."""

    def __init__(self, master: Wire, name: str = "c1", group: str = "g", **fields: Any) -> None:
        self.master = master
        self.name = name
        self.group = group
        self.fields = fields
        self.held: set[Partition] = set()
        self.event: Any = None
        self.known: dict[str, int] = {}
        self.nodes: dict[int, BrokerNode] = {}

    def register(self, *topics: str, **fields: Any) -> Any:
        request = {
            "clientId": self.name,
            "groupName": self.group,
            "hostName": "127.0.0.1",
            "topicList": ("shared",),
            "requireBound": False,
        }
        named = {"topicList": topics} if topics else {}
        message = _pb.RegisterRequestC2M(**request | self.fields | named | fields)
        return self.master.call(methods.REGISTER_CONSUMER, message)

    def beat(self, **fields: Any) -> Any:
        """Send a heartbeat with `fields`; an event in the reply is kept in `event`."""
        request = {"clientId": self.name, "groupName": self.group, "reportSubscribeInfo": False}
        message = _pb.HeartRequestC2M(**request | fields)
        reply = self.master.call(methods.HEARTBEAT_CONSUMER, message)
        if reply.HasField("event"):
            self.event = reply.event
        if reply.HasField("defFlowCheckId"):
            ids = ("defFlowCheckId", "groupFlowCheckId")
            self.known = {name: getattr(reply, name) for name in ids}
        return reply

    def beat_known(self) -> Any:
        """Send a heartbeat with the ids of the flow rules that it last received."""
        return self.beat(**self.known)

    def finish(self) -> Any:
        """Apply the last event, and acknowledge it with a report."""
        event, self.event = self.event, None
        for info in map(strings.parse_subscribe_info, event.subscribeInfo):
            self.nodes[info.broker.broker_id] = info.broker
            (self.held.add if event.opType in (1, 10) else self.held.discard)(info.partition)
        done = _pb.EventProto(rebalanceId=event.rebalanceId, opType=event.opType, status=2)
        return self.beat(event=done, reportSubscribeInfo=True, subscribeInfo=self.report())

    def step(self) -> None:
        """One heartbeat; what it brings is done at once."""
        self.beat()
        while self.event is not None:
            self.finish()

    def report(self, partitions: Iterable[Partition] | None = None) -> list[str]:
        held = self.held if partitions is None else partitions
        return [
            strings.format_subscribe_info(
                strings.SubscribeInfo(self.name, self.group, self.nodes[p.broker_id], p)
            )
            for p in sorted(held)
        ]

    def close(self) -> Any:
        self.held.clear()
        message = _pb.CloseRequestC2M(clientId=self.name, groupName=self.group)
        return self.master.call(methods.CLOSE_CONSUMER, message)
