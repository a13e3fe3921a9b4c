"""Plain values of the whole client: partitions, ranges, records, receipts, settings.

No I/O, no pydantic, no protobuf: a Spark executor imports this. `OffsetRange` defines what an
*offset* means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, tzinfo
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from tubemq_client import errors

__all__ = [
    "INDEX_ENTRY_BYTES",
    "LARGEST_OFFSET",
    "PARTITIONS_PER_STORE",
    "Address",
    "Anchor",
    "BrokerNode",
    "ClientSettings",
    "ConnectionStats",
    "ConsumerSettings",
    "ConsumerStats",
    "CorruptRecords",
    "Credentials",
    "Delivery",
    "GapPolicy",
    "IdleReason",
    "Message",
    "OffsetRange",
    "Partition",
    "PartitionEnds",
    "ProducerSettings",
    "ProducerStats",
    "ReachableEnds",
    "ReaderSettings",
    "SendReceipt",
    "SendSummary",
    "TlsSettings",
    "address_text",
    "message_minute",
]

INDEX_ENTRY_BYTES = 28
"""Bytes of one entry of a store's index log; every offset is a multiple of it."""

LARGEST_OFFSET = (1 << 63) - 1
"""Upper bound of offsets in requests (int64)."""

PARTITIONS_PER_STORE = 10_000
"""Number by which store and partition make an id: `store_id * PARTITIONS_PER_STORE + n`."""

Address = tuple[str, int]
"""Host and port."""


def address_text(address: Address) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_KEY: Final = re.compile(r"(0|[1-9][0-9]*):(0|[1-9][0-9]*)")
_MINUTE_DIGITS: Final = len("202611211200")


def message_minute(text: str | None, zone: tzinfo = UTC) -> datetime | None:
    """Return the instant of a ``$msgTime$`` in `zone`, or None for an invalid text.

    Only twelve ASCII digits ``yyyyMMddHHmm`` that name a minute of the calendar are a time. All
    readers of message times use this function, so that columns and windows agree.
    """
    if text is None or len(text) != _MINUTE_DIGITS or not (text.isascii() and text.isdecimal()):
        return None
    return _minute(text, zone)


@lru_cache(maxsize=4096)
def _minute(text: str, zone: tzinfo) -> datetime | None:
    """Return the instant of twelve digits.

    Only such texts are cached: producers choose the length of others.
    """
    year, month, day = int(text[:4]), int(text[4:6]), int(text[6:8])
    try:
        return datetime(year, month, day, int(text[8:10]), int(text[10:]), tzinfo=zone)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, order=True)
