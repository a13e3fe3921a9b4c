"""An embedded broker: topics, sends, ends, times, groups; `pulling` has the pulls.

Answers the requests of this client like a genuine 5.5.0 with default options. Belongs to the
server's loop. A kill loses the state in the process's memory but not the log, because a genuine
broker's page cache outlives its process; committed offsets count as written to its disk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rocketmq_client._wire.batches import decode_batch
from rocketmq_client._wire.bodies import DEAD_PREFIX, RETRY_PREFIX
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.json_text import write_json
from rocketmq_client._wire.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    REPLY_TO_CLIENT,
    RETRY_TOPIC,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
    find_property,
)
from rocketmq_client._wire.records import offset_id, parse_record
from rocketmq_client._wire.signature import is_signed_by
from rocketmq_client.embedded.administration import Administration
from rocketmq_client.embedded.delayed_records import DelayedRecords, held_back
from rocketmq_client.embedded.groups import Client, Groups
from rocketmq_client.embedded.pulling import Channel, Pulls
from rocketmq_client.embedded.replies import Refused, answer, int_field
from rocketmq_client.embedded.storage import NewRecord, QueueIndex, Storage
from rocketmq_client.embedded.transactions import HALVES, Halves
from rocketmq_client.errors import ProtocolViolation
from rocketmq_client.model import Address, Credentials, address_text

__all__ = ["EmbeddedBroker", "Topic"]

_MAX_BODY = 4 * 1024 * 1024
_MOST_PROPERTIES = 32_767
_LONGEST_TOPIC = 127
_MOST_RETRIES = 16
_COMMITS = 1
"""Bit in the flags of a pull that commits the group's offset."""
_PASSED_ON = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "j": "reconsumeTimes",
    "k": "unitMode",
}
"""Fields of a reply that its receiver gets, by their letters in the short header."""


@dataclass(slots=True)
class Topic:
    """Settings of a topic. `perm` bits: 4 read, 2 write."""

    queues: int
    perm: int = 6
    attributes: dict[str, str] = field(default_factory=dict)


