"""Results of administration: plain frozen values, parsed from servers' JSON elsewhere.

Offsets are index offsets (28 bytes an entry), see `tubemq_client.OffsetRange`; a lag in *entries*
counts records of all partitions of a store. Times are aware datetimes or milliseconds, by their
names. No JSON, no I/O.
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
    """Properties of a topic on a broker. None: unchanged (changes), or the broker's (new topics).

    `stores` × `partitions` partitions; neither may shrink. `flush_records`, `flush_interval_ms` and
    `flush_bytes` control when a store fsyncs, `cache_mb`, `cache_records_k` (thousands) and
    `cache_flush_ms` when its memory goes to a file. `retention` is TubeMQ's policy text, for
    example ``delete,72h``.
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
        """Return request parameters without those that are None. Raises `errors.ConfigError`."""
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
        parameters = {wire: getattr(self, name) for name, wire in PROPERTY_FIELDS.items()}
        return {wire: value for wire, value in parameters.items() if value is not None}


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
    match = _POLICY.fullmatch(text)
    return match is not None and 0 < int(match[1]) * _UNIT_S[match[2]] <= _LONGEST_RETENTION_S


@dataclass(frozen=True, slots=True)
class TopicDeployment:
    """A topic on one broker. `status`: ``normal``, ``deleted`` (records are kept), ``removing``.

    `publishing` and `subscribing`: whether the master sends producers and consumers there now; a
    new topic takes a genuine master up to a minute. None: unknown.
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
        """Return every configured partition, in order of broker and id."""
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
        """Address of the broker's HTTP administration."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.web_port}"


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """Run status of a broker; None: unknown, because it does not run.

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
        """True if it runs and no change is under way."""
        return self.run_status == "running" and self.sub_status == "idle"


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group. `members` are online now (0 for one that only left positions behind);
    `brokers` keep positions of it, for a new group after up to 5 s."""

    name: str
    topics: tuple[str, ...]
    members: int
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer online and the partitions it was assigned, or reports (client balance)."""

    client_id: str
    host: str
    tls: bool
    partitions: tuple[Partition, ...]
    source_count: int | None = None
    node_id: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group online. `balance` is ``unbound`` (the server balances), ``bound`` or
    ``client-rebalance``; `filters` are stream ids by topic, missing if everything is read."""

    name: str
    balance: str
    topics: tuple[str, ...]
    filters: Mapping[str, tuple[str, ...]]
    members: tuple[GroupMember, ...]
    rebalance: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumeControl:
    """Permission of a group for a topic, and the stream ids it must filter by.

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
    (partitions are assigned only with enough members), query priority, and flow rules."""

    group: str
    check_resources: bool = False
    clients_per_broker: int = 0
    query_priority: int | None = None
    flow_control: bool = False
    flow_rules: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicControl:
    """Topic-wide settings: whether groups need authorisation, and the largest message in MiB."""

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
    """One master of the cluster. `status` is ``Master`` or ``Slave``, or the node's own text."""

    name: str
    host: str
    port: int
    status: str


@dataclass(frozen=True, slots=True)
class MasterGroup:
    """The masters of a cluster. `status` is for example ``Running-ReadWrite``."""

    name: str
    status: str
    nodes: tuple[MasterNode, ...]


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Position of a group in a partition. `position` None: the broker has none.

    `in_flight` is the size in offsets of the batch that is delivered and not confirmed.
    `min_offset` and `max_offset` are the store's, the latter the end in memory.
    """

    partition: Partition
    position: int | None
    in_flight: int
    min_offset: int
    max_offset: int

    @property
    def lag_entries(self) -> int:
        """Index entries not confirmed: an upper bound on records; all of them without a
        position."""
        start = self.min_offset if self.position is None else max(self.position, self.min_offset)
        return max(0, self.max_offset - start) // INDEX_ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Lag of a group on a topic; partitions in order."""

    group: str
    topic: str
    partitions: tuple[PartitionPosition, ...]

    @property
    def entries(self) -> int:
        """Index entries behind, each store counted once, by its partition that is furthest
        behind."""
        stores: dict[tuple[int, int], int] = {}
        for row in self.partitions:
            key = row.partition.store_key
            stores[key] = max(stores.get(key, 0), row.lag_entries)
        return sum(stores.values())


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """Change of one position; None: no position. `applied` False is a dry run."""

    group: str
    partition: Partition
    before: int | None
    after: int | None
    applied: bool

    @property
    def changes(self) -> bool:
        """True if the new position differs from the old one."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class PositionSample:
    """Record of a broker about a group and one partition at `time_ms` (its clock)."""

    time_ms: int
    group: str
    partition: Partition
    position: int
    in_flight: int
    min_offset: int
    max_offset: int
    online: bool
