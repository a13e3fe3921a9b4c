"""Options of an embedded TubeMQ: its topics, and its differences from a real one.

Plain frozen values. They hold no state and do no I/O, so a test can print the exact server it ran
against. The defaults are fast and give the results a real cluster gives; `docs/embedded.md` has the
table of what each one imitates.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from tubemq_client.errors import ConfigError

__all__ = ["MAX_TRANSFER_BYTES", "ReadLimits", "Security", "ServerTls", "Switches", "TopicSpec"]

MAX_TRANSFER_BYTES = 1024 * 1024
"""No fetch carries more than this before its last record, whatever is configured."""

_TOPIC_NAME = re.compile(r"[a-zA-Z]\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to deploy on every broker: `stores` logs of `partitions` partitions each.

    `max_message_mb` is the topic's own size limit in MiB (1 to 20), None for the cluster's.
    Raises `ConfigError` listing every problem.
    """

    name: str
    stores: int = 1
    partitions: int = 1
    max_message_mb: int | None = None

    def __post_init__(self) -> None:
        problems = []
        if not _TOPIC_NAME.fullmatch(self.name) or len(self.name) > 64:
            problems.append(
                f"name {self.name!r}: a letter, then letters, digits or underscores, 2 to 64 in all"
            )
        problems += [
            f"{name} {value} is less than 1"
            for name, value in (("stores", self.stores), ("partitions", self.partitions))
            if value < 1
        ]
        if self.max_message_mb is not None and not 1 <= self.max_message_mb <= 20:
            problems.append(f"max_message_mb {self.max_message_mb} is not within 1 to 20")
        if problems:
            raise ConfigError(problems, subject=f"topic {self.name!r}")


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of one fetch. Record counts are index entries, byte counts include the 52-byte header.

    A scan looks at `index_trans_count` entries for every partition of the store, clamped to the
    pair of `memory_scan` or `file_scan` (three times as far for a filtered read of a file).
    """

    index_trans_count: int = 1000
    memory_scan: tuple[int, int] = (6_000, 10_000)
    file_scan: tuple[int, int] = (8_000, 13_500)
    segment_records: int = 786_432
    first_fetch_bytes: int = 320 * 1024
    fetch_bytes: int = 512 * 1024
    half_reads: bool = True

    def memory_window(self, partitions: int) -> int:
        """Return the entries that one read of a memory buffer may scan."""
        return _clamp(self.index_trans_count * partitions, *self.memory_scan)

    def file_window(self, partitions: int) -> int:
        """Return the entries that one unfiltered read of the file may scan."""
        return _clamp(self.index_trans_count * partitions, *self.file_scan)

    def byte_budget(self, *, first: bool) -> int:
        """Return the bytes after which a file read stops; fewer until a reader's first success."""
        return self.first_fetch_bytes if first else self.transfer_bytes

    @property
    def transfer_bytes(self) -> int:
        """Bytes after which a read of memory, or a later read of the file, stops."""
        return min(self.fetch_bytes, MAX_TRANSFER_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Authentication of clients; by default none. Times are ms.

    `produce` and `consume` require of masters' clients a user, a signature and a time at most
    `timestamp_window_ms` off, and of brokers' clients a signed token. Like a real server this
    checks no password, unless `users` (passwords by name) is set. `visit_tokens` makes brokers
    require the master's token, which changes after 4/5 of `visit_token_period_ms`; for
    `visit_token_grace_ms` after its registration a broker does not require it.
    """

    produce: bool = False
    consume: bool = False
    users: Mapping[str, str] | None = field(default=None, repr=False)
    timestamp_window_ms: int = 20_000
    visit_tokens: bool = False
    visit_token_period_ms: int = 300_000
    visit_token_grace_ms: int = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """TLS on separate ports, next to the plain ones. Paths are PEM files.

    With `client_ca_file` clients must present a certificate that one of its authorities signed.
    """

    cert_file: str | os.PathLike[str]
    key_file: str | os.PathLike[str] | None = None
    key_password: str | None = field(default=None, repr=False)
    client_ca_file: str | os.PathLike[str] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context. Raises `ConfigError` for files that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.cert_file, self.key_file, self.key_password or "")
            if self.client_ca_file is not None:
                context.load_verify_locations(self.client_ca_file)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            raise ConfigError(f"files cannot be used: {error}", subject="server TLS") from error
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """Behaviour of an embedded server. Times are ms; None where allowed means "only by hand".

    The stable end follows the end in memory after `flush_interval_ms` or `unflushed_records`
    acknowledged records, whichever comes first. `fsync` additionally forces each flush to the
    device, so that data survives a power cut and not only a killed process. Every
    `retention_scan_ms` brokers remove closed segments that are older than the topic's
    ``deletePolicy``: of data by `segment_bytes`, of the index by `reads.segment_records`. With
    `history_period_ms` each broker records its groups in ``__offset_history__`` at that interval.
    Every `balance_period_ms` the master distributes the partitions of server-balanced groups;
    `balance_seed` seeds its random choices. When the active master is killed, the next one is
    active after `fail_over_ms`, knows topics `fail_over_load_ms` later, and brokers that report to
    it `fail_over_report_ms` after that. With `start_offset_reset_check` (a master's
    ``startOffsetResetCheck``) only groups that have a resource record may set their own starts.
    """

    flush_interval_ms: int | None = 500
    unflushed_records: int | None = 1000
    fsync: bool = False
    segment_bytes: int = 1 << 30
    retention_scan_ms: int | None = None
    reads: ReadLimits = field(default_factory=ReadLimits)
    advance_on_404: bool = True
    reset_beyond_max: bool = True
    create_undeclared_stores: bool = False
    default_query_priority: int = 300
    lease_ms: int = 30_000
    lease_scan_ms: int | None = 1_000
    member_timeout_ms: int = 30_000
    balance_period_ms: int | None = 100
    balance_seed: int = 0
    max_brokers_per_member: int = 1_000
    start_offset_reset_check: bool = False
    broker_timeout_ms: int = 25_000
    fail_over_ms: int = 500
    fail_over_load_ms: int = 100
    fail_over_report_ms: int = 500
    publish_delay_ms: int = 0
    subscribe_delay_ms: int = 0
    history_period_ms: int | None = None
    meta_refresh_ms: int = 180_000
    max_message_mb: int = 1
    admin_token: str = field(default="abc", repr=False)
    security: Security = field(default_factory=Security)

    def __post_init__(self) -> None:
        problems = [
            f"{spec.name} {value} is negative"
            for spec in fields(self)
            if isinstance(value := getattr(self, spec.name), int) and value < 0
        ]
        if self.history_period_ms == 0:
            problems.append("history_period_ms 0: use 1 or more, None for no history")
        if self.balance_period_ms == 0:
            problems.append("balance_period_ms 0: use 1 or more, None for by hand")
        if self.retention_scan_ms == 0:
            problems.append("retention_scan_ms 0: use 1 or more, None for by hand")
        if self.segment_bytes == 0:
            problems.append("segment_bytes 0: use 1 or more")
        if self.unflushed_records == 0:
            problems.append("unflushed_records 0: use 1 to flush every record, None for by hand")
        if not 1 <= self.max_message_mb <= 20:
            problems.append(f"max_message_mb {self.max_message_mb} is not within 1 to 20")
        if problems:
            raise ConfigError(problems, subject="switches")


def _clamp(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))