class EmbeddedBroker:
    """Broker, running or stopped."""

    def __init__(self, name: str, credentials: Credentials | None) -> None:
        self.name = name
        self.address: Address = ("127.0.0.1", 0)
        self.running = False
        self.topics: dict[str, Topic] = {}
        self.storage = Storage(self.address)
        self.groups = Groups()
        self.pulls = Pulls(self.storage)
        self._later = DelayedRecords(self.storage, self.pulls)
        self._halves = Halves(
            self.storage,
            self.pulls,
            lambda: self.groups,
            lambda: int(self.options.get("transactionCheckInterval", "60000")) / 1000,
        )
        self.busy = False
        self.version = "V5_5_0"
        self.dispatch_behind_bytes = 0
        self.options: dict[str, str] = {"brokerName": name, "flushDiskType": "ASYNC_FLUSH"}
        self._credentials = credentials
        self._booted_ms = 0
        self._handlers: dict[int, Callable[[Command, Channel], Command]] = {
            10: self._send,
            12: self._find,
            14: self._query_offset,
            15: self._update_offset,
            17: self._create_topic,
            25: self._change_options,
            26: self._show_options,
            28: self._runtime_info,
            29: self._search,
            30: self._max_offset,
            31: self._min_offset,
            34: self._heartbeat,
            35: self._unregister,
            36: self._take_back,
            37: lambda request, _: self._halves.finish(request),
            38: self._members,
            41: self._lock,
            42: self._unlock,
            215: self._delete_topic,
            310: self._send,
            320: self._send,
            324: self._reply,
            325: self._reply,
            351: self._topic_config,
            **Administration(
                name,
                self.storage,
                lambda: self.groups,
                lambda: {topic: item.queues for topic, item in self.topics.items()},
            ).handlers(),
        }

    def begin(self, address: Address) -> None:
        """Start: the broker listens at `address`."""
        self.address = self.storage.host = address
        self.running = True
        self._booted_ms = _now_ms()
        self._later.begin(self._booted_ms)
        self._halves.begin()

    def end(self) -> None:
        """Stop, as when its process dies."""
        self.running = False
        self._later.end()
        self._halves.end()
        self.groups = Groups(self.groups.known, self.groups.offsets, self.groups.settings)

    async def handle(self, request: Command, channel: Channel) -> Command:
        """Return the answer to one request; a pull may be held."""
        try:
            self._check(request)
            if request.code == 11:
                return await self._pull(request, channel)
            handler = self._handlers.get(request.code)
            if handler is None:
                return answer(request, 3, f" request type {request.code} not supported")
            return handler(request, channel)
        except Refused as refusal:
            return answer(request, refusal.code, refusal.remark)

    async def _pull(self, request: Command, channel: Channel) -> Command:
        topic, queue_id = self._queue(request, right=4)
        group = request.fields.get("consumerGroup", "")
        if not self.groups.enabled(group):
            raise Refused(16, f"subscription group no permission, {group}")
        self.groups.known.add(group)
        key = group, topic, queue_id
        if int_field(request, "sysFlag") & _COMMITS:
            self.groups.offsets[key] = int_field(request, "commitOffset")
        return await self.pulls.pull(request, channel, self.groups.resets.pop(key, None))

    def _check(self, request: Command) -> None:
        if self.busy:
            raise Refused(2, "[REJECTREQUEST]system busy, start flow control for a while")
        credentials = self._credentials
        if credentials is not None and not is_signed_by(request.fields, request.body, credentials):
            raise Refused(16, "check signature failed.")

    # -- topics ---------------------------------------------------------------------------------

    def _create_topic(self, request: Command, _channel: Channel) -> Command:
        name = request.fields.get("topic", "")
        if not name or len(name) > _LONGEST_TOPIC:
            raise Refused(29, "The specified topic is longer than topic max length 127.")
        pairs = (item.partition("=") for item in request.fields.get("attributes", "").split(","))
        attributes = {key.lstrip("+"): value for key, _, value in pairs if key}
        self.topics[name] = Topic(
            int_field(request, "readQueueNums"), int_field(request, "perm"), attributes
        )
        return answer(request)

    def _delete_topic(self, request: Command, _channel: Channel) -> Command:
        name = request.fields.get("topic", "")
        self.topics.pop(name, None)
        for key in [key for key in self.storage.queues if key[0] == name]:
            del self.storage.queues[key]
        return answer(request)

    def _topic_config(self, request: Command, _channel: Channel) -> Command:
        name = request.fields.get("topic", "")
        topic = self._topic(name)
        body = {
            "attributes": topic.attributes,
            "order": False,
            "perm": topic.perm,
            "readQueueNums": topic.queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": topic.queues,
        }
        return answer(request, body=write_json(body))

    def _topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise Refused(17, f"topic[{name}] not exist, apply first please!")
        return topic

    def _queue(self, request: Command, *, right: int) -> tuple[str, int]:
        """Return the queue of a read or a send. Refuses with the errors of a genuine broker."""
        send = right == 2
        names = ("b", "e") if send and request.code != 10 else ("topic", "queueId")
        name = request.fields.get(names[0], "")
        topic = self._topic(name)
        if not topic.perm & right:
            raise Refused(
                16, f"the topic[{name}] {'sending' if send else 'pulling'} message is forbidden"
            )
        queue_id = int_field(request, names[1])
        if send and queue_id < 0:
            queue_id = self.storage.position % topic.queues
        if not 0 <= queue_id < topic.queues:
            raise Refused(
                29,
                f"queueId[{queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.queues}] consumer:[/127.0.0.1]",
            )
        return name, queue_id

    # -- sends ----------------------------------------------------------------------------------

    def _send(self, request: Command, channel: Channel) -> Command:
        name, queue_id = self._queue(request, right=2)
        records = self._records(request, channel)
        now, first, ids = _now_ms(), -1, []
        held = None if request.code == 320 else held_back(records[0].properties, now)
        for record in records:
            if held is None:
                offset, at = self.storage.append(name, queue_id, record)
            else:
                offset, at = self._later.hold(name, queue_id, record, held, now)
                if held.topic == HALVES:
                    self._halves.hold(name, queue_id, offset, at, record)
            first = offset if first < 0 else first
            ids.append(offset_id(self.address, at))
        self.pulls.wake(name, queue_id)
        fields = {
            "queueId": str(queue_id),
            "msgId": ",".join(ids),
            "queueOffset": str(first),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        unique = find_property(records[0].properties, UNIQ_KEY.encode())
        if unique is not None:
            fields["transactionId"] = unique.decode("utf-8", "replace")
        return answer(request, fields=fields)

    def _reply(self, request: Command, channel: Channel) -> Command:
        """Pass a reply on to the client that asked; it is not stored."""
        long = request.code == 324
        text = request.fields.get("properties" if long else "i", "")
        properties = decode_properties(text.encode())
        client = properties.get(REPLY_TO_CLIENT, "")
        push = self.groups.client(client)
        if push is None:
            raise Refused(1, f"push reply message to {client}fail.")
        names = dict(_PASSED_ON) if not long else {name: name for name in _PASSED_ON.values()}
        fields = {name: request.fields.get(letter, "") for letter, name in names.items()}
        fields |= {
            "bornHost": address_text(channel.peer),
            "storeHost": address_text(self.address),
            "storeTimestamp": str(_now_ms()),
            "properties": text + encode_properties({"PUSH_REPLY_TIME": str(_now_ms())}),
        }
        push(Command(326, self.groups.number(), fields, request.body, language="JAVA"))
        return answer(request, fields={"msgId": "", "queueId": "0", "queueOffset": "0"})

    def _records(self, request: Command, channel: Channel) -> list[NewRecord]:
        long = request.code == 10
        if not request.body:
            raise Refused(1, "java.lang.NullPointerException")
        if len(request.body) > _MAX_BODY:
            raise Refused(13, f"message size {len(request.body)} is larger than {_MAX_BODY}")
        born = int_field(request, "bornTimestamp" if long else "g", 0)
        sys_flag = int_field(request, "sysFlag" if long else "f", 0)
        flag = int_field(request, "flag" if long else "h", 0)
        properties = request.fields.get("properties" if long else "i", "").encode()
        if request.code != 320:
            if len(properties) + len(_added()) > _MOST_PROPERTIES:
                raise Refused(13, "the message is illegal, maybe properties length not matched.")
            return [
                NewRecord(request.body, properties + _added(), flag, sys_flag, born, channel.peer)
            ]
        try:
            elements = decode_batch(request.body)
        except ProtocolViolation as error:
            raise Refused(1, str(error)) from error
        return [
            NewRecord(item.body, item.properties, item.flag, sys_flag, born, channel.peer)
            for item in elements
        ]

    # -- ends and times -------------------------------------------------------------------------

    def _index(self, request: Command) -> QueueIndex:
        key = request.fields.get("topic", ""), int_field(request, "queueId")
        return self.storage.queues.get(key) or QueueIndex()

    def _max_offset(self, request: Command, _channel: Channel) -> Command:
        return answer(request, fields={"offset": str(self._index(request).end)})

    def _min_offset(self, request: Command, _channel: Channel) -> Command:
        return answer(request, fields={"offset": str(self._index(request).reported_first)})

    def _search(self, request: Command, _channel: Channel) -> Command:
        index, instant = self._index(request), int_field(request, "timestamp")
        if request.fields.get("boundaryType") == "UPPER":
            before = [o for o, item in index.from_offset(0) if item.store_ms <= instant]
            offset = before[-1] if before else index.first
        else:
            after = (o for o, item in index.from_offset(0) if item.store_ms >= instant)
            offset = next(after, index.end)
        return answer(request, fields={"offset": str(offset)})

    def _runtime_info(self, request: Command, _channel: Channel) -> Command:
        seconds = (_now_ms() - self._booted_ms) // 1000
        table = {
            "commitLogMinOffset": str(self.storage.log_start),
            "commitLogMaxOffset": str(self.storage.position),
            "remainHowManyDataToFlush": _human(self.storage.position - self.storage.flushed),
            "bootTimestamp": str(self._booted_ms),
            "runtime": f"[ 0 days, {seconds // 3600} hours, {seconds // 60 % 60} minutes, "
            f"{seconds % 60} seconds ]",
            "dispatchBehindBytes": str(self.dispatch_behind_bytes),
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self.storage.earliest_ms),
            "brokerVersionDesc": self.version,
        }
        return answer(request, body=write_json({"table": table}))

    def _find(self, request: Command, _channel: Channel) -> Command:
        """Find the records of a topic by a unique id; not by other keys."""
        topic, name = request.fields.get("topic", ""), request.fields.get("key", "").encode()
        queues = (index for (name_, _), index in self.storage.queues.items() if name_ == topic)
        found = [
            entry.data
            for index in queues
            for _, entry in index.from_offset(0)
            if find_property(parse_record(entry.data, 0)[0].properties, UNIQ_KEY.encode()) == name
        ]
        if not found:
            raise Refused(22, "can not find message, maybe time range not correct")
        return answer(request, body=b"".join(found))

    # -- groups ---------------------------------------------------------------------------------

    def _query_offset(self, request: Command, _channel: Channel) -> Command:
        fields = request.fields
        key = (
            fields.get("consumerGroup", ""),
            fields.get("topic", ""),
            int_field(request, "queueId"),
        )
        offset = self.groups.offsets.get(key)
        if offset is None:
            if fields.get("setZeroIfNotFound") == "false" or self._index(request).first > 0:
                raise Refused(22, "Not found, do not set to zero, maybe this group boot first")
            offset = 0
        return answer(request, fields={"offset": str(offset)})

    def _update_offset(self, request: Command, _channel: Channel) -> Command:
        fields = request.fields
        group = fields.get("consumerGroup", "")
        if group not in self.groups.known:
            raise Refused(26, f"Group {group} not exist!")
        self._topic(fields.get("topic", ""))
        key = (
            group,
            fields.get("topic", ""),
            int_field(request, "queueId"),
        )
        self.groups.offsets[key] = int_field(request, "commitOffset")
        return answer(request)

    def _heartbeat(self, request: Command, channel: Channel) -> Command:
        try:
            body: Any = json.loads(request.body)
        except ValueError as error:
            raise Refused(1, f"com.alibaba.fastjson2.JSONException: {error}") from error
        address = address_text(channel.peer)
        name = str(body.get("clientID", ""))
        client = Client(name, address, request.language, request.version)
        for group in self.groups.heard(channel, channel.push, client, body):
            self.topics.setdefault(RETRY_PREFIX + group, Topic(1))
        return answer(request, fields={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})

    def _take_back(self, request: Command, _channel: Channel) -> Command:
        """Store a record again, for a group that could not process it: later for the group itself,
        or among its dead letters."""
        group, level = request.fields.get("group", ""), int_field(request, "delayLevel")
        if group not in self.groups.known:
            raise Refused(26, f"subscription group not exist, {group}")
        entry = self.storage.at(int_field(request, "offset"))
        if entry is None:
            raise Refused(1, f"look message by offset failed, {request.fields.get('offset')}")
        record, _ = parse_record(entry.data, 0)
        times, now = record.reconsume_times, _now_ms()
        dead = times >= int_field(request, "maxReconsumeTimes", _MOST_RETRIES) or level < 0
        properties = decode_properties(record.properties)
        for name in (DELAY, "REAL_TOPIC", "REAL_QID"):
            properties.pop(name, None)
        properties.setdefault(RETRY_TOPIC, record.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, offset_id(self.address, entry.physical_offset))
        if not dead:
            properties[DELAY] = str(level or 3 + times)
        topic = (DEAD_PREFIX if dead else RETRY_PREFIX) + group
        self.topics.setdefault(topic, Topic(1))
        again = NewRecord(
            record.body,
            encode_properties(properties).encode(),
            record.flag,
            record.sys_flag,
            record.born_ms,
            record.born_host,
            times + 1,
        )
        held = held_back(again.properties, now)
        if held is None:
            self.storage.append(topic, 0, again)
        else:
            self._later.hold(topic, 0, again, held, now)
        self.pulls.wake(topic, 0)
        return answer(request)

    def _unregister(self, request: Command, channel: Channel) -> Command:
        self.groups.leave(channel, request.fields.get("consumerGroup"))
        return answer(request)

    def _members(self, request: Command, _channel: Channel) -> Command:
        group = request.fields.get("consumerGroup", "")
        members = self.groups.members(group)
        if not members:
            raise Refused(1, f"no consumer for this group, {group}")
        return answer(request, body=write_json({"consumerIdList": members}))

    def _lock(self, request: Command, _channel: Channel) -> Command:
        """Lock queues for a member; the answer has those that are its own now."""
        group, client, queues = _to_lock(request)
        now = _now_ms()
        own = [queue for queue in queues if self.groups.lock(group, client, queue, now)]
        items = [
            {"topic": topic, "brokerName": self.name, "queueId": number} for topic, number in own
        ]
        return answer(request, body=write_json({"lockOKMQSet": items}))

    def _unlock(self, request: Command, _channel: Channel) -> Command:
        group, client, queues = _to_lock(request)
        for queue in queues:
            self.groups.unlock(group, client, queue)
        return answer(request)

    # -- options --------------------------------------------------------------------------------

    def _show_options(self, request: Command, _channel: Channel) -> Command:
        lines = "".join(f"{name}={value}\n" for name, value in self.options.items())
        return answer(request, body=lines.encode())

    def _change_options(self, request: Command, _channel: Channel) -> Command:
        for line in request.body.decode("utf-8", "replace").splitlines():
            name, _, value = line.partition("=")
            self.options[name.strip()] = value.strip()
        self.pulls.obey(self.options)
        return answer(request)


def _added() -> bytes:
    return b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"


def _human(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    value, units = count / 1024, iter(("KiB", "MiB", "GiB"))
    unit = next(units)
    while value >= 1024 and unit != "GiB":
        value, unit = value / 1024, next(units)
    return f"{value:.1f} {unit}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _to_lock(request: Command) -> tuple[str, str, list[tuple[str, int]]]:
    """Return group, client and queues in the body of a request to lock or unlock."""
    try:
        body: Any = json.loads(request.body)
        queues = [(str(item["topic"]), int(item["queueId"])) for item in body["mqSet"]]
        return str(body["consumerGroup"]), str(body["clientId"]), queues
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(1, f"the body of a lock cannot be read: {error}") from error
