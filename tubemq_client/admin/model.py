"""What administration answers with: plain frozen values, parsed from servers' JSON elsewhere.

Offsets are index offsets (28 bytes an entry), see `tubemq_client.OffsetRange`; a lag in *entries*
counts records of all partitions of a store. Times are aware datetimes or milliseconds, as the name
says. No JSON, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tubemq_client import errors
from tubemq_client.model import INDEX_ENTRY_BYTES, PARTITIONS_PER_STORE, Partition

__all__ = [
    "BrokerInfo",
    "BrokerStatus",
    "ClusterSettings",
    "ConsumeControl",
    "GroupDetail",
    "GroupInfo",
    "GroupLag",
    "GroupMember",
    "MasterGroup",
    "MasterNode",
    "OffsetChange",
    "PartitionPosition",
    "PositionSample",
    "ResourceControl",
    "TopicControl",
    "TopicDeployment",
    "TopicInfo",
    "TopicProperties",
]

_POLICY = re.compile(r"delete,(\d{1,9})([smh]?)", re.ASCII)
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "": 3_600}
_LONGEST_RETENTION_S = 168 * 3_600


@dataclass(frozen=True, slots=True)
class TopicProperties:
    """Properties of a topic on a broker. None: leave as it is (changes), the broker's own (new).

    `stores` × `partitions` partitions; neither may shrink. `flush_records`, `flush_interval_ms` and
    `flush_bytes` say when a store fsyncs, `cache_mb`, `cache_records_k` (thousands) and
    `cache_flush_ms` when its memory goes to a file. `retention` is TubeMQ's policy text, for
    instance ``delete,72h``.
    """

    stores: int | None = None
    partitions: int | None = None
    flush_records: int | None = None
    flush_interval_ms: int | None = None
    flush_bytes: int | None = None
    cache_mb: int | None = None
    cache_records_k: int | None = None
    cache_flush_ms: int | None = None
    accept_publish: bool | None = None
    accept_subscribe: bool | None = None
    retention: str | None = None

    def fields(self) -> dict[str, object]:
        """As request parameters; what is None is left out. Raises `errors.ConfigError`."""
        problems = [
            f"{name}: {value} is not {_span(least, most)}"
            for name, (least, most) in _LIMITS.items()
            if (value := getattr(self, name)) is not None and not least <= value <= most
        ]
        if self.retention is not None and not _is_policy(self.retention):
            problems.append(
                f"retention: {self.retention!r} is not delete,<number>[s|m|h] of at most 168 h"
            )
        if problems:
            raise errors.ConfigError(problems, subject="topic properties")
        given = {wire: getattr(self, name) for name, wire in PROPERTY_FIELDS.items()}
        return {wire: value for wire, value in given.items() if value is not None}


PROPERTY_FIELDS = {
    "stores": "numTopicStores",
    "partitions": "numPartitions",
    "flush_records": "unflushThreshold",
    "flush_interval_ms": "unflushInterval",
    "flush_bytes": "unflushDataHold",
    "cache_mb": "memCacheMsgSizeInMB",
    "cache_records_k": "memCacheMsgCntInK",
    "cache_flush_ms": "memCacheFlushIntvl",
    "accept_publish": "acceptPublish",
    "accept_subscribe": "acceptSubscribe",
    "retention": "deletePolicy",
}

_MOST = 2**31 - 1
_LIMITS = {
    "stores": (1, _MOST),
    "partitions": (1, PARTITIONS_PER_STORE),
    "flush_records": (0, _MOST),
    "flush_interval_ms": (1, _MOST),
    "flush_bytes": (0, _MOST),
    "cache_mb": (2, 2_048),
    "cache_records_k": (1, _MOST),
    "cache_flush_ms": (4_000, _MOST),
}


def _span(least: int, most: int) -> str:
    return f"at least {least}" if most == _MOST else f"from {least} to {most}"


def _is_policy(text: str) -> bool:
    found = _POLICY.fullmatch(text)
    return found is not None and 0 < int(found[1]) * _UNIT_S[found[2]] <= _LONGEST_RETENTION_S


@dataclass(frozen=True, slots=True)
class TopicDeployment:
    """A topic on one broker. `status`: ``normal``, ``deleted`` (records are kept), ``removing``.

    `publishing` and `subscribing` tell what producers are sent to now; a new topic takes a genuine
    master up to a minute. None: the master does not say.
    """

    broker_id: int
    host: str
    port: int
    status: str
    properties: TopicProperties
    publishing: bool | None
    subscribing: bool | None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic. `partitions` counts configured ones, `running_partitions` those producers get."""

    name: str
    max_message_mb: int
    partitions: int
    running_partitions: int
    accepts_publish: bool
    accepts_subscribe: bool
    deployments: tuple[TopicDeployment, ...]

    def partition_list(self) -> list[Partition]:
        """Every configured partition, in order of broker and id."""
        return [
            Partition(d.broker_id, self.name, store * PARTITIONS_PER_STORE + number)
            for d in self.deployments
            for store in range(d.properties.stores or 0)
            for number in range(d.properties.partitions or 0)
        ]


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as configured. `manage_status`: draft, online, only-read, only-write, offline."""

    broker_id: int
    host: str
    port: int
    tls_port: int
    web_port: int
    manage_status: str
    region_id: int
    group_id: int
    properties: TopicProperties

    @property
    def web_url(self) -> str:
        """Address of its HTTP administration."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.web_port}"


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker as it runs; None: not known, because it does not run.

    `run_status` is ``running``, ``unRegister`` or ``-``; `sub_status` ``idle``, or
    ``processing_event`` while a change spreads.
    """

    broker_id: int
    host: str
    port: int
    manage_status: str
    run_status: str
    sub_status: str
    changed: bool | None
    loaded: bool | None
    online: bool | None
    accepts_publish: bool | None
    accepts_subscribe: bool | None
    tls: bool | None
    abnormal: bool
    forbidden: bool

    @property
    def settled(self) -> bool:
        """Whether it runs and no change is under way."""
        return self.run_status == "running" and self.sub_status == "idle"


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group. `members` are on line now (0 for one that only left positions behind);
    `brokers` keep positions of it, which a new group has after up to 5 s."""

    name: str
    topics: tuple[str, ...]
    members: int
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer on line and the partitions it was given, or reports (client balance)."""

    client_id: str
    host: str
    tls: bool
    partitions: tuple[Partition, ...]
    source_count: int | None = None
    node_id: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group on line. `balance` is ``unbound`` (the server balances), ``bound`` or
    ``client-rebalance``; `filters` are stream ids by topic, missing where everything is read."""

    name: str
    balance: str
    topics: tuple[str, ...]
    filters: Mapping[str, tuple[str, ...]]
    members: tuple[GroupMember, ...]
    rebalance: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumeControl:
    """Whether a group may read a topic and which stream ids it must filter by.

    `enabled` False is the black list; `reason` may hold letters, digits and ``_``. On a topic
    without authorisation such a group registers and never gets a partition; on one with it the
    master refuses with 450.
    """

    group: str
    topic: str
    enabled: bool
    reason: str = ""
    filter_required: bool = False
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceControl:
    """Settings of a group: `check_resources` and `clients_per_broker` for the server's balance
    (partitions are given out only with enough members), query priority, and flow rules."""

    group: str
    check_resources: bool = False
    clients_per_broker: int = 0
    query_priority: int | None = None
    flow_control: bool = False
    flow_rules: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicControl:
    """Topic-wide settings: whether groups need authorisation, and the largest message, MiB."""

    topic: str
    authorisation: bool
    max_message_mb: int | None


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Defaults of the whole cluster; `flow_rules` apply to every group when `flow_control`."""

    max_message_mb: int | None
    query_priority: int | None
    flow_control: bool
    flow_rules: tuple[Mapping[str, Any], ...]
    properties: TopicProperties


@dataclass(frozen=True, slots=True)
class MasterNode:
    """One master of the cluster. `status` is ``Master`` or ``Slave``, or what it says itself."""

    name: str
    host: str
    port: int
    status: str


@dataclass(frozen=True, slots=True)
class MasterGroup:
    """The masters. `status` is for instance ``Running-ReadWrite``."""

    name: str
    status: str
    nodes: tuple[MasterNode, ...]


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Where a group is in a partition. `position` None: the broker keeps none.

    `in_flight` is the size in offsets of the batch handed out and not confirmed. `min_offset` and
    `max_offset` are the store's, the end being the one in memory.
    """

    partition: Partition
    position: int | None
    in_flight: int
    min_offset: int
    max_offset: int

    @property
    def lag_entries(self) -> int:
        """Index entries not confirmed: an upper bound on records; all of them without position."""
        start = self.min_offset if self.position is None else max(self.position, self.min_offset)
        return max(0, self.max_offset - start) // INDEX_ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind on a topic; partitions in order."""

    group: str
    topic: str
    partitions: tuple[PartitionPosition, ...]

    @property
    def entries(self) -> int:
        """Index entries behind, each store counted once, by its partition that is furthest back."""
        stores: dict[tuple[int, int], int] = {}
        for row in self.partitions:
            key = row.partition.store_key
            stores[key] = max(stores.get(key, 0), row.lag_entries)
        return sum(stores.values())


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """One position and what it becomes; None: no position. `applied` False is a dry run."""

    group: str
    partition: Partition
    before: int | None
    after: int | None
    applied: bool

    @property
    def changes(self) -> bool:
        """Whether the position will be, or was, another one."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class PositionSample:
    """What a broker wrote down of a group and one partition at `time_ms` (its clock)."""

    time_ms: int
    group: str
    partition: Partition
    position: int
    in_flight: int
    min_offset: int
    max_offset: int
    online: bool
