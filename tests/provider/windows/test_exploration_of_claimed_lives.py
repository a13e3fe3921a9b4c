"""Claims over logs that are recreated: no record lost or doubled, and no claim that stays for ever.

Where windows were claimed in a ledger that is gone, an error names it and how to continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.provider.windows import explore
from tests.provider.windows.claimed_lives import ClaimedLives
from tests.provider.windows.exploration import ViolationError
from tests.provider.windows.test_exploration_of_lives import choices
from tubemq_provider.windows.planning.claims import ClaimBook
from tubemq_provider.windows.run.claimed_run import ClaimedRun


def test_no_life_loses_or_repeats_a_record_of_a_claim() -> None:
    for seed in range(200):
        ClaimedLives(fenced=seed % 2 == 0).play(choices(seed))


@pytest.mark.parametrize(
    "seed", [240, 392, 471, 724, 727, 869, 913, 929, 1156, 2970, 5398, 5_016_921]
)
def test_histories_of_claims_that_went_wrong_once(seed: int) -> None:
    """A claim over a lost disk was adopted for ever; a window that began again where the position
    was hid a claim; a hole was filled from another life."""
    ClaimedLives(fenced=seed % 2 == 0).play(choices(seed))


def test_a_record_behind_the_position_does_not_stand_for_its_log() -> None:
    """A claim that ended before the record of an earlier life was read from a third one."""
    explore.KINDS["lives of claims"](10043)


def test_a_hole_that_no_run_can_fill_ends_in_advice() -> None:
    """Runs continued behind it for ever, green, and what the log of now had at its offsets was read
    by none."""
    explore.KINDS["lives of claims"](10654)


def test_a_hole_between_two_lives_of_a_log_is_no_window_of_one() -> None:
    """The lost claim began again and ended where the window before it did."""
    explore.KINDS["lives of claims"](9007752)


# -- seeded mistakes ----------------------------------------------------------------------------


class AdoptsAnything(ClaimedRun):
    """Mistake: a claim is taken over though its log is gone, and a reset has to come first."""

    def _plan(self) -> Iterator[str]:
        self._planner.claimable = lambda claim: True  # type: ignore[method-assign]
        yield from super()._plan()


def adopting(*args: Any, **options: Any) -> AdoptsAnything:
    return AdoptsAnything(*args, **options)


def whole(self: ClaimBook, plan: Any) -> Any:
    """Mistake: what a reset gave to later windows stays in a claim."""
    return plan


@pytest.mark.parametrize(
    ("history", "remaining"),
    [
        pytest.param(lambda: ClaimedLives(adopting), None, id="adopts anything"),
        pytest.param(ClaimedLives, whole, id="claims stay whole"),
        pytest.param(lambda: ClaimedLives(rebuilds=False), None, id="restored ledger believed"),
    ],
)
def test_planted_mistakes_with_claims_are_found(
    history: Callable[[], ClaimedLives], remaining: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if remaining is not None:
        monkeypatch.setattr(ClaimBook, "remaining", remaining)
    for seed in range(1000):
        try:
            history().play(choices(seed))
        except ViolationError:
            return
    pytest.fail("1000 random histories did not find the mistake")
