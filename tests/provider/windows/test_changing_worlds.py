"""Nothing is lost, doubled or stuck where partitions, brokers, times and schedules change.

Random histories, and mistakes planted in the code that must be found by them: two for each kind of
change at least.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

import pytest

from tests.provider.windows.changing_worlds import OfHours, Shaken, ShakenClaims, TimeHistory
from tests.provider.windows.exploration import ViolationError
from tests.provider.windows.explore import choices
from tests.provider.windows.test_exploration import random_choices
from tubemq_client.model import PartitionEnds
from tubemq_provider.windows.cursor import Position
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.claims import ClaimBook
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.run.claimed_run import ClaimedRun
from tubemq_provider.windows.run.standalone_run import StandaloneRun


def test_no_history_of_time_windows_loses_or_repeats_a_record() -> None:
    for seed in range(120):
        TimeHistory(seed).play()


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])
def test_no_history_with_brokers_that_come_and_go_loses_or_repeats_a_record(fenced: bool) -> None:
    for seed in range(80):
        Shaken(fenced=fenced, purges=seed % 3 == 0).play(random_choices(seed, 120))


def test_no_history_of_claims_with_brokers_that_come_and_go_loses_or_repeats_a_record() -> None:
    for seed in range(12):
        ShakenClaims(fenced=seed % 2 == 0, purges=False).play(random_choices(seed, 120))


@pytest.mark.parametrize("seed", [400_163, 400_467, 401_317])
def test_a_partition_that_joined_in_a_lost_claim_is_read_once(seed: int) -> None:
    ShakenClaims(fenced=seed % 2 == 0, purges=False).play(choices(seed, 120))


@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_many_histories_of_changing_worlds() -> None:
    for seed in range(25_000):
        TimeHistory(seed).play()
        Shaken(fenced=seed % 2 == 0, purges=seed % 3 == 0).play(random_choices(seed, 120))
        ShakenClaims(fenced=seed % 2 == 0, purges=False).play(random_choices(seed, 120))


# -- seeded mistakes ------------------------------------------------------------------------------


def with_book(book: type[ScopeBook]) -> Callable[[int], None]:
    """Plays histories over a book with a mistake."""

    class Planner(OfHours):
        books = book

    return lambda seed: TimeHistory(seed, Planner).play()


class NoCeiling(ScopeBook):
    """Late records: looks at the boundary before, not at the one after."""

    def _sides(self, instant: datetime):  # type: ignore[no-untyped-def]
        return super()._sides(instant)._replace(above=None)


class NoFloor(ScopeBook):
    """Late records: looks at the boundary after, not at the one before."""

    def _sides(self, instant: datetime):  # type: ignore[no-untyped-def]
        return super()._sides(instant)._replace(below={})


class NoTurns(ScopeBook):
    """Order: boundaries of runs side by side are fixed without seeing each other."""

    def _turn_key(self, number: int) -> str:
        return f"{super()._turn_key(number)}-{id(self)}"


class NoSecondLook(ScopeBook):
    """Order: fits the answer to what was fixed before the resolver was asked."""

    def _look(self) -> None:
        if not self._instants:
            super()._look()


class JoinsTwice(ScopeBook):
    """Partition added: an older boundary names what a later one has left out."""

    def _sides(self, instant: datetime):  # type: ignore[no-untyped-def]
        sides = super()._sides(instant)
        return sides if sides.above is None else sides._replace(above=_Generous(sides.above))


class _Generous(dict[str, int]):
    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> int:
        return 1 << 40


class ForgetsTheUntold(ScopeBook):
    """Partition not announced: a boundary leaves out what nothing tells of."""

    def _missing(self, answer: Resolved, sides: object) -> dict[str, str]:
        return {}

    def _sides(self, instant: datetime):  # type: ignore[no-untyped-def]
        return super()._sides(instant)._replace(below={})


class UntoldIsRead(ScopeBook):
    """Partition not announced: a boundary has what nothing tells of end a record further."""

    def _missing(self, answer: Resolved, sides: object) -> dict[str, str]:
        return {}

    def _fitted(self, instant: datetime, name: str, answer: Resolved, *rest, **more) -> Document:  # type: ignore[no-untyped-def]
        document = super()._fitted(instant, name, answer, *rest, **more)
        for key in document["offsets"].keys() - answer.offsets:
            document["offsets"][key] += 0 if self.is_retired(key) else 28
        return document


class RetiredIsForgotten(ScopeBook):
    """Broker decommissioned and back: boundaries no longer name its partitions."""

    def _sides(self, instant: datetime):  # type: ignore[no-untyped-def]
        sides = super()._sides(instant)
        kept = {
            key: offset for key, offset in (sides.below or {}).items() if not self.is_retired(key)
        }
        return sides._replace(below=kept)


class RetiredIsRead(ScopeBook):
    """Broker decommissioned and back: what it has counts as read."""

    def _fitted(self, instant: datetime, name: str, answer: Resolved, *rest, **more) -> Document:  # type: ignore[no-untyped-def]
        document = super()._fitted(instant, name, answer, *rest, **more)
        for key in document["offsets"]:
            if self.is_retired(key) and key not in answer.offsets:
                document["offsets"][key] += 28
        return document


class JoinsAtItsEnd(OfHours):
    """Partition added: what it had before its first boundary counts as read."""

    def _joining(self, key: str, known: PartitionEnds | None, end: int) -> int:
        return end


class NoIntervals(StandaloneRun):
    """Changed schedule: intervals are not compared."""

    def _refuse_overlaps(self) -> Iterator[str]:
        yield "nothing compared"


class ComparesOnce(StandaloneRun):
    """Changed schedule: intervals are compared before planning and not before publishing."""

    def _refuse_if_overtaken(self, plan: WindowPlan) -> Iterator[str]:
        yield "nothing compared"


class TakesAwayForNew(CursorPlanner):
    """Broker dead: partitions that are away lose their place, and join again at their beginning."""

    def plan(self, position: Position) -> WindowPlan | None:
        here = {key: start for key, start in position.next.items() if key in self._known}
        return super().plan(Position(position.seq, here, position.last))


class TakesAwayForRead(CursorPlanner):
    """Broker dead: partitions that are away are taken to end one record further."""

    def plan(self, position: Position) -> WindowPlan | None:
        found = super().plan(position)
        if found is None or not found.absent:
            return found
        ranges: Mapping[str, tuple[int, int]] = {
            key: (end + 28, end + 28) if key in found.absent else (start, end)
            for key, (start, end) in found.ranges.items()
        }
        return WindowPlan.cursor(self.scope, found.seq or 0, ranges, resets=position.next)


class TakesUpWhatIsAway(CursorPlanner):
    """Broker dead, or gone for good: its claims are taken over by each run, which fails."""

    def waits_for(self, claim: WindowPlan) -> list[str]:
        return []


class GivesUpTheWholeClaim(CursorPlanner):
    """Broker gone for good: its claims are gaps as a whole."""

    def given_up(self, claim: WindowPlan, begun_anew: Collection[str]) -> set[str]:
        return set(claim.ranges) if super().given_up(claim, begun_anew) else set()


class SkipsWhatJoinedInAHole(ClaimedRun):
    """Partition added, ledger lost: what joined in a lost claim counts as read up to there."""

    def _rebuild(self, accepted: Position | None, result: list[ClaimBook]) -> Iterator[str]:
        yield from super()._rebuild(accepted, result)
        for number, book in enumerate(result):
            pending = {
                key: replace(
                    claim,
                    plan=replace(
                        claim.plan,
                        ranges={
                            name: (end if name in claim.plan.joined else start, end)
                            for name, (start, end) in claim.plan.ranges.items()
                        },
                    ),
                )
                for key, claim in book.pending.items()
            }
            result[number] = replace(book, pending=pending)


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(with_book(NoCeiling), id="late records: no ceiling"),
        pytest.param(with_book(NoFloor), id="late records: no floor"),
        pytest.param(with_book(NoTurns), id="any order: no turns"),
        pytest.param(with_book(NoSecondLook), id="any order: no second look"),
        pytest.param(with_book(JoinsTwice), id="added: joins twice"),
        pytest.param(
            lambda seed: TimeHistory(seed, JoinsAtItsEnd).play(), id="added: joins at its end"
        ),
        pytest.param(
            # One history in a hundred gets there; the first of these does.
            lambda seed: ShakenClaims(
                fenced=seed % 2 == 1, purges=False, make_run=SkipsWhatJoinedInAHole
            ).play(choices(401_317 + seed, 120)),
            id="added: skipped in a hole",
        ),
        pytest.param(with_book(ForgetsTheUntold), id="unannounced: forgotten"),
        pytest.param(with_book(UntoldIsRead), id="unannounced: taken for read"),
        pytest.param(with_book(RetiredIsForgotten), id="back: forgotten"),
        pytest.param(with_book(RetiredIsRead), id="back: taken for read"),
        pytest.param(
            lambda seed: TimeHistory(seed, make_run=NoIntervals).play(), id="schedule: not compared"
        ),
        pytest.param(
            lambda seed: TimeHistory(seed, make_run=ComparesOnce).play(),
            id="schedule: compared once",
        ),
        pytest.param(
            lambda seed: Shaken(planner_type=TakesAwayForNew).play(random_choices(seed, 120)),
            id="dead: taken for new",
        ),
        pytest.param(
            lambda seed: Shaken(planner_type=TakesAwayForRead).play(random_choices(seed, 120)),
            id="dead: taken for read",
        ),
        pytest.param(
            lambda seed: ShakenClaims(planner_type=TakesUpWhatIsAway, purges=False).play(
                random_choices(seed, 120)
            ),
            id="dead: claims taken up",
        ),
        pytest.param(
            lambda seed: ShakenClaims(planner_type=GivesUpTheWholeClaim, purges=False).play(
                random_choices(seed, 120)
            ),
            id="gone: claims given up whole",
        ),
    ],
)
def test_planted_mistakes_in_a_changing_world_are_found(play: Callable[[int], None]) -> None:
    for seed in range(2_000):
        try:
            play(seed)
        except ViolationError:
            return
    pytest.fail("2000 random histories did not find the mistake")
