"""When a watcher rings, and how long it leaves a cluster alone that does not answer.

Pure decisions; time is an argument in seconds of any clock that does not go back. Ringing is
level-triggered: as long as lag remains it rings again, so an event that Airflow has lost or merged
strands nothing, and a position that has not moved since the last ring keeps it quiet meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Backoff", "LagWatch"]


@dataclass
class LagWatch:
    """Decides for one group.

    - `min_lag`: index entries that make it ring at once.
    - `max_wait`: seconds after which any lag at all makes it ring; None never.
    - `ring_again_after`: seconds after which it rings once more for lag that nothing has taken.
    """

    min_lag: int
    max_wait: float | None
    ring_again_after: float
    _behind_since: float | None = field(default=None, init=False)
    _lagging_since: float | None = field(default=None, init=False)
    _rung_at: float | None = field(default=None, init=False)
    _rung_for: dict[str, int] | None = field(default=None, init=False)

    def reason(
        self, now: float, lag: int, position: Mapping[str, int], *, untaken: int | None = None
    ) -> str | None:
        """Why to ring now: ``lag``, ``age`` or ``again``; None to stay quiet.

        `position` is where the next window begins. `untaken` is the part of `lag` that no run has
        claimed; only that rings at once, the rest rings again in case its runs have ended.
        """
        if lag == 0:
            self._behind_since = self._lagging_since = None
            return None
        if self._lagging_since is None:
            self._lagging_since = now
        if self._behind_since is None:
            self._behind_since = now
        if self._rung_at is not None and position == self._rung_for:
            return "again" if now - self._rung_at >= self.ring_again_after else None
        fresh = lag if untaken is None else untaken
        if fresh >= self.min_lag:
            return "lag"
        waited = now - self._behind_since
        return "age" if fresh and self.max_wait is not None and waited >= self.max_wait else None

    @property
    def has_rung(self) -> bool:
        """Whether it has, since it began or by what was noted before."""
        return self._rung_at is not None

    def behind(self, now: float) -> float:
        """Seconds for which every look has seen lag; a ring is no break."""
        return 0.0 if self._lagging_since is None else now - self._lagging_since

    def rang(self, now: float, position: Mapping[str, int]) -> None:
        """Note that it has rung for `position`."""
        self._rung_at = now
        self._rung_for = dict(position)
        self._behind_since = None


@dataclass
class Backoff:
    """Pauses that double from `first` to `last` seconds, with a jitter of a fifth."""

    first: float = 1.0
    last: float = 60.0
    failures: int = field(default=0, init=False)

    def failed(self) -> float:
        """The pause after one more failure."""
        self.failures += 1
        return jittered(min(self.last, self.first * 2 ** min(self.failures - 1, 16)))

    def worked(self) -> bool:
        """Begin anew. Returns whether there had been failures."""
        had, self.failures = self.failures > 0, 0
        return had


def jittered(seconds: float) -> float:
    """`seconds`, a fifth more or less, so that many triggers do not ask in step."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, guards nothing
