"""JSON bodies of requests and answers as plain values: routes, clusters, runtime info, heartbeats.

Upstream's `protocol/route`, `protocol/body` and `protocol/heartbeat` classes; only the members that
this client uses. Their meaning for a read or a send is decided in higher layers.

Source: `docs/rocketmq-protocol/wire.md#bodies`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketmq_client import errors
from rocketmq_client._wire.json_text import object_in, read_json, write_json
from rocketmq_client._wire.properties import tag_hash
from rocketmq_client.model import Address, Queue

__all__ = [
    "DEAD_PREFIX",
    "RETRY_PREFIX",
    "BrokerData",
    "ClusterInfo",
    "QueueData",
    "RuntimeInfo",
    "Subscription",
    "TopicRoute",
    "check_body",
    "heartbeat_body",
    "parse_address",
    "parse_cluster_info",
    "parse_members",
    "parse_route",
    "parse_runtime_info",
    "parse_topic_list",
    "split_tags",
]

RETRY_PREFIX: Final = "%RETRY%"
"""Beginning of the name of a group's topic with the records that its members sent back."""
DEAD_PREFIX: Final = "%DLQ%"
"""Beginning of the name of a group's topic with the records that were sent back too often."""
READABLE: Final = 4
WRITABLE: Final = 2
MASTER_ID: Final = 0


@dataclass(frozen=True, slots=True)
class BrokerData:
    """Broker name and its addresses by broker id; 0 is the master."""

    name: str
    cluster: str
    addresses: Mapping[int, Address]

    @property
    def master(self) -> Address | None:
        """Address for reads and writes, None if unknown."""
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True, slots=True)
class QueueData:
    """Number of a topic's queues at a broker. `perm` bits: 4 read, 2 write."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Queues and addresses of a topic, as the name server knows them now. A broker that died leaves
    the route at once. `static` topics have queues that move between brokers (5.x)."""

    topic: str
    brokers: Mapping[str, BrokerData]
    queue_data: tuple[QueueData, ...]
    static: bool = False

    def readable(self) -> list[Queue]:
        """Return queues that can be read from a master now, ordered."""
        return self._queues(READABLE, "read_queues")

    def writable(self) -> list[Queue]:
        """Return queues that can be written on a master now, ordered."""
        return self._queues(WRITABLE, "write_queues")

    def address(self, broker: str) -> Address | None:
        """Return the master of a broker name, or None while there is none."""
        data = self.brokers.get(broker)
        return data.master if data else None

    def masters(self) -> dict[str, Address]:
        """Return all masters by name."""
        return {name: data.master for name, data in self.brokers.items() if data.master is not None}

    def _queues(self, right: int, count: str) -> list[Queue]:
        return sorted(
            Queue(data.broker, self.topic, number)
            for data in self.queue_data
            if data.perm & right and self.address(data.broker) is not None
            for number in range(getattr(data, count))
        )


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """All brokers by name, and the clusters with the names of their brokers."""

    brokers: Mapping[str, BrokerData]
    clusters: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """Runtime info of a broker; `table` has all of it, as text.

    `flushed_bytes` is a lower bound of the commit log's fsynced position: the log's end minus the
    most that can still be unflushed. `clock_ms` is a lower bound of the broker's clock (whole
    seconds). `dispatch_behind_bytes` is the part of the log that the queues' indexes lack.
    `earliest_ms` is the store time of the first record in the log, which all queues share; None if
    the broker does not report it. `log_start` is the start of the log: more than 0 once retention
    has removed a part.
    """

    table: Mapping[str, str] = field(repr=False)
    flushed_bytes: int
    clock_ms: int
    dispatch_behind_bytes: int
    append_lock_ms: int
    earliest_ms: int | None = None
    log_start: int = 0

    @property
    def log_end(self) -> int:
        """End of the log, bytes."""
        return int(self.table["commitLogMaxOffset"])

    @property
    def indexed_bytes(self) -> int:
        """Lower bound of the log position up to which the queues' indexes are complete."""
        return self.log_end - self.dispatch_behind_bytes

    @property
    def has_stale_minima(self) -> bool:
        """True for brokers that may report a minimum whose record retention has removed: 4.x
        brokers keep the minimum of an empty queue until it has a record again."""
        return self.log_start > 0 and self._version.startswith("V4")

    @property
    def has_exact_minima(self) -> bool:
        """True for brokers that never report such a minimum while they run: 5.x."""
        return self._version.startswith("V") and not self._version.startswith("V4")

    @property
    def _version(self) -> str:
        return self.table.get("brokerVersionDesc", "")


