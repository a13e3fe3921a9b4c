"""No edit of a Dag between tries loses or doubles a record, or makes the log say what is not so.

More of them by hand: ``python -m tests.provider.edits.editor --edits 200``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.provider.edits import editor
from tests.provider.edits.editor import Wrong, play, topic_of_quarters
from tubemq_provider.operators import intervals

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def cluster() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    with topic_of_quarters():
        yield
    logging.disable(logging.NOTSET)


def test_edits_end_right_or_in_a_refusal(tmp_path: Path) -> None:
    edits: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for seed in (1, 2, 4):
        played = play(seed, 8, tmp_path / str(seed))
        edits += played.edits
        outcomes += played.outcomes
    assert edits.total() >= 24
    assert outcomes["green"]
    assert outcomes["killed"]
    raw = {name for name in outcomes if name.startswith("refused ") and name.endswith("Exception")}
    assert not raw


def test_an_interval_that_is_not_kept_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the end of a partition is that of the timetable as it is now."""

    def now(context: object, date: object, granularity: object, log: object) -> object:
        end = intervals.partition_end(context, date, granularity)  # type: ignore[arg-type]
        if end is not None:
            state = context["task_state_store"]  # type: ignore[index]
            if state.get(intervals.KEPT) is None:
                kept = {"start": intervals.rfc3339(date), "end": intervals.rfc3339(end)}  # type: ignore[arg-type]
                state.set(intervals.KEPT, kept)
        return date, end

    monkeypatch.setattr(intervals, "_partition", now)
    # Only the timetable is edited.
    only = {name: choices[:1] for name, choices in editor.CHOICES.items()}
    monkeypatch.setattr(editor, "CHOICES", {**only, "timetable": editor.CHOICES["timetable"]})
    with pytest.raises(Wrong, match="stands for"):
        _ = [play(seed, 8, tmp_path / str(seed)) for seed in range(8)]
