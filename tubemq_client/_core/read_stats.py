"""Options of a range read, and the counters and gaps that it leaves behind.

Plain values: `range_read` fills them, readers of both APIs pass them on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tubemq_client._core.batch import DecodePolicy, MessageBatch
    from tubemq_client.model import Anchor

__all__ = ["Gap", "ReadPolicy", "ReadStats"]


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `[start, end)` of a partition that retention removed before they were read.

    No record of them was delivered.
    """

    partition: str
    start: int
    end: int


@dataclass(slots=True)
class ReadStats:
    """Statistics of one reader.

    `records` and `bytes` count delivered records, after any filter; `last` is the last record of
    each partition (by its key), delivered or dropped.
    """

    records: int = 0
    bytes: int = 0
    batches: int = 0
    fetches: int = 0
    empty_fetches: int = 0
    restarts: int = 0
    fence_probes: int = 0
    corrupt: int = 0
    gaps: list[Gap] = field(default_factory=list)
    last: dict[str, Anchor] = field(default_factory=dict)

    def count(self, batch: MessageBatch, policy: DecodePolicy) -> None:
        """Count a batch that is about to be delivered, decoding it. `policy` is the reader's."""
        if (last := batch.last()) is not None:
            self.last[batch.partition.key] = last
        self.batches += 1
        self.records += len(batch)
        self.bytes += batch.nbytes
        self.corrupt = policy.corrupt

    def add_work(self, other: ReadStats, known_gaps: int) -> None:
        """Add the work of the reader of the next sub-range, but not its delivered records.

        Adjacent gaps are merged, except the first `known_gaps`, which are of other ranges.
        """
        self.fetches += other.fetches
        self.empty_fetches += other.empty_fetches
        self.restarts += other.restarts
        self.fence_probes += other.fence_probes
        for gap in other.gaps:
            if len(self.gaps) > known_gaps and self.gaps[-1].end == gap.start:
                self.gaps.append(Gap(gap.partition, self.gaps.pop().start, gap.end))
            else:
                self.gaps.append(gap)


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """Behaviour of a read that cannot continue. `deadline_ms` counts from the last progress."""

    gap_policy: str = "fail"
    deadline_ms: int = 60_000
