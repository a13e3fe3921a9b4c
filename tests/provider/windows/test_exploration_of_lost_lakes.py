"""Lakes that lose windows and progress that comes back older: nothing is lost in silence or twice.

More of them by hand: ``python -m tests.provider.windows.explore --kind "lost lakes" --histories
20000``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.provider.windows import explore
from tests.provider.windows.exploration import ViolationError
from tests.provider.windows.lost_lakes import LostLakes, LostLakesOfClaims
from tubemq_provider.windows.run.claimed_run import ClaimedRun
from tubemq_provider.windows.run.cursor_run import CursorRun


@pytest.mark.parametrize("kind", ["lost lakes", "lost lakes of claims"])
def test_no_lake_that_lost_windows_is_gone_on_with_in_silence(kind: str) -> None:
    for seed in range(60):
        explore.KINDS[kind](seed)


def test_an_epoch_begins_behind_what_the_lake_has_of_a_claim() -> None:
    """Claims of an older backup were shorter than the window that was published since."""
    explore.KINDS["lost lakes of claims"](2454)


def test_a_claim_of_when_the_lake_was_away_is_not_written_over_its_windows() -> None:
    """A backup from before all progress, the lake away, the first window claimed again."""
    explore.KINDS["lost lakes of claims"](4473)


class NeverLooks(CursorRun):
    """Mistake: no run asks for the window on which the position stands."""

    def _refuse_lost_windows(self) -> Iterator[str]:
        yield "nothing looked for"


class NeverLooksWithClaims(ClaimedRun):
    """The same with claims."""

    def _refuse_lost_windows(self) -> Iterator[str]:
        yield "nothing looked for"


class LooksForThePositionOnly(ClaimedRun):
    """Mistake: windows that were published last, out of order, are not asked for."""

    def _refuse_lost_windows(self) -> Iterator[str]:
        yield from CursorRun._refuse_lost_windows(self)


class ForgetsWhatWasSet(CursorRun):
    """Mistake: a position that a person has set is compared with the sink like others."""

    def _refuse_lost_windows(self) -> Iterator[str]:
        if self._now.position is not None:
            self._now.reach(replace(self._now.position, by_hand=False))
        yield from super()._refuse_lost_windows()


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        (LostLakes, NeverLooks),
        (LostLakesOfClaims, NeverLooksWithClaims),
        (LostLakesOfClaims, LooksForThePositionOnly),
        (LostLakes, ForgetsWhatWasSet),
    ],
)
def test_planted_mistakes_are_found(kind: Callable[..., LostLakes], run: type[CursorRun]) -> None:
    for seed in range(1500):
        try:
            kind(run, fenced=seed % 2 == 0).play(explore.choices(seed, 110))
        except ViolationError:
            return
    pytest.fail("1500 random histories did not find the mistake")
