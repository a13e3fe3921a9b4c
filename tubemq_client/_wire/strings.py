"""String formats inside TubeMQ's protobuf fields, both ways.

There is no escaping anywhere, so formatters refuse names that contain a separator (`ValueError`)
and parsers refuse invalid text (`ProtocolViolation` with the offending text). Two formats look
alike and differ: topic *infos* (to producers) are ``broker:partitions:stores``, topic *metas* (to
consumers) are ``broker:stores:partitions:status``.

Pure functions on text; `_core` looks up brokers and interprets a status.

Source: `docs/protocol/wire.md#strings-inside-fields-strings`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from tubemq_client import errors
from tubemq_client.model import PARTITIONS_PER_STORE, BrokerNode, Partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tubemq_client.model import Address

__all__ = [
    "DEFAULT_BROKER_PORT",
    "DEFAULT_BROKER_TLS_PORT",
    "DEFAULT_MASTER_PORT",
    "DEFAULT_MASTER_TLS_PORT",
    "BrokerMeta",
    "BrokerRoute",
    "FailureInfo",
    "SubscribeInfo",
    "TopicMeta",
    "TopicRoutes",
    "broker_token",
    "format_broker",
    "format_failure_info",
    "format_masters",
    "format_part_sub_info",
    "format_partition_info",
    "format_required_partition",
    "format_subscribe_info",
    "format_topic_condition",
    "format_topic_info",
    "format_topic_meta",
    "is_filter_item",
    "is_ipv6",
    "is_name",
    "parse_broker",
    "parse_failure_info",
    "parse_masters",
    "parse_part_sub_info",
    "parse_partition_info",
    "parse_partition_key",
    "parse_required_partition",
    "parse_subscribe_info",
    "parse_topic_condition",
    "parse_topic_info",
    "parse_topic_meta",
]

DEFAULT_MASTER_PORT: Final = 8715
DEFAULT_MASTER_TLS_PORT: Final = 8716
DEFAULT_BROKER_PORT: Final = 8123
DEFAULT_BROKER_TLS_PORT: Final = 8124

_MAX_PORT: Final = 65_535
_MAX_INT32: Final = (1 << 31) - 1
_MAX_INT64: Final = (1 << 63) - 1
_SHOWN_CHARACTERS: Final = 200

_SEPARATOR = re.compile(r"[:#@,;=\s]")
_FILTER_SEPARATOR = re.compile(r"[#,]")

_BROKER = re.compile(r"(?P<id>[^:]*):(?P<host>\s*\[[^\]#]*\]\s*|[^:\[\]]*)(?::(?P<port>[^:]*))?")
"""Pattern of a broker. An IPv6 address is in brackets, which separate it from the port."""

_IPV6_DIGITS: Final = frozenset("0123456789abcdefABCDEF:.")
_LONGEST_IPV6: Final = 64
_BRACKETED = re.compile(r"\[([0-9a-fA-F:.%\w]+)\](:)?(\w*)")


# ---------------------------------------------------------------------------- helpers


def _refuse(what: str, text: str, reason: str) -> NoReturn:
    raise errors.ProtocolViolation(f"{what} {_shown(text)}: {reason}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def _number(what: str, text: str, part: str, most: int = _MAX_INT32) -> int:
    """Return the decimal `part` of `text`.

    Blanks around it are allowed, as upstream trims numbers.
    """
    digits = part.strip()
    # 19 digits hold every int64; the check keeps int() from chewing on megabytes of digits.
    if digits.isascii() and digits.isdecimal() and len(digits) <= 19 and int(digits) <= most:
        return int(digits)
    _refuse(what, text, f"{_shown(part)} is not a number from 0 to {most}")


def _cut(what: str, text: str, part: str, separator: str, names: str) -> tuple[str, str]:
    """Split `part` of `text` at its first separator; both halves must not be blank."""
    left, separator_found, right = part.partition(separator)
    if not (separator_found and left.strip() and right.strip()):
        _refuse(what, text, f"{_shown(part)} is not '{names}'")
    return left, right


def is_name(text: str) -> bool:
    """Return whether `text` is a valid name in these formats: not empty, without separators."""
    return bool(text) and not _SEPARATOR.search(text)


def is_filter_item(text: str) -> bool:
    """Return whether `text` is a valid item of a topic condition."""
    return bool(text.strip()) and not _FILTER_SEPARATOR.search(text)


def _name(what: str, text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{what} {text!r} is empty or contains one of ': # @ , ; =' or a blank")
    return text


def _items(text: str) -> Iterator[str]:
    """Return the non-blank items of a comma-separated list."""
    return (item for item in text.split(",") if item.strip())


# ---------------------------------------------------------------------------- brokers, masters


def is_ipv6(host: str) -> bool:
    """Return whether `host` is an IPv6 address, which needs brackets before a port."""
    address = host.partition("%")[0]
    return len(host) <= _LONGEST_IPV6 and address.count(":") > 1 and set(address) <= _IPV6_DIGITS


def parse_broker(text: str, default_port: int = DEFAULT_BROKER_PORT) -> BrokerNode:
    """Parse the broker in ``id:host:port``.

    A blank or missing third part means `default_port`: masters write a single space there for
    8123 (8124 when the request came over TLS).
    """
    return _broker("broker", text, text, default_port)


def _broker(what: str, text: str, part: str, default_port: int) -> BrokerNode:
    match = _BROKER.fullmatch(part)
    if match is None or not match["host"].strip():
        _refuse(what, text, f"{_shown(part)} is not 'id:host:port'")
    port_text = match["port"] or ""
    port = _number(what, text, port_text, _MAX_PORT) if port_text.strip() else default_port
    return BrokerNode(_number(what, text, match["id"]), match["host"].strip().strip("[]"), port)


def format_broker(broker: BrokerNode, default_port: int | None = None) -> str:
    """Return ``id:host:port``, or ``id:host: `` if the port is `default_port`, as masters do."""
    host = f"[{broker.host}]" if is_ipv6(broker.host) else _name("host", broker.host)
    port = " " if broker.port == default_port else str(broker.port)
    return f"{broker.broker_id}:{host}:{port}"


def parse_masters(text: str, default_port: int = DEFAULT_MASTER_PORT) -> tuple[Address, ...]:
    """Parse the addresses in ``host:port[,host:port…]``; keeps the order, drops duplicates.

    A missing port means `default_port`. This is a user's text: raises `ConfigError` (a
    `ValueError`) that lists every wrong entry.
    """
    addresses: dict[Address, None] = {}
    problems = []
    for item in map(str.strip, _items(text)):
        host, colon, port = item, "", ""
        if match := _BRACKETED.fullmatch(item):
            host, colon, port = match[1], match[2] or "", match[3] or ""
        elif not is_ipv6(item):
            host, colon, port = item.partition(":")
            if not host or _SEPARATOR.search(host):
                problems.append(f"{item!r} has no host name")
                continue
        if not colon:
            addresses[host, default_port] = None
        elif port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _MAX_PORT:
            addresses[host, int(port)] = None
        else:
            problems.append(f"{item!r} is not 'host:port'")
    if problems or not addresses:
        raise errors.ConfigError(problems or "no address given", subject="master list")
    return tuple(addresses)


def format_masters(addresses: Iterable[Address]) -> str:
    """Return ``host:port[,host:port…]``, with IPv6 addresses in brackets."""
    return ",".join(
        f"[{host}]:{port}" if is_ipv6(host) else f"{_name('master host', host)}:{port}"
        for host, port in addresses
    )


def broker_token(user: str, timestamp_ms: int, nonce: int, signature: str) -> str:
    """Return the signed token a broker checks: user, time (ms), nonce, signature, with blanks."""
    return f"{_name('user', user)} {timestamp_ms} {nonce} {signature}"


# ---------------------------------------------------------------------------- topic routes


class BrokerRoute(NamedTuple):
    """Partitions of a topic at one broker for producers: `partitions` in each of `stores`."""

    broker_id: int
    partitions: int
    stores: int


class TopicRoutes(NamedTuple):
    """Writable partitions of a topic. `max_message_bytes` None: the cluster's default applies."""

    topic: str
    routes: tuple[BrokerRoute, ...]
    max_message_bytes: int | None

    def partitions(self) -> Iterator[Partition]:
        """Yield every partition, by broker and store."""
        for route in self.routes:
            yield from _expand(self.topic, route.broker_id, route.stores, route.partitions)


