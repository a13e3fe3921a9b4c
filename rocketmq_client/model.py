"""Plain values that the RocketMQ client speaks: queues, ranges, records, receipts, settings.

No I/O, no pydantic: a Spark executor imports this. `QueueRange` defines *offset*. Addresses and TLS
are the values of `tubemq_client.model`, whose sockets are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal, NamedTuple, TypeVar

from rocketmq_client import errors
from rocketmq_client.message import Message, Queue
from tubemq_client.model import Address, TlsSettings, address_text
from tubemq_client.model import ClientSettings as NetworkSettings

__all__ = [
    "Address",
    "Allocation",
    "ClientSettings",
    "ConsumerSettings",
    "ConsumerStats",
    "Credentials",
    "GroupMember",
    "GroupMembers",
    "GroupSettings",
    "Message",
    "NetworkSettings",
    "OutgoingMessage",
    "ProducerSettings",
    "PullResult",
    "Queue",
    "QueueEnds",
    "QueueProgress",
    "QueueRange",
    "QueueStats",
    "Reachable",
    "ReaderSettings",
    "ReceivedBatch",
    "RecordMark",
    "Reply",
    "SendReceipt",
    "TimeBoundary",
    "TlsSettings",
    "address_text",
    "tag_names",
]


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class QueueRange:
    """`[start, end)` of one queue.

    An offset is the position of a record in its queue, from 0 and without gaps: the range holds
    exactly `end - start` records, in offset order (`docs/rocketmq-protocol/exact-ranges.md`).
    """

    queue: Queue
    start: int
    end: int

    def __post_init__(self) -> None:
        problems = [
            f"{name} {value} is negative"
            for name, value in (("start", self.start), ("end", self.end))
            if value < 0
        ]
        if self.start > self.end:
            problems.append(f"start {self.start} is beyond end {self.end}")
        if problems:
            raise ValueError(f"range of {self.queue}: " + "; ".join(problems))

    @property
    def partition(self) -> Queue:
        """The queue, under the name that both sources share."""
        return self.queue

    @property
    def entries(self) -> int:
        """Records in the range."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.queue}[{self.start},{self.end})"


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """Offsets `[min_offset, max_offset)` that a broker holds of a queue.

    With `stable`, `max_offset` ends what is on the broker's disk and survives a crash of its host;
    otherwise it is `latest_offset`, the end of what can be read now.
    """

    queue: Queue
    min_offset: int
    max_offset: int
    stable: bool
    latest_offset: int

    @property
    def partition(self) -> Queue:
        """The queue, under the name that both sources share."""
        return self.queue


class Reachable(dict[Queue, Found]):
    """Results for the queues whose brokers answered; `away` has the other queues with the reason.
    Never empty: if no broker answers, the call raises an error."""

    def __init__(self, found: Mapping[Queue, Found], away: Mapping[Queue, str]) -> None:
        super().__init__(found)
        self.away = dict(away)

    def __repr__(self) -> str:
        return f"Reachable({dict(self)!r}, away={self.away!r})"


class TimeBoundary(NamedTuple):
    """Position of an instant in a queue: `offset` is the first held record that was stored at or
    after it. With `eroded`, retention removed the records before `offset` and may have removed some
    that were stored at or after the instant: the boundary was somewhere in `[0, offset]`."""

    offset: int
    lost_to_retention: bool


class RecordMark(NamedTuple):
    """Identity of a record: its offset, its position in the broker's log, and its store time (ms
    since the epoch). A recreated log has other marks at the same offset."""

    offset: int
    physical_offset: int
    store_ms: int


class Reply(NamedTuple):
    """Reply to a request, as the broker passed it on. Times are milliseconds since the epoch."""

    body: bytes
    properties: dict[str, str]
    tags: str | None
    keys: tuple[str, ...]
    message_id: str | None
    born_ms: int
    store_ms: int


class OutgoingMessage(NamedTuple):
    """Record to send. `flag` belongs to the application; brokers only store it."""

    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    properties: dict[str, str] | None = None
    flag: int = 0


