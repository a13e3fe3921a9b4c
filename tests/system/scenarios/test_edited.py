"""A Dag that is edited between two tries of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.scenarios.conftest import FIRST, HOUR, Scene

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]


def test_scenario_25_days_become_hours_before_a_failed_day_is_cleared(
    scene: Scene, dags_folder: Path
) -> None:
    scene.begin()
    (scene.root / "s25.json").write_text("{}")
    day = scene.trigger(partition_key=f"{FIRST:%Y-%m-%dT%H:%M:%S}")
    assert "no boundary of topic" in scene.failure(day)

    file = dags_folder / "edited.py"
    file.write_text(file.read_text().replace('CRON = "0 0 * * *"', 'CRON = "0 * * * *"'))
    scene.cut_hours(*[4] * 24)
    found = scene.clear(day)
    assert (found["total"], found["start"][:13], found["end"][:13]) == (
        96,
        "2026-01-01T00",
        "2026-01-02T00",
    )
    assert "it keeps its interval, 2026-01-01T00:00:00Z to" in scene.airflow.logs("s25", day)
    assert scene.coverage().intervals.done == ((FIRST, FIRST + 24 * HOUR),)
    scene.expect_whole(windows=1)
