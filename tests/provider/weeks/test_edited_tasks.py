"""A task that is edited after a try has died with its window published: nothing is stored twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.provider.weeks.weeks import GROUP, Ingest, Killed, Run, Weeks
from tubemq_provider.sinks.factory import sink_for

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(120)]


class Edited(Weeks):
    """A group whose first try dies right after its window is published."""

    edits: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

    def at(self, name: str, point: str) -> None:
        if not self.edits and point.endswith(": tidied"):
            raise Killed(point)

    def operator(self, run: Run, **more: Any) -> Any:
        given = {
            "task_id": "ingest",
            "topic": self.topic.name,
            "group": GROUP,
            "sink": str(self.lake),
            "initial_position": "earliest",
            "offset_store": self.store,
            "cluster": "test",
            "engine": "inline",
            "retries": 2,
            "max_active_tis_per_dag": 4,
            **self.edits,
        }
        task = Ingest(**given)
        task.world, task.run_name = self, run.name
        return task


def begun(directory: Path, store: str) -> tuple[Edited, Run]:
    weeks = Edited(1, directory / "a")
    weeks.store = store
    weeks.topic.produce(weeks.topic.places() * 3)
    weeks.flush()
    run = Run("r0")
    assert weeks.attempt(run, dies=False) is None
    assert len(weeks.windows) == 1
    return weeks, run


@pytest.mark.parametrize("store", ["asset_state", "events", "ledger"])
@pytest.mark.parametrize("edit", ["path", "kind", "table", "filters"])
def test_a_try_after_an_edit_does_not_store_the_window_again(
    edit: str, store: str, tmp_path: Path
) -> None:
    weeks, run = begun(tmp_path, store)
    changed: dict[str, dict[str, Any]] = {
        "path": {"sink": str(tmp_path / "b")},
        "kind": {"sink": f"delta:{tmp_path}/b"},
        "table": {"sink": f"sqlite:///{tmp_path}/b.db?table=orders"},
        "filters": {"filters": ["one"]},
    }
    weeks.edits = changed[edit]
    error = weeks.attempt(run, dies=False)
    assert "IdentityMismatch" in str(error)
    if edit != "filters":
        assert list(sink_for(weeks.edits["sink"]).window_ids()) == []
    if store != "ledger":
        assert "Set the task's arguments back as they were" in str(error)
    weeks.edits = {"sink": str(weeks.lake)}
    assert weeks.attempt(run, dies=False) is None
    assert run.state == "success"
    assert set(weeks.stored.values()) == {1}
    assert len(weeks.windows) == 1


@pytest.mark.parametrize("store", ["asset_state", "events"])
def test_a_task_that_failed_and_is_cleared_after_an_edit_is_refused_as_well(
    store: str, tmp_path: Path
) -> None:
    weeks, run = begun(tmp_path, store)
    weeks.edits = {"sink": str(tmp_path / "b")}
    run.clears += 1
    assert "IdentityMismatch" in str(weeks.attempt(run, dies=False))
    assert not (tmp_path / "b").exists()