class BrokerNode:
    """Broker as the master announces it. `host` is text, `port` its RPC port."""

    broker_id: int
    host: str
    port: int

    @property
    def address(self) -> Address:
        """Host and RPC port."""
        return (self.host, self.port)

    def __str__(self) -> str:
        return f"{self.broker_id}:{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """Partition of a topic on one broker.

    Partition ids start again on every broker, so documents, options and columns carry `key`
    (``"<broker_id>:<partition_id>"``); the topic is separate.
    """

    broker_id: int
    topic: str
    partition_id: int

    @property
    def key(self) -> str:
        """Key ``"<broker id>:<partition id>"``, unique within a topic."""
        return f"{self.broker_id}:{self.partition_id}"

    @property
    def store_id(self) -> int:
        """Store of the broker that holds this partition."""
        return self.partition_id // PARTITIONS_PER_STORE

    @property
    def store_key(self) -> tuple[int, int]:
        """Broker and store: partitions with equal store keys share one log and its offsets."""
        return (self.broker_id, self.store_id)

    @classmethod
    def from_key(cls, topic: str, key: str) -> Partition:
        """Parse ``"1:10002"`` as a partition of `topic`; raise `ValueError` for anything else."""
        match = _KEY.fullmatch(key)
        if match is None:
            raise ValueError(f"partition key {key!r} is not '<broker id>:<partition id>'")
        return cls(int(match[1]), topic, int(match[2]))

    @staticmethod
    def is_key(key: object) -> bool:
        """Return whether `key` is a valid partition key.

        Each partition has one spelling: no sign, no leading zero, ASCII digits.
        """
        return isinstance(key, str) and _KEY.fullmatch(key) is not None

    def __str__(self) -> str:
        """Return TubeMQ's own partition key, ``brokerId:topic:partitionId``."""
        return f"{self.broker_id}:{self.topic}:{self.partition_id}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition.

    An offset is a byte position in the index log of the partition's *store*: 28 bytes per record of
    *any* partition of that store. So an offset is a multiple of 28, all partitions of a store share
    one offset space, and `(end - start) / 28` is an upper bound on the records of this partition.
    `start` is inclusive, `end` exclusive; either may lie on another partition's record.
    """

    partition: Partition
    start: int
    end: int

    def __post_init__(self) -> None:
        problems = []
        for name, value in (("start", self.start), ("end", self.end)):
            if value < 0 or value % INDEX_ENTRY_BYTES:
                problems.append(f"{name} {value} is not a multiple of 28 that is >= 0")
            elif value > LARGEST_OFFSET:
                problems.append(f"{name} {value} is more than {LARGEST_OFFSET}")
        if self.start > self.end:
            problems.append(f"start {self.start} is beyond end {self.end}")
        if problems:
            raise ValueError(f"range of {self.partition}: " + "; ".join(problems))

    @property
    def entries(self) -> int:
        """Number of index entries in the range: an upper bound on records."""
        return (self.end - self.start) // INDEX_ENTRY_BYTES

    def __str__(self) -> str:
        return f"{self.partition}[{self.start},{self.end})"


class Anchor(NamedTuple):
    """Record that identifies a log: reading its partition from `offset` must return it.

    `message_id` (64 bits, unique in a store, never reused, unordered) and `checksum` (CRC-32) are
    the broker's. A log without this record at its offset was replaced, at least in part. `offset`
    may be some records before it, where the reader could not determine it exactly.
    """

    offset: int
    message_id: int
    checksum: int


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """Offsets `[min_offset, max_offset)` that a broker has of a partition's store.

    `stable`: `max_offset` is the fsynced end, which survives a broker crash; otherwise it is the
    end in memory.
    """

    partition: Partition
    min_offset: int
    max_offset: int
    stable: bool


class ReachableEnds(dict[Partition, PartitionEnds]):
    """Ends of the partitions whose brokers answered; `away` has all others with the reasons.

    Never empty: if no broker answers, an error is raised instead.
    """

    def __init__(
        self, ends: Mapping[Partition, PartitionEnds], away: Mapping[Partition, str]
    ) -> None:
        super().__init__(ends)
        self.away = dict(away)

    def __repr__(self) -> str:
        return f"ReachableEnds({dict(self)!r}, away={self.away!r})"


class Message(NamedTuple):
    """Decoded record. `offset` is its index offset if that is known exactly, else None."""

    body: bytes
    attributes: dict[str, str]
    stream_id: str | None
    msg_time: str | None
    message_id: int
    offset: int | None


class Delivery(NamedTuple):
    """Delivery of a partition to one member, which `confirm` and `reject` accept for its batch.

    It can be pickled, and `parse` reads its text. Other members cannot use it.
    """

    partition: Partition
    token: int

    def __str__(self) -> str:
        """Return ``<broker id>:<topic>:<partition id>#<token>``."""
        return f"{self.partition}#{self.token}"

    @classmethod
    def parse(cls, text: str) -> Delivery:
        """Parse the text of `str`; raise `ValueError` for anything else."""
        match = re.fullmatch(r"(\d+):([^:#]+):(\d+)#(\d+)", text, re.ASCII)
        if match is None:
            raise ValueError(f"{text!r} is no delivery: <broker id>:<topic>:<partition id>#<token>")
        return cls(Partition(int(match[1]), match[2], int(match[3])), int(match[4]))


class GapPolicy(StrEnum):
    """Policy for offsets of a range that retention removed: raise `errors.DataLoss`, or skip them
    and record the gap."""

    FAIL = "fail"
    SKIP = "skip"


class CorruptRecords(StrEnum):
    """Policy for a record that fails its checksum, or does not decode: raise, drop and count it, or
    drop and count it and pass it to a quarantine."""

    FAIL = "fail"
    DROP = "drop"
    QUARANTINE = "quarantine"


class IdleReason(Enum):
    """Reason why a member of a group has nothing to fetch now."""

    NO_PARTITION = "no partition is held"
    MOVING = "partitions are being taken or given back"
    UNCONFIRMED = "every partition has a batch that is not confirmed"
    WAITING = "nothing to read, or a rule asks to wait"
    NO_ANSWER = "brokers do not answer"
    FROZEN = "every partition is frozen"
    PAUSED = "the consumer is paused"


class SendReceipt(NamedTuple):
    """Broker's receipt of a stored record.

    `offset` is its exact index offset, `time_ms` the broker's receive time (ms since the epoch). A
    receipt is given before the record is on disk.
    """

    partition: Partition
    offset: int
    message_id: int
    time_ms: int


