"""Reading one range over several connections: where it is cut, and what comes next.

A broker serves a connection on one thread, so one connection does not get all that a broker could
give. The range reader is exact at any boundary, therefore pieces of a range can be read at once and
delivered in their order. Pieces are cut by size: a piece has as many entries as gave about
`_BATCHES` batches before, so that batches bound what is read ahead, whatever records there are.

This module decides; `sync._parallel` and `aio._parallel` have the threads and tasks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tubemq_client import errors
from tubemq_client._core.batch import DecodePolicy, MessageBatch
from tubemq_client._core.read_stats import ReadStats
from tubemq_client.model import INDEX_ENTRY_BYTES, OffsetRange

if TYPE_CHECKING:
    from tubemq_client._core.batch import CorruptEntry

__all__ = ["STOP_S", "Part", "Piece", "Pieces", "check_parallel"]

_BATCHES: Final = 24
"""Batches of a piece, more or less; also how many are read ahead of the user at most, of each."""

STOP_S: Final = 5.0
"""How long a read that is stopped early waits for what is on the wire."""

_FIRST, _MOST = 4_096, 1 << 20
"""Entries of a piece before anything is known, and ever."""


def check_parallel(parallel: int, pool_size: int) -> None:
    """Raises `errors.ConfigError` for a number of connections that cannot work."""
    if not 1 <= parallel <= pool_size:
        raise errors.ConfigError(
            f"parallel={parallel} is not between 1 and pool_size={pool_size}: every connection "
            f"reads under a group of its own",
            subject="range reader",
        )


@dataclass(frozen=True, slots=True)
class Part:
    """A batch, and what was set aside while it was decoded."""

    batch: MessageBatch
    aside: list[CorruptEntry]

    def settle(self, stats: ReadStats, policy: DecodePolicy) -> None:
        """Do with what was set aside as the reader's `policy` says, and count the batch."""
        for entry in self.aside:
            policy.reject(entry)
        stats.count(self.batch, policy)


@dataclass(slots=True)
class Piece:
    """A part of the range while it is read. `policy` and `stats` are its own, because others are
    read at the same time; corrupt records are kept until it is their turn."""

    range: OffsetRange
    policy: DecodePolicy
    stats: ReadStats = field(default_factory=ReadStats)
    ready: deque[Part] = field(default_factory=deque)
    over: bool = False
    error: BaseException | None = None
    _aside: list[CorruptEntry] = field(default_factory=list)

    @classmethod
    def of(cls, range_: OffsetRange, wanted: DecodePolicy) -> Piece:
        """One that decodes as `wanted` says, but sets aside what is not to fail."""
        fails = wanted.corrupt_records == "fail"
        piece = cls(range_, DecodePolicy("fail", None, wanted.filters))
        if not fails:
            piece.policy = DecodePolicy("quarantine", piece._aside.append, wanted.filters)
        return piece

    @property
    def full(self) -> bool:
        """Whether reading must wait until some of it was taken."""
        return len(self.ready) >= _BATCHES

    def add(self, batch: MessageBatch) -> None:
        """Keep a batch, decoded already, for its turn."""
        self.ready.append(Part(batch, self._aside.copy()))
        self._aside.clear()


class Pieces:
    """Cuts `range_` for `parallel` connections, and knows the pieces that are under way."""

    def __init__(self, range_: OffsetRange, policy: DecodePolicy, parallel: int) -> None:
        self._range = range_
        self._policy = policy
        self._parallel = parallel
        self._next = range_.start
        self._entries = _FIRST
        self.under_way: deque[Piece] = deque()
        """In their order; the first is the one being delivered."""

    @property
    def workers(self) -> int:
        """Connections worth opening."""
        return max(1, min(self._parallel, -(-self._range.entries // _FIRST)))

    @property
    def all_begun(self) -> bool:
        """Whether there is nothing left to cut off."""
        return self._next >= self._range.end

    @property
    def may_begin(self) -> bool:
        """Whether there is a piece to begin with, and few enough are under way: one more than there
        are connections, so that none stands still when it is done before its turn."""
        return not self.all_begun and len(self.under_way) <= self._parallel

    def is_over(self, *, stopped: bool) -> bool:
        """Whether everything has been taken. Raises `errors.ClosedError` if reading was `stopped`
        before: what comes no more must not look like the end of the range."""
        over = self.all_begun and not self.under_way
        if stopped and not over:
            raise errors.ClosedError("the reader was closed before all of the range was delivered")
        return over

    def take(self) -> Part | Piece | None:
        """The next batch in the order of the range, or the piece whose last batch was taken; None
        while that is still being read."""
        if self.under_way and self.under_way[0].ready:
            return self.under_way[0].ready.popleft()
        if self.under_way and self.under_way[0].over:
            return self.under_way.popleft()
        return None

    def begin(self) -> Piece:
        """Cut off the next piece. Towards the end pieces get smaller, to end at one time."""
        left = (self._range.end - self._next) // INDEX_ENTRY_BYTES
        entries = min(self._entries, max(_FIRST, -(-left // self._parallel)), left)
        end = self._next + INDEX_ENTRY_BYTES * entries
        piece = Piece.of(OffsetRange(self._range.partition, self._next, end), self._policy)
        self._next = end
        self.under_way.append(piece)
        return piece

    def end(self, piece: Piece, error: BaseException | None) -> None:
        """Nothing more comes of `piece`."""
        piece.over, piece.error = True, error
        batches, entries = piece.stats.batches, piece.range.entries
        wanted = entries * _BATCHES // batches if batches else 2 * entries
        self._entries = min(max(wanted, _FIRST), _MOST)
