"""One fetch from a store's log: the records that a broker returns, and the distance scanned.

Pure functions over `StoreLog`. They decide between memory and file by query priority level, bound
the scan, skip other partitions' and unwanted records and those whose data retention has removed,
and read only half of a file window, as real brokers do. They do not move any position: `positions`
applies `ReadOutcome.advance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tubemq_client.embedded.options import ReadLimits
from tubemq_client.embedded.store import RECORD_HEADER_BYTES, Record, StoreLog
from tubemq_client.model import INDEX_ENTRY_BYTES

__all__ = ["ReadOutcome", "ReadRequest", "priority_level", "read"]

_NOWHERE = -2
_SLOW_WINDOWS = 30
"""Windows of file left below which a filtered reader is asked to poll slower."""


class ReadRequest(NamedTuple):
    """Request of a read. `level` is 0 to 3 (`priority_level`), `budget` bytes for a file read,
    `partitions` the number of partitions in the store. `start` must lie within `[min, end)`. A read
    of memory skips records of more than `largest` bytes in the data log; None: no limit."""

    start: int
    partition_id: int
    key_codes: frozenset[int]
    level: int
    budget: int
    partitions: int
    largest: int | None = None


class ReadOutcome(NamedTuple):
    """`code` 200 or 404; `advance` is the offset distance scanned and may be > 0 for both."""

    code: int
    text: str
    records: Sequence[Record] = ()
    advance: int = 0
    max_offset: int = 0
    data_lag: int = -1
    require_slow: bool = False


class _Scan(NamedTuple):
    records: list[Record]
    scanned: int
    last: Record | None


def priority_level(query_priority: int, *, filtered: bool) -> int:
    """Return the depth a reader sees: 0 and 1 the fsynced file, 2 also the backup buffer, 3 all.

    The hundreds digit counts for readers without a filter, the rest for readers with one.
    """
    level = query_priority % 100 if filtered else query_priority // 100
    return max(0, min(level, 3))


def read(log: StoreLog, request: ReadRequest, limits: ReadLimits) -> ReadOutcome:
    """Read from `request.start`; never raises, never waits."""
    if request.level >= 2 and request.start >= log.file_end:
        return _read_memory(log, request, limits)
    if request.level <= 1 and request.start >= log.stable_end:
        return ReadOutcome(404, "current offset is exceed max file offset")
    return _read_file(log, request, limits)


def _read_memory(log: StoreLog, request: ReadRequest, limits: ReadLimits) -> ReadOutcome:
    in_backup = request.start < log.backup_end
    if not in_backup and request.level < 3:
        return ReadOutcome(404, "Can't found Message by index in cache")
    last_match = log.last_in_backup if in_backup else log.last_in_main
    buffer_end = log.backup_end if in_backup else log.end
    if last_match(request.partition_id, request.key_codes) < request.start:
        return _nothing_in_buffer(log, request, buffer_end, in_backup=in_backup)
    window = limits.memory_window(request.partitions) * INDEX_ENTRY_BYTES
    entries = log.slice(request.start, min(buffer_end, request.start + window))
    scan = _scan(entries, request, limits.transfer_bytes, request.largest)
    # A memory read reports the lag behind its last *match*, a file read behind its last entry.
    reached = scan.records[-1].data_end if scan.records else log.data_end
    return ReadOutcome(
        200,
        "OK!",
        scan.records,
        scan.scanned * INDEX_ENTRY_BYTES,
        log.end,
        log.data_end - reached,
    )


def _nothing_in_buffer(
    log: StoreLog, request: ReadRequest, buffer_end: int, *, in_backup: bool
) -> ReadOutcome:
    advance = max(0, buffer_end - request.start)
    if in_backup and not request.key_codes:
        return ReadOutcome(200, "OK!", (), advance, log.end, 0)
    return ReadOutcome(404, "Can't found Message by index!", (), advance)


def _read_file(log: StoreLog, request: ReadRequest, limits: ReadLimits) -> ReadOutcome:
    readable_end = log.stable_end if request.level <= 1 else log.file_end
    window = limits.file_window(request.partitions)
    filtered = bool(request.key_codes)
    available = _in_one_segment(request.start, readable_end, limits)
    available = min(available, window * 3 if filtered else window)
    if limits.half_reads:
        # The real loop compares a growing position with shrinking remaining bytes.
        available = (available + 1) // 2
    entries = log.slice(request.start, request.start + available * INDEX_ENTRY_BYTES)
    scan = _scan(entries, request, request.budget, data_min=log.min_data_offset)
    advance = scan.scanned * INDEX_ENTRY_BYTES
    left = log.stable_end - request.start - advance
    return ReadOutcome(
        200,
        "OK!",
        scan.records,
        advance,
        log.stable_end if request.level <= 1 else log.end,
        log.data_end - _reached(log, scan),
        filtered and advance > 0 and left < _SLOW_WINDOWS * window * INDEX_ENTRY_BYTES,
    )


def _reached(log: StoreLog, scan: _Scan) -> int:
    """Return the data offset behind the last scanned entry that has data; brokers start at -2."""
    if scan.last is not None:
        return scan.last.data_end
    return _NOWHERE if scan.scanned else log.data_end


def _in_one_segment(start: int, end: int, limits: ReadLimits) -> int:
    """Return the entries from `start` to `end`, cut at the end of the index segment of `start`."""
    first = start // INDEX_ENTRY_BYTES
    segment_end = (first // limits.segment_records + 1) * limits.segment_records
    return max(0, min(end // INDEX_ENTRY_BYTES, segment_end) - first)


def _scan(
    entries: Sequence[Record],
    request: ReadRequest,
    budget: int,
    largest: int | None = None,
    data_min: int = 0,
) -> _Scan:
    """Collect matches of at most `largest` bytes until their sizes reach `budget`; the record that
    reaches it is included. Entries whose data lies below `data_min` are skipped."""
    partition_id, key_codes = request.partition_id, request.key_codes
    matches: list[Record] = []
    total = 0
    for scanned, record in enumerate(entries, 1):
        if record.data_offset < data_min or record.partition_id != partition_id:
            continue
        if key_codes and record.key_code not in key_codes:
            continue
        if largest is not None and record.size > largest:
            continue
        matches.append(record)
        total += RECORD_HEADER_BYTES + len(record.payload)
        if total >= budget:
            return _Scan(matches, scanned, record)
    last = entries[-1] if entries and entries[-1].data_offset >= data_min else None
    return _Scan(matches, len(entries), last)
