"""Shared parts of the two range reads: policies, counters, gaps, pauses, final errors.

`range_read` proves that nothing is missing; `filtered_read` trusts the broker's filter. Both give
up only here, with a message that names the option to change.

Source: `docs/rocketmq-protocol/exact-ranges.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketmq_client import errors
from tubemq_client._core.effects import Now, Sleep

if TYPE_CHECKING:
    from rocketmq_client._core.batch import DecodePolicy, RecordBatch
    from rocketmq_client.model import QueueRange
    from tubemq_client._core.effects import Conversation

__all__ = ["BREAKS", "Gap", "ReadPolicy", "ReadStats", "StallTimer", "lost", "truncated"]

_PAUSE_MS = 100
_PAUSE_LIMIT_MS = 2_000

BREAKS = (errors.NetworkError, errors.Busy, errors.BrokerFailure, errors.NotLeader)
"""Errors that a retry may cure. All others are raised unchanged."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `[start, end)` of a queue that retention removed before they were read."""

    partition: str
    start: int
    end: int


@dataclass(slots=True)
class ReadStats:
    """Counters of one reader. `records` and `bytes` count delivered records, after any filter."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    fetches: int = 0
    empty_fetches: int = 0
    restarts: int = 0
    corrupt: int = 0
    gaps: list[Gap] = field(default_factory=list)

    def count(self, batch: RecordBatch, policy: DecodePolicy) -> None:
        """Count a batch that is about to be delivered. `policy` is the reader's."""
        self.batches += 1
        self.records += len(batch)
        self.bytes += batch.nbytes
        self.corrupt = policy.corrupt


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """Limits and policies of a read. `deadline_ms` counts from the last progress; up to `in_flight`
    pulls are in flight."""

    gap_policy: str = "fail"
    deadline_ms: int = 60_000
    in_flight: int = 4


class StallTimer:
    """Time since the last progress of a read, and growing pauses."""

    def __init__(self, range_: QueueRange, deadline_ms: int) -> None:
        self._range = range_
        self._deadline_ms = deadline_ms
        self._since = 0
        self._pause_ms = _PAUSE_MS

    def renew(self) -> Conversation[None]:
        """Restart the deadline after progress, or after time spent in the caller's code."""
        self._since = yield Now()
        self._pause_ms = _PAUSE_MS

    def pause(self, at: int, why: object) -> Conversation[None]:
        """Sleep, longer each time. Raises `errors.RangeStalled` at the deadline."""
        waited = (yield Now()) - self._since
        if waited >= self._deadline_ms:
            cause = why if isinstance(why, Exception) else None
            raise errors.RangeStalled(
                f"no progress at offset {at} of range {self._range} for {waited} ms "
                f"(deadline_ms={self._deadline_ms}); last problem: {why}"
            ) from cause
        yield Sleep(self._pause_ms)
        self._pause_ms = min(self._pause_ms * 2, _PAUSE_LIMIT_MS)


def lost(
    range_: QueueRange, policy: ReadPolicy, stats: ReadStats, start: int, available: int
) -> int:
    """Return the offset to continue at after a loss of `[start, available)`, recorded as a gap.

    Raises `errors.DataLoss` unless `gap_policy` is "skip".
    """
    end = min(available, range_.end)
    if policy.gap_policy != "skip":
        raise errors.DataLoss(
            f"retention has removed offsets [{start}, {end}) of queue {range_.queue.key} of topic "
            f"{range_.queue.topic!r}: what is left starts at {available}. Set gap_policy='skip' "
            f"(Spark: failOnDataLoss=false) to continue and record the gap",
            start=start,
            available=available,
        )
    stats.gaps.append(Gap(range_.queue.key, start, end))
    return end


def truncated(range_: QueueRange, at: int, max_offset: int) -> errors.LogTruncated:
    """Return the error for a log that is shorter than the range."""
    return errors.LogTruncated(
        f"queue {range_.queue.key} of topic {range_.queue.topic!r} ends at {max_offset}, before "
        f"the planned range [{range_.start}, {range_.end}) does (read up to {at}). Either nothing "
        f"was ever written up to its end, or the broker lost records in a crash or the topic was "
        f"recreated: plan the window again (on_offset_regression)"
    )
