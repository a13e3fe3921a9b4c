"""The Spark half of a source of another distribution: tasks read through the source itself."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.installed import toy_source_installed
from tubemq_client.errors import ConfigError
from tubemq_provider.spark.windows import batch_reader, reading
from tubemq_provider.windows.plan import WindowPlan, WindowScope


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WindowPlan]:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "north.0").write_text("a\nb\nc\nd\n")
    (tmp_path / "orders" / "south.0").write_text("e\n")
    scope = WindowScope("main", "orders", "lake", "sink", (), "", "lines")
    with toy_source_installed(tmp_path, monkeypatch):
        yield WindowPlan.explicit(scope, {"north.0": (1, 4), "south.0": (0, 1)})


def test_tasks_read_the_splits_of_a_window_through_the_source(
    plan: WindowPlan, tmp_path: Path
) -> None:
    with reading(str(tmp_path), plan) as options:
        reader = batch_reader({**options, "maxRecordsPerPartition": "2"})
    # A task gets it pickled, after the file is gone.
    reader = pickle.loads(pickle.dumps(reader))

    found, counted = [], 0
    for partition in reader.partitions():
        with reader.open_reader(partition) as opened:
            for batch in reader.batches_of(opened, partition.split.range):
                found += batch.messages()
            counted += opened.stats.records
    assert (sorted(found), counted) == (["b", "c", "d", "e"], 4)
    assert len(reader.partitions()) == 3


def test_an_option_that_no_read_of_a_window_has_is_refused(
    plan: WindowPlan, tmp_path: Path
) -> None:
    with (
        reading(str(tmp_path), plan) as options,
        pytest.raises(ConfigError, match="did you mean 'minPartitions'"),
    ):
        batch_reader({**options, "minPartition": "2"})
