"""Exactly-once under any interleaving: random histories, systematic ones, and seeded mistakes.

The protocol's promise is about all orders of events, so it is explored rather than exemplified.
That the exploration can find something is shown by runs with mistakes planted in them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.provider.windows import explore
from tests.provider.windows.exploration import WIDTH, Claimed, History, SetByHand, ViolationError
from tests.provider.windows.world import MemorySink, ReplacingMemorySink
from tubemq_provider.windows.cursor import Cursor
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import (
    IngestCounts,
    Marker,
    Progress,
    Publication,
    Staging,
)
from tubemq_provider.windows.run.claimed_run import ClaimedRun
from tubemq_provider.windows.run.cursor_run import CursorRun

CHOICE = st.integers(min_value=0, max_value=17 * WIDTH - 1)
CHOICES = st.lists(CHOICE, min_size=20, max_size=150)


def random_choices(seed: int, count: int = 100) -> Iterator[int]:
    source = random.Random(seed)
    return (source.randrange(17 * WIDTH) for _ in range(count))


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])
def test_no_history_loses_or_repeats_a_record(fenced: bool) -> None:
    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(CHOICES)
    def explore(choices: list[int]) -> None:
        History(fenced=fenced).play(choices)

    explore()


@pytest.mark.parametrize("kind", [History, Claimed])
@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])
def test_no_history_with_claims_or_rewrites_loses_or_repeats_a_record(
    kind: type[History], fenced: bool
) -> None:
    for seed in range(80):
        sink = ReplacingMemorySink() if seed % 2 else MemorySink()
        kind(fenced=fenced, purges=seed % 3 == 0, sink=sink).play(random_choices(seed, 150))


@pytest.mark.parametrize("seed", [5008492, 5010578])
def test_a_claim_that_a_hole_took_along_is_not_missed(seed: int) -> None:
    """Its task, tried again, said that the sink had lost the window."""
    explore.KINDS["claims"](seed)


@pytest.mark.parametrize("seed", range(4))
def test_long_histories(seed: int) -> None:
    History(fenced=seed % 2 == 0, purges=seed < 2).play(random_choices(seed, 800))


def test_two_runs_stopped_anywhere() -> None:
    """Run A stops at any point, run B at any point; then A continues or is dead, asset state is
    wiped or not. All combinations."""
    points = _length_of_a_run()
    for a_stops in range(points):
        for b_stops in range(0, points, 3):
            for wipe in (False, True):
                for a_goes_on in (False, True):
                    _two_runs(a_stops, b_stops, wipe=wipe, a_goes_on=a_goes_on)


def _length_of_a_run() -> int:
    history = History()
    history.start_task(0)
    task = history.tasks[0]
    count = 0
    while task.current is not None:
        history._step(task, task.current)
        count += 1
    return count


def _two_runs(a_stops: int, b_stops: int, *, wipe: bool, a_goes_on: bool) -> None:
    history = History()
    history.start_task(0)
    a = history.tasks[0]
    for _ in range(a_stops):
        if a.current is not None:
            history._step(a, a.current)
    history.append(1)
    history.start_task(0)
    b = history.tasks[1]
    for _ in range(b_stops):
        if b.current is not None:
            history._step(b, b.current)
    if wipe:
        history.wipe(0)
    while a_goes_on and a.current is not None:
        history._step(a, a.current)
    history.check()
    history.finish()


def test_the_cursor_never_jumps_over_what_an_operator_set() -> None:
    for seed in range(300):
        SetByHand(wipes=False).play(random_choices(seed, 120))


def test_a_first_run_that_slept_while_others_began_the_group_is_no_error() -> None:
    """It saw no ledger; since then others made one and published window 2 before window 1."""
    Claimed(fenced=True, purges=False, sink=MemorySink()).play(random_choices(520))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_histories() -> None:
    for seed in range(20_000):
        for kind in (History, Claimed):
            sink = ReplacingMemorySink() if seed % 5 else MemorySink()
            kind(fenced=seed % 2 == 0, purges=seed % 3 == 0, sink=sink).play(random_choices(seed))


# -- seeded mistakes ----------------------------------------------------------------------------


class TakesOwnPlanForWritten(CursorRun):
    """Mistake: after losing the race to publish, continues with its own ends."""

    def _adopt(self, plan: WindowPlan, marker: Marker) -> Iterator[str]:
        self._now.plan = plan
        self._now.marker = marker
        yield "own plan kept"


class SkipsTheMarkerCheck(CursorRun):
    """Mistake: never asks the sink whether the window is written (see `OverwritingSink`)."""

    def _check(self) -> Iterator[str]:
        yield "nothing checked"

    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        yield "nothing checked"


class OverwritingSink(MemorySink):
    """A sink that relies on the check: publishing replaces what is there."""

    def publish(
        self, staging: Staging, plan: WindowPlan, counts: IngestCounts, progress: Progress
    ) -> Publication:
        self.windows.pop(plan.window_id, None)
        self.staged.setdefault(staging.path, [])
        return super().publish(staging, plan, counts, progress)

    def tidy(self, window_id: str) -> None:
        """Leave other tries alone, so that they come to publish."""


class AdvancesWhateverTheCursorSays(CursorRun):
    """Mistake: only looks at the number of the window, not at where it starts."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]

        def may_advance(cursor: Cursor | None) -> bool:
            return cursor is None or cursor.seq < self._position().seq

        self._now.may_advance = may_advance  # type: ignore[method-assign]


class AdvancesBeforePublishing(CursorRun):
    """Mistake: the cursor moves as soon as the window is ingested."""

    def _ingest(self) -> Iterator[str]:
        yield from super()._ingest()
        self._now.arrive()
        yield from super()._advance()


class ReleasesClaims(ClaimedRun):
    """Mistake: the claim of a run that has ended is dropped, and what it had is planned again."""

    def _adopt_dead_claim(self) -> Iterator[str]:
        for claim in self._known().in_order():
            if self._store.is_over(claim.by):
                window_id = claim.plan.window_id
                self._change(
                    lambda book, window_id=window_id: replace(  # type: ignore[misc]
                        book,
                        pending={k: c for k, c in book.pending.items() if k != window_id},
                    )
                )
                yield "claim dropped"


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(lambda: History(TakesOwnPlanForWritten), id="own plan kept"),
        pytest.param(
            lambda: History(SkipsTheMarkerCheck, sink=OverwritingSink()),
            id="no marker check",
        ),
        pytest.param(
            lambda: SetByHand(AdvancesWhateverTheCursorSays, wipes=False),
            id="advance without start == next",
        ),
        pytest.param(lambda: History(AdvancesBeforePublishing), id="advance too early"),
        pytest.param(lambda: Claimed(ReleasesClaims, fenced=False), id="claims released"),
    ],
)
def test_planted_mistakes_are_found(history: Callable[[], History]) -> None:
    for seed in range(2000):
        try:
            history().play(random_choices(seed))
        except ViolationError:
            return
    pytest.fail("2000 random histories did not find the mistake")
