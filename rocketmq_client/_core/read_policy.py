"""What the two ways of reading a range share: policies, counters, gaps, pauses, and last words.

`range_read` proves that nothing is missing; `filtered_read` trusts the broker's filter. Both give
up only here, with a message that says what to change.

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

__all__ = ["BREAKS", "Gap", "Patience", "ReadPolicy", "ReadStats", "lost", "truncated"]

_PAUSE_MS = 100
_PAUSE_LIMIT_MS = 2_000

BREAKS = (errors.NetworkError, errors.Busy, errors.BrokerFailure, errors.NotLeader)
"""What asking again may cure. Everything else is raised as it is."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `[start, end)` of a queue that retention removed before they were read."""

    partition: str
    start: int
    end: int


@dataclass(slots=True)
class ReadStats:
    """What one reader did. `records` and `bytes` count what was delivered, after any filter."""

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
    """How a read behaves when it cannot go on. `deadline_ms` counts from the last progress;
    `in_flight` pulls are on their way at a time."""

    gap_policy: str = "fail"
    deadline_ms: int = 60_000
    in_flight: int = 4


class Patience:
    """How long a read has been without progress, and its growing pauses."""

    def __init__(self, range_: QueueRange, deadline_ms: int) -> None:
        self._range = range_
        self._deadline_ms = deadline_ms
        self._since = 0
        self._pause_ms = _PAUSE_MS

    def renew(self) -> Conversation[None]:
        """There was progress, or the time was the user's."""
        self._since = yield Now()
        self._pause_ms = _PAUSE_MS

    def pause(self, at: int, why: object) -> Conversation[None]:
        """Wait a little, longer each time. Raises `errors.RangeStalled` at the deadline."""
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
    """Where to go on after a loss of `[start, available)`, recorded as a gap.

    Raises `errors.DataLoss` unless `gap_policy` is "skip"."""
    end = min(available, range_.end)
    if policy.gap_policy != "skip":
        raise errors.DataLoss(
            f"retention has removed offsets [{start}, {end}) of queue {range_.queue.key} of topic "
            f"{range_.queue.topic!r}: what is left starts at {available}. Set gap_policy='skip' "
            f"(Spark: failOnDataLoss=false) to go on and record the gap",
            start=start,
            available=available,
        )
    stats.gaps.append(Gap(range_.queue.key, start, end))
    return end


def truncated(range_: QueueRange, at: int, max_offset: int) -> errors.LogTruncated:
    """The log is shorter than the range."""
    return errors.LogTruncated(
        f"queue {range_.queue.key} of topic {range_.queue.topic!r} ends at {max_offset}, before "
        f"the planned range [{range_.start}, {range_.end}) does (read up to {at}). Either nothing "
        f"was ever written up to its end, or the broker lost records in a crash or the topic was "
        f"made anew: plan the window again (on_offset_regression)"
    )
