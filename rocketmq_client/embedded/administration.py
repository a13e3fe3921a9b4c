"""Administration of an embedded broker: groups, progress, statistics, members, resets.

Answers like a genuine 5.5.0: an operator's reset changes the group's offset, and the next pull of
each queue sends the reader there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.json_text import write_json
from rocketmq_client.embedded.groups import Groups
from rocketmq_client.embedded.replies import Refused, answer, int_field
from rocketmq_client.embedded.storage import Storage

__all__ = ["Administration"]

_NEW_GROUP = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


class Administration:
    """Requests of operators at one broker. `groups` and `topics` give its present state; a topic
    is shown by its number of queues."""

    def __init__(
        self,
        broker: str,
        storage: Storage,
        groups: Callable[[], Groups],
        topics: Callable[[], Mapping[str, int]],
    ) -> None:
        self._broker = broker
        self._storage = storage
        self._groups = groups
        self._topics = topics

    def handlers(self) -> dict[int, Callable[[Command, object], Command]]:
        """Return the requests that are answered here."""
        return {
            200: self._change_group,
            201: self._list_groups,
            202: self._topic_stats,
            203: self._clients,
            207: self._delete_group,
            208: self._progress,
            222: self._reset,
        }

    def _change_group(self, request: Command, _channel: object) -> Command:
        try:
            body: Any = json.loads(request.body)
            name = str(body["groupName"])
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(1, f"the settings of a group cannot be read: {error}") from error
        groups = self._groups()
        groups.known.add(name)
        groups.settings[name] = dict(body)
        return answer(request)

    def _list_groups(self, request: Command, _channel: object) -> Command:
        groups = self._groups()
        table = {
            name: {**_NEW_GROUP, **groups.settings.get(name, {}), "groupName": name}
            for name in groups.known
            if name
        }
        return answer(request, body=write_json({"subscriptionGroupTable": table}))

    def _delete_group(self, request: Command, _channel: object) -> Command:
        fields = request.fields
        offsets = fields.get("cleanOffset") == "true"
        self._groups().delete(fields.get("groupName", ""), offsets=offsets)
        return answer(request)

    def _topic_stats(self, request: Command, _channel: object) -> Command:
        topic = request.fields.get("topic", "")
        table = {}
        for number in range(self._queues(topic)):
            index = self._storage.index(topic, number)
            last = index.entries[-1].store_ms if index.entries else 0
            table[self._queue(topic, number)] = {
                "lastUpdateTimestamp": last,
                "maxOffset": index.end,
                "minOffset": index.reported_first,
            }
        return answer(request, body=_by_queue(table))

    def _progress(self, request: Command, _channel: object) -> Command:
        group, groups = request.fields.get("consumerGroup", ""), self._groups()
        wanted = request.fields.get("topic") or None
        names = {topic for known, topic, _ in groups.offsets if known == group}
        table = {}
        for topic in sorted(names if wanted is None else {wanted}):
            for number in range(self._topics().get(topic, 0)):
                index = self._storage.index(topic, number)
                at = groups.offsets.get((group, topic, number), 0)
                entry = index.get(at - 1)
                table[self._queue(topic, number)] = {
                    "brokerOffset": index.end,
                    "consumerOffset": at,
                    "lastTimestamp": entry.store_ms if entry else 0,
                }
        return answer(request, body=_by_queue(table, consumeTps=0.0))

    def _clients(self, request: Command, _channel: object) -> Command:
        group, groups = request.fields.get("consumerGroup", ""), self._groups()
        clients = groups.clients(group)
        if not clients:
            raise Refused(206, f"the consumer group[{group}] not online")
        said = groups.subscriptions[group]
        body = {
            "connectionSet": [
                {
                    "clientAddr": client.address,
                    "clientId": client.client_id,
                    "language": client.language,
                    "version": client.version,
                }
                for client in clients
            ],
            "consumeFromWhere": said.get("consumeFromWhere"),
            "consumeType": said.get("consumeType"),
            "messageModel": said.get("messageModel"),
            "subscriptionTable": {
                item["topic"]: item for item in said.get("subscriptionDataSet") or ()
            },
        }
        return answer(request, body=write_json(body))

    def _reset(self, request: Command, _channel: object) -> Command:
        fields = request.fields
        topic, group = fields.get("topic", ""), fields.get("group", "")
        instant, one = int_field(request, "timestamp"), int_field(request, "queueId", -1)
        groups, table = self._groups(), {}
        for number in range(self._queues(topic)) if one < 0 else (one,):
            index = self._storage.index(topic, number)
            found = (at for at, entry in index.from_offset(0) if entry.store_ms >= instant)
            searched = index.end if instant < 0 else next(found, index.end)
            offset = int_field(request, "offset", searched)
            groups.offsets[group, topic, number] = groups.resets[group, topic, number] = offset
            table[self._queue(topic, number)] = offset
        return answer(request, body=_by_queue(table))

    def _queues(self, topic: str) -> int:
        if topic not in self._topics():
            raise Refused(17, f"topic[{topic}] not exist, apply first please!")
        return self._topics()[topic]

    def _queue(self, topic: str, number: int) -> bytes:
        return write_json({"brokerName": self._broker, "queueId": number, "topic": topic})


def _by_queue(table: Mapping[bytes, Any], **more: Any) -> bytes:
    """Return a body whose keys are objects, as genuine brokers write it."""
    items = b",".join(queue + b":" + write_json(item) for queue, item in table.items())
    rest = write_json(more)[1:-1]
    return b'{"offsetTable":{' + items + b"}" + (b"," + rest if rest else b"") + b"}"