class BrokerMeta(NamedTuple):
    """Partitions of a topic at one broker for consumers; `subscribable`: may be registered now."""

    broker_id: int
    stores: int
    partitions: int
    subscribable: bool


class TopicMeta(NamedTuple):
    """Readable partitions of a topic."""

    topic: str
    brokers: tuple[BrokerMeta, ...]

    def partitions(self) -> Iterator[tuple[Partition, bool]]:
        """Yield every partition, each with "subscribable now"."""
        for meta in self.brokers:
            for partition in _expand(self.topic, meta.broker_id, meta.stores, meta.partitions):
                yield partition, meta.subscribable


def _expand(topic: str, broker_id: int, stores: int, partitions: int) -> Iterator[Partition]:
    for store in range(stores):
        for index in range(partitions):
            yield Partition(broker_id, topic, store * PARTITIONS_PER_STORE + index)


def _numbers(what: str, text: str, item: str, names: str) -> list[int]:
    parts = item.split(":")
    if len(parts) != names.count(":") + 1:
        _refuse(what, text, f"{_shown(item)} is not '{names}'")
    return [_number(what, text, part) for part in parts]


def _check_shape(what: str, text: str, stores: int, partitions: int) -> None:
    if partitions > PARTITIONS_PER_STORE or stores > _MAX_INT32 // PARTITIONS_PER_STORE:
        _refuse(what, text, f"{stores} stores of {partitions} partitions cannot be numbered")


