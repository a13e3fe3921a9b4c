"""The embedded name server: routes, brokers, topics, and key-value entries.

Knows brokers while they run, as a genuine one does: a broker that is killed leaves the routes at
once. Pure; requests in, answers out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rocketmq_client._wire.json_text import write_json
from rocketmq_client.embedded.replies import Refused, answer
from rocketmq_client.model import address_text

if TYPE_CHECKING:
    from rocketmq_client._wire.commands import Command
    from rocketmq_client.embedded.broker import EmbeddedBroker

__all__ = ["NameServer"]


class NameServer:
    """Name server that answers from the brokers' tables."""

    def __init__(self, cluster: str, brokers: Mapping[str, EmbeddedBroker]) -> None:
        self._cluster = cluster
        self._brokers = brokers
        self._entries: dict[str, dict[str, str]] = {}
        self._handlers: dict[int, Callable[[Command], Command]] = {
            100: self._put_entry,
            101: self._get_entry,
            102: self._delete_entry,
            105: self._route,
            106: self._cluster_info,
            206: self._topics,
            216: answer,
            219: self._list_entries,
        }

    def handle(self, request: Command) -> Command:
        """Return the answer to one request."""
        handler = self._handlers.get(request.code)
        if handler is None:
            return answer(request, 3, f" request type {request.code} not supported")
        try:
            return handler(request)
        except Refused as refusal:
            return answer(request, refusal.code, refusal.remark)

    def _route(self, request: Command) -> Command:
        topic = request.fields.get("topic", "")
        holders = [broker for broker in self._running() if topic in broker.topics]
        if not holders:
            raise Refused(
                17,
                f"No topic route info in name server for the topic: {topic}\n"
                "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
            )
        queues = [
            {
                "brokerName": broker.name,
                "readQueueNums": broker.topics[topic].queues,
                "writeQueueNums": broker.topics[topic].queues,
                "perm": broker.topics[topic].perm,
                "topicSysFlag": 0,
            }
            for broker in holders
        ]
        body = {
            "brokerDatas": [self._broker_data(broker) for broker in holders],
            "filterServerTable": {},
            "queueDatas": queues,
        }
        return answer(request, body=write_json(body))

    def _cluster_info(self, request: Command) -> Command:
        running = self._running()
        table = {broker.name: self._broker_data(broker) for broker in running}
        names = {self._cluster: [broker.name for broker in running]}
        # Integer keys are bare in a genuine answer; `json_text` reads both.
        body = write_json({"brokerAddrTable": table, "clusterAddrTable": names})
        return answer(request, body=body.replace(b'"0":', b"0:"))

    def _topics(self, request: Command) -> Command:
        names = {topic for broker in self._running() for topic in broker.topics}
        return answer(request, body=write_json({"topicList": sorted(names)}))

    def _put_entry(self, request: Command) -> Command:
        fields = request.fields
        entries = self._entries.setdefault(fields.get("namespace", ""), {})
        entries[fields.get("key", "")] = fields.get("value", "")
        return answer(request)

    def _get_entry(self, request: Command) -> Command:
        entries = self._entries.get(request.fields.get("namespace", ""), {})
        value = entries.get(request.fields.get("key", ""))
        if value is None:
            raise Refused(22, "No config item")
        return answer(request, fields={"value": value})

    def _delete_entry(self, request: Command) -> Command:
        entries = self._entries.get(request.fields.get("namespace", ""), {})
        entries.pop(request.fields.get("key", ""), None)
        return answer(request)

    def _list_entries(self, request: Command) -> Command:
        entries = self._entries.get(request.fields.get("namespace", ""))
        if entries is None:
            raise Refused(22, "No config item")
        return answer(request, body=write_json({"table": entries}))

    def _running(self) -> list[EmbeddedBroker]:
        return [broker for broker in self._brokers.values() if broker.running]

    def _broker_data(self, broker: EmbeddedBroker) -> dict[str, Any]:
        return {
            "brokerAddrs": {"0": address_text(broker.address)},
            "brokerName": broker.name,
            "cluster": self._cluster,
            "enableActingMaster": False,
        }