class SendReceipt(NamedTuple):
    """Broker's answer for a stored record: `offset` is its position in `queue`. `status` is
    "stored", or tells that the broker stored it but did not flush or replicate it in time. The
    receipt of a delayed or half (transactional) record has the offset in another topic."""

    queue: Queue
    offset: int
    message_id: str
    offset_id: str
    status: str = "stored"


Decision = Literal["commit", "rollback"]
"""End of a transaction."""


class HalfRecord(NamedTuple):
    """Record that no reader sees until its producer commits it. `offset` and `physical_offset` are
    those in the broker's topic of half records."""

    queue: Queue
    message_id: str
    offset: int
    physical_offset: int


class PullResult(NamedTuple):
    """Answer to one pull. `status` is "found", "nothing" (the end), "filtered" (continue at
    `next_offset`) or "moved" (outside `[min_offset, max_offset)`)."""

    status: Literal["found", "nothing", "filtered", "moved"]
    messages: tuple[Message, ...]
    next_offset: int
    min_offset: int
    max_offset: int


class ReceivedBatch(NamedTuple):
    """Records of one queue, in offset order, for a member of a group. Confirming it moves the group
    to `next_offset`. Records that were sent back by a member come from the queues of
    ``%RETRY%<group>``; their property ``RETRY_TOPIC`` names their topic."""

    queue: Queue
    messages: tuple[Message, ...]
    next_offset: int


@dataclass(slots=True)
class ConsumerStats:
    """Counters of one member of a group. `records` and `bytes` count delivered records. `lost` has
    offsets `(queue, start, end)` that retention removed, or a log lost, before they were pulled and
    that ``gap_policy="skip"`` passed over. `failed_batches` are those whose handler raised,
    `lost_locks` queues that an ordered member had to drop: the broker gave the lock to another
    member, or did not renew it in time."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    pulls: int = 0
    failed_pulls: int = 0
    heartbeats: int = 0
    rebalances: int = 0
    commits: int = 0
    failed_commits: int = 0
    stale_batches: int = 0
    sent_back: int = 0
    failed_batches: int = 0
    lost_locks: int = 0
    lost: list[tuple[Queue, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and its secret; the secret signs requests and is never sent or shown. A security
    token, for temporary keys, is sent."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of sync and asyncio clients; `rocketmq_client.config` builds them from validated
    options.

    Times are milliseconds. `name_servers` are tried in order until one answers. The timeout of a
    pull that the broker may hold is `rpc_timeout_ms` plus the hold time. Brokers close connections
    without traffic after 120 s, so `idle_connection_ms` is less. A route is refreshed after
    `route_period_ms`.
    """

    name_servers: tuple[Address, ...]
    rpc_timeout_ms: int = 10_000
    connect_timeout_ms: int = 3_000
    max_frame_bytes: int = 16 * 1024 * 1024
    idle_connection_ms: int = 100_000
    reconnect_pause_ms: int = 100
    longest_reconnect_pause_ms: int = 2_000
    route_period_ms: int = 30_000
    auth: Credentials | None = None
    tls: TlsSettings | None = None

    @property
    def range_options(self) -> dict[str, Any]:
        """Return the arguments of `RangeReader` that the settings have: none."""
        return {}

    def network(self) -> NetworkSettings:
        """Return the settings of sockets, pools and drivers."""
        return NetworkSettings(
            masters=(),
            rpc_timeout_ms=self.rpc_timeout_ms,
            connect_timeout_ms=self.connect_timeout_ms,
            max_frame_bytes=self.max_frame_bytes,
            idle_connection_ms=self.idle_connection_ms,
            reconnect_pause_ms=self.reconnect_pause_ms,
            longest_reconnect_pause_ms=self.longest_reconnect_pause_ms,
            tls=self.tls,
        )


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of sending. Bodies above `compress_over_bytes` are compressed with `compression`
    (None: never). A record that was certainly not stored (no connection, the broker was busy) is
    sent again up to `retries` times, to another broker if there is one, `retry_pause_ms` apart.
    With `retry_unknown`, so is a record that may have been stored: at-least-once instead of
    at-most-once. Bodies larger than `max_message_bytes` after compression are refused before they
    are sent; before compression a body may have up to the 64 MiB that readers unpack.

    `send_async` waits for room while `max_in_flight` records or `max_in_flight_bytes` bytes of
    bodies are under way. With `avoid_slow`, a broker that took half a second or longer for a send,
    or failed, gets records of no particular queue again after 2 to 30 s, unless all are so. With
    `trace`, how each single send ended is sent to RMQ_SYS_TRACE_TOPIC too, as Java's producers do,
    without waiting; it needs brokers with `traceTopicEnable=true`."""

    compress_over_bytes: int | None = 4096
    compression: Literal["zlib", "lz4", "zstd"] = "zlib"
    retries: int = 2
    retry_pause_ms: int = 50
    retry_unknown: bool = False
    max_message_bytes: int = 4 * 1024 * 1024
    max_in_flight: int = 1_000
    max_in_flight_bytes: int = 64 * 1024 * 1024
    avoid_slow: bool = False
    trace: bool = False


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a consumer group at a broker. The members of a group that is not `enabled` get no
    records; `broadcasting` and `from_first` allow members to read every record, and to begin at the
    first. A record that was sent back `max_retries` times goes to the dead letters; `retry_queues`
    are the queues of those that were sent back. `ordered` is for clients of 5.x proxies."""

    name: str
    enabled: bool = True
    broadcasting: bool = True
    from_first: bool = True
    ordered: bool = False
    retry_queues: int = 1
    max_retries: int = 16

    def __post_init__(self) -> None:
        problems = [] if self.name.strip() else ["name is empty"]
        if self.retry_queues < 0:
            problems.append(f"retry_queues is {self.retry_queues}; at least 0 is allowed")
        if self.max_retries < -1:
            problems.append(f"max_retries is {self.max_retries}; at least -1 (no limit) is allowed")
        if problems:
            raise errors.ConfigError(problems, subject="group")