def parse_topic_info(text: str) -> TopicRoutes:
    """Parse the routes in ``topic#broker:partitions:stores[,…]#maxBytes``.

    The third segment may be empty or absent. Broker ids are not looked up; the broker list may be
    older than this text.
    """
    what = "topic info"
    topic, _, rest = text.partition("#")
    listed, _, limit = rest.partition("#")
    if not topic.strip() or "#" not in text:
        _refuse(what, text, "is not 'topic#routes#maxBytes'")
    routes = []
    for item in _items(listed):
        route = BrokerRoute(*_numbers(what, text, item, "broker:partitions:stores"))
        _check_shape(what, text, route.stores, route.partitions)
        routes.append(route)
    limit_bytes = _number(what, text, limit) if limit.strip() else None
    return TopicRoutes(topic, tuple(routes), limit_bytes)


def format_topic_info(routes: TopicRoutes) -> str:
    """Return ``topic#broker:partitions:stores[,…]#maxBytes``, without a limit if there is none."""
    listed = ",".join(f"{r.broker_id}:{r.partitions}:{r.stores}" for r in routes.routes)
    limit = "" if routes.max_message_bytes is None else f"#{routes.max_message_bytes}"
    return f"{_name('topic', routes.topic)}#{listed}{limit}"


def parse_topic_meta(text: str) -> TopicMeta:
    """Parse ``topic#broker:stores:partitions:status[,…]``; status 1 is subscribable."""
    what = "topic meta"
    topic, separator, listed = text.partition("#")
    if not (separator and topic.strip()):
        _refuse(what, text, "is not 'topic#broker:stores:partitions:status'")
    brokers = []
    for item in _items(listed):
        numbers = _numbers(what, text, item, "broker:stores:partitions:status")
        broker_id, stores, partitions, status = numbers
        _check_shape(what, text, stores, partitions)
        brokers.append(BrokerMeta(broker_id, stores, partitions, status == 1))
    return TopicMeta(topic, tuple(brokers))


def format_topic_meta(meta: TopicMeta) -> str:
    """Return ``topic#broker:stores:partitions:status[,…]``."""
    listed = ",".join(
        f"{b.broker_id}:{b.stores}:{b.partitions}:{int(b.subscribable)}" for b in meta.brokers
    )
    return f"{_name('topic', meta.topic)}#{listed}"


# ---------------------------------------------------------------------------- partitions


def parse_partition_key(text: str) -> Partition:
    """Parse the partition in ``broker:topic:partition``, which `str(partition)` returns."""
    return _key("partition key", text, text)


def _key(what: str, text: str, part: str) -> Partition:
    parts = part.split(":")
    if len(parts) != 3 or not parts[1].strip():
        _refuse(what, text, f"{_shown(part)} is not 'broker:topic:partition'")
    broker_id, partition_id = _number(what, text, parts[0]), _number(what, text, parts[2])
    return Partition(broker_id, parts[1], partition_id)


def format_partition_info(broker: BrokerNode, partition: Partition) -> str:
    """Return ``broker:host:port#topic:partition``; both must name one broker (`ValueError`)."""
    if broker.broker_id != partition.broker_id:
        raise ValueError(f"partition {partition} does not lie on broker {broker}")
    topic = _name("topic", partition.topic)
    return f"{format_broker(broker)}#{topic}:{partition.partition_id}"


def parse_partition_info(text: str) -> tuple[BrokerNode, Partition]:
    """Parse broker and partition in ``broker:host:port#topic:partition``."""
    return _place("partition info", text, text)


def _place(what: str, text: str, part: str) -> tuple[BrokerNode, Partition]:
    node, place = _cut(what, text, part, "#", "broker:host:port#topic:partition")
    broker = _broker(what, text, node, DEFAULT_BROKER_PORT)
    topic, number = _cut(what, text, place, ":", "topic:partition")
    return broker, Partition(broker.broker_id, topic, _number(what, text, number))