class Subscription(NamedTuple):
    """Subscription of a group to a topic. `kind` is "TAG" or "SQL92"."""

    topic: str
    expression: str = "*"
    kind: str = "TAG"


def parse_address(text: str) -> Address:
    """Parse ``host:port``. Raises `errors.ProtocolViolation`."""
    host, _, port = text.rpartition(":")
    if not (host and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 65536):
        raise errors.ProtocolViolation(f"{text[:80]!r} is not an address")
    return host.strip("[]"), int(port)


def parse_route(topic: str, body: bytes) -> TopicRoute:
    """Parse the body of a route. Raises `errors.ProtocolViolation`."""
    members = read_json(body, f"the route of topic {topic!r}")
    brokers = [_broker(item) for item in _items(members.get("brokerDatas"))]
    queues = tuple(
        QueueData(
            _word(item, "brokerName"),
            _count(item, "readQueueNums"),
            _count(item, "writeQueueNums"),
            _count(item, "perm"),
        )
        for item in _items(members.get("queueDatas"))
    )
    static = bool(members.get("topicQueueMappingByBroker"))
    return TopicRoute(topic, {data.name: data for data in brokers}, queues, static)


def parse_cluster_info(body: bytes) -> ClusterInfo:
    """Parse the body of a cluster's brokers. Raises `errors.ProtocolViolation`."""
    info = read_json(body, "the cluster info")
    brokers = [_broker(item) for item in object_in(info.get("brokerAddrTable")).values()]
    clusters = {
        name: tuple(sorted(map(str, members)))
        for name, members in object_in(info.get("clusterAddrTable")).items()
        if isinstance(members, list)
    }
    return ClusterInfo({data.name: data for data in brokers}, clusters)


def parse_topic_list(body: bytes) -> list[str]:
    """Return the names of all topics that a name server knows, ordered."""
    return sorted(map(str, _list(read_json(body, "the topic list").get("topicList"))))


def parse_members(body: bytes) -> list[str]:
    """Return the client ids of a group's members, ordered."""
    return sorted(map(str, _list(read_json(body, "the consumer list").get("consumerIdList"))))


def lock_body(group: str, client_id: str, queues: Iterable[Queue]) -> bytes:
    """Return the body of a request to lock or unlock queues of one broker."""
    items = [
        {"topic": queue.topic, "brokerName": queue.broker, "queueId": queue.queue_id}
        for queue in queues
    ]
    return write_json({"consumerGroup": group, "clientId": client_id, "mqSet": items})


def parse_locked(body: bytes) -> set[Queue]:
    """Return the queues that a broker has locked for the member."""
    items = _list(read_json(body, "locked queues").get("lockOKMQSet"))
    try:
        return {
            Queue(str(item["brokerName"]), str(item["topic"]), int(item["queueId"]))
            for item in items
        }
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise errors.ProtocolViolation(f"the answer to a lock has no queue: {error}") from error


def parse_runtime_info(body: bytes) -> RuntimeInfo:
    """Parse a broker's runtime info. Raises `errors.ProtocolViolation` if positions are missing."""
    values = object_in(read_json(body, "the runtime info").get("table"))
    table = {str(key): str(value) for key, value in values.items()}
    log_end = _number(table, "commitLogMaxOffset")
    unflushed = _upper_bytes(table.get("remainHowManyDataToFlush", ""))
    booted = _number(table, "bootTimestamp")
    earliest = _number(table, "earliestMessageTimeStamp", 0)
    return RuntimeInfo(
        table,
        max(0, log_end - unflushed),
        booted + _runtime_ms(table.get("runtime", "")),
        _number(table, "dispatchBehindBytes"),
        _number(table, "pageCacheLockTimeMills", 0),
        earliest if earliest > 0 else None,
        _number(table, "commitLogMinOffset", 0),
    )