class QueueProgress(NamedTuple):
    """Position of a group on a queue: the broker's end, the group's committed offset, and the store
    time (ms) of the last record that the group has consumed, None if the broker cannot tell."""

    queue: Queue
    broker_offset: int
    committed: int
    last_ms: int | None

    @property
    def diff(self) -> int:
        """Records between the committed offset and the end."""
        return self.broker_offset - self.committed


class QueueStats(NamedTuple):
    """Ends of a queue, and the store time (ms) of its last record, None without one."""

    queue: Queue
    min_offset: int
    max_offset: int
    last_ms: int | None


class GroupMember(NamedTuple):
    """Client in a group, as brokers see it. `version` is that of its protocol: of Java's clients
    their own, ``"5.5.0"``."""

    client_id: str
    address: str
    language: str
    version: str


class GroupMembers(NamedTuple):
    """Members of a group, what they subscribe to (topic: expression), and how they divide it."""

    members: tuple[GroupMember, ...]
    subscriptions: Mapping[str, str]
    mode: Literal["clustering", "broadcasting"]


Allocation = Callable[[str, Sequence[str], Sequence[Queue]], Sequence[Queue]]
"""Strategy of a group: this member, all members (ordered), all queues of a topic (ordered) → the
queues of this member. All members of a group must use the same one."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Settings of a member of a group. Times are milliseconds.

    `consume_from` decides where a queue begins without a committed offset: "first" at the first
    record that the broker has, "last" at the end, a number at the first record stored at or after
    that time (ms since the epoch). `allocation` is "average", "circle", "hash" or a function. A
    batch has up to `batch_records` records, a pull asks for `pull_records`, and a broker holds it
    up to `hold_ms` at the end of a queue. A queue with `queue_records` records or `queue_bytes`
    bytes of bodies that are not confirmed is not pulled. Heartbeats are sent every `heartbeat_ms`
    (brokers forget a silent member after 120 s); queues are allocated again after a notice and
    every `rebalance_ms`; confirmed positions are committed every `commit_ms`, when a queue is given
    up, and on close. `gap_policy` "fail" raises `errors.DataLoss` or `errors.LogTruncated` when
    offsets that the group still needs are gone, "skip" continues and records them in `stats.lost`.
    A record that was sent back `max_retries` times goes to the group's dead letters.

    An `ordered` member reads a queue only while the broker has locked it for this member, so
    records of a queue are handled in their order also when the queue moves to another member; all
    members of the group must be ordered. With `mode` "broadcasting" each member gets every record;
    its positions are stored in `offsets_file`, which is its own, or are forgotten with the member.
    """

    consume_from: Literal["first", "last"] | int = "last"
    allocation: Literal["average", "circle", "hash"] | Allocation = "average"
    batch_records: int = 32
    pull_records: int = 32
    queue_records: int = 1_000
    queue_bytes: int = 16 * 1024 * 1024
    hold_ms: int = 15_000
    heartbeat_ms: int = 30_000
    rebalance_ms: int = 20_000
    commit_ms: int = 5_000
    gap_policy: Literal["fail", "skip"] = "fail"
    max_retries: int = 16
    ordered: bool = False
    mode: Literal["clustering", "broadcasting"] = "clustering"
    offsets_file: str | PathLike[str] | None = None

    @property
    def broadcasting(self) -> bool:
        """True if each member gets every record."""
        return self.mode == "broadcasting"

    def __post_init__(self) -> None:
        limits = {
            **dict.fromkeys(("batch_records", "queue_records", "queue_bytes"), (1, 2**31 - 1)),
            "pull_records": (1, 1_000),
            "hold_ms": (0, 60_000),
            "max_retries": (0, 10_000),
            "heartbeat_ms": (100, 60_000),
            **dict.fromkeys(("rebalance_ms", "commit_ms"), (100, 3_600_000)),
        }
        problems = [
            f"{name} is {value}; {low} to {high} is allowed"
            for name, (low, high) in limits.items()
            if not low <= (value := getattr(self, name)) <= high
        ]
        start = self.consume_from
        if start not in {"first", "last"} and (not isinstance(start, int) or start < 0):
            problems.append(
                f"consume_from is {start!r}; 'first', 'last' or a time in ms is allowed"
            )
        if not callable(self.allocation) and self.allocation not in {"average", "circle", "hash"}:
            problems.append(
                f"allocation is {self.allocation!r}; 'average', 'circle', 'hash' or a function is "
                "allowed"
            )
        if self.mode not in {"clustering", "broadcasting"}:
            problems.append(f"mode is {self.mode!r}; 'clustering' or 'broadcasting' is allowed")
        if self.broadcasting and self.ordered:
            problems.append(
                "ordered has no effect with mode='broadcasting': each member reads its queues in "
                "their order"
            )
        if self.offsets_file is not None and not self.broadcasting:
            problems.append(
                "offsets_file has no effect with mode='clustering': brokers keep the positions"
            )
        if self.gap_policy not in {"fail", "skip"}:
            problems.append(f"gap_policy is {self.gap_policy!r}; 'fail' or 'skip' is allowed")
        if problems:
            raise errors.ConfigError(problems, subject="consumer")