class SendSummary(NamedTuple):
    """Totals of `send_all`.

    Records and body bytes stored, the first and last receipt in the order of records, and the
    failures after which it continued.
    """

    stored: int
    bytes: int
    first: SendReceipt | None
    last: SendReceipt | None
    failures: tuple[Exception, ...]


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """Statistics of a producer since it was created.

    `sent_again` counts repeated requests, `errors_by_code` every refusal and failure (0: no answer
    or no connection), `latencies_ms` receipts by the upper end of their bucket in ms, from taking
    the record to its receipt. `brokers_left_out` is the number of brokers avoided now.
    `connections` are those of the client or its session, by address.
    """

    in_flight: int
    stored: int
    failed: int
    sent_again: int
    bytes_stored: int
    errors_by_code: dict[int, int]
    latencies_ms: dict[float, int]
    brokers_left_out: int
    connections: dict[str, ConnectionStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    """Statistics of the connections to one server, replaced ones included.

    `requests` and `replies` count frames of the client's protocol; bytes in both directions are
    counted without TLS. `received_at_ms` is the time of the last received data: ms since the epoch,
    None for never. `in_flight` requests of the current connection, if it `is_open`, have no reply
    yet.
    """

    is_open: bool
    in_flight: int
    opened: int
    requests: int
    replies: int
    bytes_sent: int
    bytes_received: int
    received_at_ms: int | None


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """Statistics of a group member since it was created.

    `fetches` are requests for records: of those `batches` returned `records`, `empty` nothing,
    `limited` were deferred by a flow rule, `refused` otherwise, `unanswered` got no answer or could
    not be sent. `left_alone` has the brokers that are avoided now, because they do not answer, with
    the ms until they are asked again (0: when their outstanding answer arrives).
    `connections` are those of the client or its session, by address.
    """

    fetches: int
    batches: int
    records: int
    empty: int
    limited: int
    refused: int
    unanswered: int
    left_alone: dict[BrokerNode, int]
    connections: dict[str, ConnectionStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Identity of a client. The password signs requests and is never sent or shown."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Settings of encryption. Paths are PEM files.

    `ca_file` None trusts the system's authorities. `cert_file` and `key_file` are the client's own
    pair, for clusters that ask for one (mutual TLS); `key_file` None: the key is in `cert_file`.
    Host names are verified against the certificate, with `server_hostname` instead of the address
    if given; `check_hostname` False verifies the chain only. The handshake has
    `handshake_timeout_ms`, beyond the time to connect.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    server_hostname: str | None = None
    handshake_timeout_ms: int = 5_000


def _require_least(settings: object, least: Mapping[str, int], problems: list[str]) -> None:
    """Raise `errors.ConfigError` for `problems` and for every number of `settings` that is less
    than its least value, 1 by default. The models in `config` have narrower ranges."""
    for item in fields(settings):  # type: ignore[arg-type]
        value, lowest = getattr(settings, item.name), least.get(item.name, 1)
        if type(value) is int and value < lowest:
            problems.append(f"{item.name}: {value} is less than {lowest}")
    if problems:
        raise errors.ConfigError(problems, subject=type(settings).__name__)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client; `tubemq_client.config` builds them from validated options.

    Times are milliseconds. `masters` are tried in order until one is active. A connection without
    traffic for `idle_connection_ms` is closed, and opened again when it is needed; one on which a
    request was not answered, and nothing else came since it was sent, is replaced for the next
    request. Names of masters are looked up again every `dns_refresh_ms`. An address that
    refused is tried again after `reconnect_pause_ms`, doubled up to `longest_reconnect_pause_ms`.
    After `max_heartbeat_failures` failures in a row heartbeats slow down to
    `heartbeat_period_after_failures_ms`. Registering at the master is tried `register_attempts`
    times, `register_pause_ms` apart. While masters change over, look-ups are repeated for up to
    `fail_over_wait_ms`. With `preconnect` connections to brokers are opened as soon as the brokers
    are known.
    """

    masters: tuple[Address, ...]
    rpc_timeout_ms: int = 10_000
    connect_timeout_ms: int = 3_000
    heartbeat_period_ms: int = 10_000
    max_frame_bytes: int = 32 * 1024 * 1024
    idle_connection_ms: int = 180_000
    heartbeat_period_after_failures_ms: int = 60_000
    max_heartbeat_failures: int = 5
    register_attempts: int = 5
    register_pause_ms: int = 1_000
    fail_over_wait_ms: int = 5_000
    reconnect_pause_ms: int = 100
    longest_reconnect_pause_ms: int = 2_000
    preconnect: bool = False
    auth: Credentials | None = None
    tls: TlsSettings | None = None
    dns_refresh_ms: int = 30_000

    def __post_init__(self) -> None:
        _require_least(self, {"register_pause_ms": 0, "fail_over_wait_ms": 0}, [])

    @property
    def range_options(self) -> dict[str, Any]:
        """Return the arguments of `RangeReader` that the settings have: none."""
        return {}


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of a group member. Times are milliseconds.

    `consume_position` is the start of a group without a stored position. A partition with nothing
    to read is asked again after `not_found_wait_ms`. A batch that is not confirmed within
    `confirm_timeout_ms` is rolled back, and delivered again; a partition that the master moves away
    waits `rebalance_confirm_wait_ms` for its batch, which is then rolled back, or confirmed if
    `rollback_on_rebalance` is False (records may then be lost). With `confirm_locally` a
    confirmation is sent with the next fetch: fewer requests, but one more batch delivered again
    after a crash. Every `report_every_beats`-th heartbeat reports all held partitions to the
    master. A consumer that assigns partitions itself asks the master for the topics' partitions at
    most once in `metadata_period_ms`.
    """

    consume_position: Literal["earliest", "latest", "always_latest"] = "earliest"
    not_found_wait_ms: int = 400
    ready_wait_ms: int = 90_000
    confirm_timeout_ms: int = 60_000
    confirm_locally: bool = False
    rebalance_confirm_wait_ms: int = 3_000
    rollback_on_rebalance: bool = True
    report_every_beats: int = 6
    close_wait_ms: int = 10_000
    metadata_period_ms: int = 10_000

    def __post_init__(self) -> None:
        waits = ("not_found_wait_ms", "rebalance_confirm_wait_ms", "close_wait_ms")
        least = dict.fromkeys((*waits, "metadata_period_ms"), 0) | {"ready_wait_ms": -1}
        problems = []
        if self.consume_position not in ("earliest", "latest", "always_latest"):
            problems.append(
                f"consume_position: {self.consume_position!r} is not earliest, latest or "
                "always_latest"
            )
        _require_least(self, least, problems)


@dataclass(frozen=True, slots=True)
class ReaderSettings(ClientSettings):
    """Settings of a client that reads ranges: those of a client, of `RangeReader`, and of members
    of its group."""

    pool_size: int = 32
    deadline_ms: int = 60_000
    member: ConsumerSettings = field(default_factory=ConsumerSettings)

    @property
    def range_options(self) -> dict[str, Any]:
        """Return the arguments of `RangeReader`."""
        return {"pool_size": self.pool_size, "deadline_ms": self.deadline_ms}


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer: avoidance of failing brokers, and limits of records in flight.

    Times are milliseconds.

    `in_flight` bounds the unanswered records of one `send_many`, `max_in_flight` those of the whole
    producer, `max_in_flight_per_broker` those of one broker. A broker that answered 503 gets
    nothing for `unavailable_quarantine_ms`. After more than `link_max_failures` connection failures
    within `link_window_ms` a broker is avoided for `link_quarantine_ms`, at most
    `link_max_quarantined_share` of all brokers, rounded, at once. A partition that failed more than
    `partition_max_failures` times is avoided for `partition_quarantine_ms`. A record that the
    broker refused for overflow, and so did not store, is sent again up to `overflow_retries` times,
    `overflow_pause_ms` apart. With `retry_unknown` a record with an unknown outcome (no answer, the
    connection broke) is sent again up to 3 times: at least once instead of at most once. With
    `verify_checksum` brokers check every record against its CRC-32 before they store it. Brokers
    skip records beyond the cluster's size limit while they are in memory only; a topic's own limit
    may allow them, and `large_records` says whether they are refused or sent nevertheless.
    """

    in_flight: int = 64
    max_in_flight: int = 500_000
    max_in_flight_per_broker: int = 50_000
    unavailable_quarantine_ms: int = 50_000
    link_window_ms: int = 60_000
    link_max_failures: int = 5
    link_quarantine_ms: int = 1_800_000
    link_max_quarantined_share: float = 0.3
    partition_max_failures: int = 3
    partition_quarantine_ms: int = 3_000
    retry_unknown: bool = False
    verify_checksum: bool = True
    overflow_retries: int = 60
    overflow_pause_ms: int = 50
    large_records: Literal["refuse", "send"] = "refuse"

    def __post_init__(self) -> None:
        pauses = ("unavailable", "link", "partition")
        least = {f"{name}_quarantine_ms": 0 for name in pauses} | {"overflow_retries": 0}
        problems = []
        if not 0 <= self.link_max_quarantined_share <= 1:
            problems.append(
                f"link_max_quarantined_share: {self.link_max_quarantined_share} is not 0 to 1"
            )
        if self.large_records not in ("refuse", "send"):
            problems.append(f"large_records: {self.large_records!r} is not refuse or send")
        _require_least(self, least, problems)