_UNITS: Final = {"": 0, "Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5}
_AMOUNT: Final = re.compile(r"\s*(\d{1,18})(?:[.,](\d))?\s*([KMGTP]i)?B\s*")
_DURATION: Final = re.compile(r"(\d{1,18})\s+(day|hour|minute|second)")
_DURATION_MS: Final = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1_000}


def _upper_bytes(text: str) -> int:
    """Return the most bytes that print as ``12.3 KiB`` (one decimal, in the server's locale)."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise errors.ProtocolViolation(f"{text[:40]!r} is not a number of bytes")
    whole, tenth, unit = int(match[1]), int(match[2] or 0), match[3]
    if not unit:
        return whole
    scale: int = 1024 ** _UNITS[unit]
    return -(-(whole * 20 + tenth * 2 + 1) * scale // 20)


def _runtime_ms(text: str) -> int:
    """Parse ``[ 0 days, 1 hours, 2 minutes, 3 seconds ]``."""
    return sum(int(count) * _DURATION_MS[unit] for count, unit in _DURATION.findall(text))


def heartbeat_body(
    client_id: str,
    producer_groups: Iterable[str],
    consumers: Mapping[str, Iterable[Subscription]],
    version: int,
    *,
    kind: str = "CONSUME_ACTIVELY",
    consume_from: str = "CONSUME_FROM_LAST_OFFSET",
    mode: str = "CLUSTERING",
) -> bytes:
    """Return the body of a heartbeat. `version` is that of the subscriptions (a time in ms: brokers
    keep the newest). `kind` is CONSUME_PASSIVELY for members whose queues are rebalanced, `mode`
    BROADCASTING for those that each read every queue."""
    role = {
        "consumeType": kind,
        "messageModel": mode,
        "consumeFromWhere": consume_from,
        "unitMode": False,
    }
    return write_json(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": name} for name in producer_groups],
            "consumerDataSet": [
                {
                    "groupName": name,
                    **role,
                    "subscriptionDataSet": [_subscription_data(item, version) for item in topics],
                }
                for name, topics in consumers.items()
            ],
        }
    )


def check_body(client_id: str, group: str, subscription: Subscription) -> bytes:
    """Return the body of a request to check an expression."""
    return write_json(
        {
            "clientId": client_id,
            "group": group,
            "subscriptionData": _subscription_data(subscription, 0),
        }
    )


def _subscription_data(item: Subscription, version: int) -> dict[str, Any]:
    tags = [] if item.kind != "TAG" or item.expression == "*" else split_tags(item.expression)
    return {
        "topic": item.topic,
        "subString": item.expression,
        "expressionType": item.kind,
        "subVersion": version,
        "tagsSet": tags,
        "codeSet": [tag_hash(tag) for tag in tags],
        "classFilterMode": False,
    }


def split_tags(expression: str) -> list[str]:
    """Return the tags of ``a || b``."""
    return [tag.strip() for tag in expression.split("||") if tag.strip()]


def _broker(item: Mapping[str, Any]) -> BrokerData:
    addresses = object_in(item.get("brokerAddrs"))
    try:
        by_id = {int(key): parse_address(str(value)) for key, value in addresses.items()}
    except ValueError as error:
        raise errors.ProtocolViolation(f"a broker id is not a number: {error}") from error
    return BrokerData(_word(item, "brokerName"), str(item.get("cluster", "")), by_id)


def _items(value: Any) -> list[Mapping[str, Any]]:
    items = _list(value)
    if not all(isinstance(item, dict) for item in items):
        raise errors.ProtocolViolation("a list contains an item that is not an object")
    return items


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | None):
        raise errors.ProtocolViolation(f"{str(value)[:40]!r} is not a list")
    return value or []


def _word(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value:
        raise errors.ProtocolViolation(f"{name} is {str(value)[:40]!r}")
    return value


def _count(item: Mapping[str, Any], name: str) -> int:
    value = item.get(name)
    if type(value) is not int or not 0 <= value <= 0xFFFF:
        raise errors.ProtocolViolation(f"{name} is {str(value)[:40]!r}")
    return value


def _number(table: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = table.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise errors.ProtocolViolation(f"{name} is {str(text)[:40]!r}") from None