@dataclass(frozen=True, slots=True)
class ReaderSettings(ClientSettings):
    """Settings of a client that reads ranges: those of a client, of `RangeReader`, and of members
    of its group."""

    in_flight: int = 4
    deadline_ms: int = 60_000
    member: ConsumerSettings = field(default_factory=ConsumerSettings)

    @property
    def range_options(self) -> dict[str, Any]:
        """Return the arguments of `RangeReader`."""
        return {"in_flight": self.in_flight, "deadline_ms": self.deadline_ms}


def tag_names(tags: str | Sequence[str]) -> tuple[str, ...]:
    """Return the tags that a reader keeps; a text is one tag, an empty value keeps everything.

    Raises `errors.ConfigError` for a text that cannot be a record's tag, among it the notation of
    subscriptions (`*`, `a || b`): a reader compares whole tags, so it would read nothing.
    """
    names = (tags,) if isinstance(tags, str) else tuple(tags)
    problems = [problem for name in names if (problem := _tag_problem(name))]
    if problems:
        raise errors.ConfigError(problems, subject="tags")
    return names


def _tag_problem(name: object) -> str:
    if not isinstance(name, str):
        return f"{name!r} is no text"
    if name.strip() == "*":
        return f"{name!r} is no tag; give none to read everything"
    if "||" in name:
        return f"{name!r} is no tag; give several as separate items"
    if not name or name != name.strip() or {"\x01", "\x02"} & set(name):
        return f"{name!r} is no tag: it is empty, or has blanks around it or a separator in it"
    return ""