class FailureInfo(NamedTuple):
    """Partition that a broker heartbeat reports as lost, and the error code."""

    code: int
    broker: BrokerNode
    partition: Partition


def format_failure_info(failure: FailureInfo) -> str:
    """Return ``code:broker:host:port#topic:partition``."""
    return f"{failure.code}:{format_partition_info(failure.broker, failure.partition)}"


def parse_failure_info(text: str) -> FailureInfo:
    """Parse the loss in ``code:broker:host:port#topic:partition``."""
    what = "failure info"
    code, place = _cut(what, text, text, ":", "code:broker:host:port#topic:partition")
    return FailureInfo(_number(what, text, code), *_place(what, text, place))


class SubscribeInfo(NamedTuple):
    """Consumer of a group that holds, or must take, a partition."""

    consumer_id: str
    group: str
    broker: BrokerNode
    partition: Partition


def format_subscribe_info(info: SubscribeInfo) -> str:
    """Return ``consumer@group#broker:host:port#topic:partition``, always with the port."""
    consumer = _name("consumer id", info.consumer_id)
    group = _name("group", info.group)
    return f"{consumer}@{group}#{format_partition_info(info.broker, info.partition)}"


def parse_subscribe_info(text: str) -> SubscribeInfo:
    """Parse the assignment in ``consumer@group#broker:host:port#topic:partition``."""
    what = "subscribe info"
    owner, place = _cut(what, text, text, "#", "consumer@group#broker:host:port#topic:partition")
    consumer_id, group = _cut(what, text, owner, "@", "consumer@group")
    return SubscribeInfo(consumer_id, group, *_place(what, text, place))


def format_part_sub_info(partitions: Iterable[Partition]) -> list[str]:
    """Return ``topic#broker:partition[,…]``, one text per topic, topics and partitions sorted."""
    by_topic: dict[str, list[str]] = {}
    for partition in sorted(partitions, key=lambda p: (p.topic, p)):
        by_topic.setdefault(_name("topic", partition.topic), []).append(partition.key)
    return [f"{topic}#{','.join(keys)}" for topic, keys in by_topic.items()]


def parse_part_sub_info(text: str) -> tuple[Partition, ...]:
    """Parse the partitions in ``topic#broker:partition[,…]``, in their order."""
    what = "partition report"
    topic, listed = _cut(what, text, text, "#", "topic#broker:partition")
    partitions = []
    for item in _items(listed):
        broker_id, partition_id = _numbers(what, text, item, "broker:partition")
        partitions.append(Partition(broker_id, topic, partition_id))
    return tuple(partitions)


def format_required_partition(offsets: Mapping[Partition, int]) -> str:
    """Return ``broker:topic:partition=offset[,…]``: index offsets to start from; may be empty."""
    items = []
    for partition, offset in sorted(offsets.items()):
        if offset < 0:
            raise ValueError(f"offset {offset} of {partition} is negative")
        _name("topic", partition.topic)
        items.append(f"{partition}={offset}")
    return ",".join(items)


def parse_required_partition(text: str) -> dict[Partition, int]:
    """Parse the start offsets in ``broker:topic:partition=offset[,…]``."""
    what = "required partition"
    offsets = {}
    for item in _items(text):
        key, offset = _cut(what, text, item, "=", "broker:topic:partition=offset")
        offsets[_key(what, text, key)] = _number(what, text, offset, _MAX_INT64)
    return offsets


# ---------------------------------------------------------------------------- filters


def format_topic_condition(topic: str, items: Iterable[str]) -> str:
    """Return ``topic#item[,item…]``, with sorted, unique items.

    Raises `ValueError` for no items: a server fails on ``topic#``, so unfiltered topics are left
    out.
    """
    unique_items = sorted(set(items))
    if not unique_items:
        raise ValueError(f"topic {topic!r} without filter items must be left out")
    for item in unique_items:
        if not is_filter_item(item):
            raise ValueError(f"filter item {item!r} is blank or contains '#' or ','")
    return f"{_name('topic', topic)}#{','.join(unique_items)}"


def parse_topic_condition(text: str) -> tuple[str, frozenset[str]]:
    """Parse topic and filter items in ``topic#item[,item…]``."""
    what = "topic condition"
    topic, listed = _cut(what, text, text, "#", "topic#item")
    items = frozenset(_items(listed))
    if not items:
        _refuse(what, text, "has no filter item")
    return topic, items
