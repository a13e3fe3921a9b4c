"""Shared by triggers: when to fire, how long to pause for a cluster that is down, how to serialise.

Pure decisions; time is an argument in seconds of any monotonic clock. Firing is level-triggered:
while lag remains it fires again, so an event that Airflow has lost or merged strands nothing; until
then a position that has not moved since the last event suppresses further ones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Final

from tubemq_provider.windows.spaces import FIRST_SOURCE


def arguments_of(trigger: Any, kind: type[Any]) -> dict[str, Any]:
    """Return the arguments of an equal trigger: the attributes named as the parameters of `kind`,
    in their order, by which Airflow identifies watchers. Those in `_LATER` are left out at their
    default: a watcher that had none of them stays the same one."""
    values = {name: getattr(trigger, name) for name in signature(kind).parameters}
    return {n: value for n, value in values.items() if n not in _LATER or value != _LATER[n]}


_LATER: Final = {"source": FIRST_SOURCE, "consumer_config": {}}
"""Arguments that triggers got after others were stored, with their defaults."""


def class_path(trigger: Any) -> str:
    """Return the import path by which Airflow stores a trigger."""
    return f"{type(trigger).__module__}.{type(trigger).__qualname__}"


@dataclass
class LagWatch:
    """Decision to fire, for one group.

    - `min_lag`: index entries of lag that fire at once.
    - `max_wait`: seconds after which any lag fires; None for never.
    - `fire_again_after`: seconds after which it fires again for lag that no run has claimed.
    """

    min_lag: int
    max_wait: float | None
    fire_again_after: float
    _behind_since: float | None = field(default=None, init=False)
    _lagging_since: float | None = field(default=None, init=False)
    _fired_at: float | None = field(default=None, init=False)
    _fired_for: dict[str, int] | None = field(default=None, init=False)

    def reason(
        self, now: float, lag: int, position: Mapping[str, int], *, untaken: int | None = None
    ) -> str | None:
        """Return the reason to fire now: ``lag``, ``age`` or ``again``; None for no event.

        `position` is where the next window begins. `untaken` is the part of `lag` that no run has
        claimed; only that fires at once, the rest again later in case its runs have ended.
        """
        if lag == 0:
            self._behind_since = self._lagging_since = None
            return None
        if self._lagging_since is None:
            self._lagging_since = now
        if self._behind_since is None:
            self._behind_since = now
        if self._fired_at is not None and position == self._fired_for:
            return "again" if now - self._fired_at >= self.fire_again_after else None
        fresh = lag if untaken is None else untaken
        if fresh >= self.min_lag:
            return "lag"
        waited = now - self._behind_since
        return "age" if fresh and self.max_wait is not None and waited >= self.max_wait else None

    @property
    def has_fired(self) -> bool:
        """True if it has fired, also by an earlier triggerer's note."""
        return self._fired_at is not None

    def behind(self, now: float) -> float:
        """Return the seconds for which every check has found lag, not interrupted by an event."""
        return 0.0 if self._lagging_since is None else now - self._lagging_since

    def note_event(self, now: float, position: Mapping[str, int]) -> None:
        """Note an event for `position`."""
        self._fired_at = now
        self._fired_for = dict(position)
        self._behind_since = None


@dataclass
class Backoff:
    """Exponential backoff from `first` to `last` seconds, with a jitter of a fifth."""

    first: float = 1.0
    last: float = 60.0
    failures: int = field(default=0, init=False)

    def failed(self) -> float:
        """Return the pause after one more failure."""
        self.failures += 1
        return jittered(min(self.last, self.first * 2 ** min(self.failures - 1, 16)))

    def worked(self) -> bool:
        """Reset. Returns True if there had been failures."""
        had, self.failures = self.failures > 0, 0
        return had


def jittered(seconds: float) -> float:
    """Return `seconds` with a jitter of a fifth, so that triggers do not poll in step."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, guards nothing
