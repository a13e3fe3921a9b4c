"""Nothing is lost, doubled or stuck in the weeks of a group, at operators, stores and commands.

More of them by hand: ``python -m tests.provider.weeks.play --weeks 500 --kind sets``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.provider.weeks.oracle import ViolationError
from tests.provider.weeks.play import KINDS, play
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.run.cursor_run import CursorRun

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Tasks tell a log much, and thousands of them die here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def play_many(kind: str, count: int, directory: Path) -> None:
    for seed in range(count):
        play(kind, seed, directory / str(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_no_week_loses_or_repeats_a_record_or_ends_without_a_way_out(
    kind: str, tmp_path: Path
) -> None:
    play_many(kind, 8, tmp_path)


def ends_of_new_ones(planner: CursorPlanner, key: str, _: object) -> int:
    """Planted: a partition joins at its end."""
    return planner._known[key].max_offset


def looks_no_further(_: CursorRun) -> Iterator[str]:
    """Planted: windows of runs that died are not followed."""
    yield "nothing followed"


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (CursorPlanner, "_resolve", ends_of_new_ones),
        (CursorRun, "_follow_markers", looks_no_further),
    ],
)
def test_planted_mistakes_are_found(
    owner: type, name: str, mistake: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises(ViolationError):
        play_many("stores", 60, tmp_path)


def looks_for_no_window(_: CursorRun) -> Iterator[str]:
    """Planted: the window on which the position stands is not looked for."""
    yield "nothing looked for"


def test_a_run_that_skips_the_search_of_windows_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CursorRun, "_refuse_lost_windows", looks_for_no_window)
    with pytest.raises(ViolationError):
        play_many("lakes", 60, tmp_path)
