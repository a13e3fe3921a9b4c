"""Readers that know nothing of windows: DuckDB and polars, whose globs skip no name."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.kit.forked import CONTEXT
from tests.provider.sinks.openers import delta, object_store
from tests.provider.sinks.windows import CHILD_TIMEOUT, COUNTS, ignore, plan_of, publish, stage
from tubemq_client import Partition
from tubemq_client.errors import ConfigError
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.files.quarantine import CORRUPT, CORRUPT_SUFFIX, QuarantineFile
from tubemq_provider.sinks.append import AppendSink
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.testing.sink_suite import Row, rows_of, written_by
from tubemq_provider.windows.protocols import IngestCounts, Sink, Staging

PATTERNS = ("**/*.parquet", "*/*.parquet", "window_id=*/*.parquet")


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(tmp_path / "orders")


def found_in(root: Path, *patterns: str) -> list[Counter[Row]]:
    """Return the records of each reader with each pattern."""
    return [found for pattern in patterns for found in _readers(f"{root}/{pattern}")]


def _readers(pattern: str) -> Iterator[Counter[Row]]:
    query = f"SELECT partition, value FROM read_parquet('{pattern}', union_by_name=true)"
    yield Counter(duckdb.sql(query).fetchall())
    scanned = polars.scan_parquet(pattern, hive_partitioning=True)
    yield Counter(scanned.select("partition", "value").collect().rows())


class DamagedRecord:
    partition = Partition.from_key("orders", "1:0")
    batch_offset, position, message_id, data = 0, 1, 7, b"broken"


def set_one_aside(staging: Staging) -> None:
    aside = QuarantineFile()
    with aside.into(LocalLocation(Path(staging.path)), f"{CORRUPT}/records{CORRUPT_SUFFIX}"):
        aside.add(DamagedRecord())


@pytest.mark.parametrize("point", ["files verified", "staging on disk", "renamed"])
def test_globs_find_what_is_published_and_nothing_else(sink: ParquetSink, point: str) -> None:
    """While tries are at work, after one died, and with corrupt records set aside."""
    publish(sink, plan_of(sink, 1), "one")
    stage(sink.begin(plan_of(sink, 2), "dead"), "dead")
    expected = written_by("one")

    def look(at: str) -> None:
        if at == point:
            now = expected + (written_by("two") if point == "renamed" else Counter())
            assert found_in(sink.root, *PATTERNS) == [now] * 6

    staging = sink.begin(plan_of(sink, 2), "two")
    stage(staging, "two")
    set_one_aside(staging)
    counts = IngestCounts(COUNTS.records, COUNTS.bytes, corrupt=1)
    assert sink.publish(staging, plan_of(sink, 2), counts, look).won
    expected += written_by("two")
    assert found_in(sink.root, *PATTERNS) == [expected] * 6
    (aside,) = sink.root.glob(f"window_id=*/{CORRUPT}/*")
    assert pq.read_table(aside)["data"].to_pylist() == [b"broken"]


def test_globs_of_an_appended_directory_find_whole_files_only(tmp_path: Path) -> None:
    sink = AppendSink(tmp_path / "lake", exactly_once=False)
    publish(sink, plan_of(sink), "one")
    stage(sink.begin(plan_of(sink, 2), "dead"), "dead")
    assert found_in(tmp_path / "lake", "**/*.parquet", "*.parquet") == [written_by("one")] * 4


def test_what_earlier_releases_left_in_the_root_is_tidied(sink: ParquetSink) -> None:
    plan = plan_of(sink)
    old = sink.root / "_staging" / f"{plan.window_id}.dag-run-1"
    old.mkdir(parents=True)
    stage(Staging(plan.window_id, "dag-run-1", str(old)), "old")
    publish(sink, plan, "a")
    sink.tidy(plan.window_id)
    assert not old.exists()
    assert rows_of(sink) == written_by("a")


def test_a_try_that_an_earlier_release_staged_in_the_root_can_be_published(
    sink: ParquetSink,
) -> None:
    plan = plan_of(sink)
    old = sink.root / "_staging" / f"{plan.window_id}.dag-run-1"
    old.mkdir(parents=True)
    staging = Staging(plan.window_id, "dag-run-1", str(old))
    stage(staging, "old")
    assert sink.publish(staging, plan, COUNTS, ignore).won
    assert found_in(sink.root, *PATTERNS) == [written_by("old")] * 6


@pytest.mark.parametrize("trouble", ["in the way", "open to others"])
def test_where_nothing_can_be_staged_beside_the_root_it_is_staged_inside(
    sink: ParquetSink, trouble: str
) -> None:
    sink.root.mkdir(parents=True)
    beside = sink.root.with_name(f".{sink.root.name}.tubemq-staging")
    if trouble == "in the way":
        beside.write_text("")
    else:
        beside.mkdir()
        beside.chmod(0o777)
    staging = sink.begin(plan_of(sink), "a")
    assert Path(staging.path).parent == sink.root / "_staging"
    stage(staging, "a")
    assert sink.publish(staging, plan_of(sink), COUNTS, ignore).won
    assert rows_of(sink) == written_by("a")


def test_windows_get_group_and_access_from_the_root(sink: ParquetSink) -> None:
    sink.root.mkdir(parents=True)
    sink.root.chmod(0o2775)
    assert publish(sink, plan_of(sink)).won
    (window,) = sink.root.glob("window_id=*")
    assert window.stat().st_mode & stat.S_ISGID
    assert window.stat().st_gid == sink.root.stat().st_gid


@pytest.mark.parametrize("kind", ["delta", "object_store"])
def test_files_are_copied_where_the_system_cannot_rename_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Two bind mounts of one disk look like one file system, and are not for a rename."""
    rename = os.rename

    def no_rename(source: Path, target: Path) -> None:
        if str(source).startswith(str(tmp_path / "work")):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "rename", no_rename)
    open_sink = delta if kind == "delta" else object_store
    sink = open_sink(str(tmp_path / "lake"), tmp_path / "work")
    assert publish(sink, plan_of(sink)).won
    if isinstance(sink, ObjectStoreSink):
        assert rows_of(sink) == written_by("a")
    else:
        files = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table()
        assert sorted(files["value"].to_pylist()) == [b"a 0", b"a 1", b"a 2"]


def _copy_and_die(kind: str, root: Path) -> None:
    """Kill a process in the middle of copying a file from another disk."""

    def other_disk(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    def copy(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:100])
        os.kill(os.getpid(), signal.SIGKILL)

    os.rename, shutil.copyfile = other_disk, copy  # type: ignore[assignment]
    sink = (delta if kind == "delta" else object_store)(str(root / "lake"), root / "work")
    publish(sink, plan_of(sink))


@pytest.mark.parametrize("kind", ["delta", "object_store"])
def test_half_a_copy_of_a_killed_process_is_removed_by_the_next_try(
    tmp_path: Path, kind: str
) -> None:
    child = CONTEXT.Process(target=_copy_and_die, args=(kind, tmp_path))
    child.start()
    child.join(CHILD_TIMEOUT)
    assert child.exitcode == -signal.SIGKILL
    sink = (delta if kind == "delta" else object_store)(str(tmp_path / "lake"), tmp_path / "work")
    place = tmp_path / "lake" / ("windows" if kind == "delta" else "data")
    assert [path.stat().st_size for path in place.rglob("*") if path.is_file()] == [100]
    found = publish(sink, plan_of(sink))
    sink.tidy(plan_of(sink).window_id)
    files = {path.relative_to(tmp_path / "lake") for path in place.rglob("*") if path.is_file()}
    assert files == {Path(name) for name in found.marker.files}


def test_a_staging_root_that_cannot_serve_is_refused_with_the_way_out(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("one file system only")
    root = str(tmp_path / "lake")
    sink: Sink = sink_for(root, staging_root=elsewhere)
    with pytest.raises(ConfigError, match="on the same file system"):
        sink.begin(plan_of(sink), "a")
    sink = sink_for(root, staging_root=tmp_path / "work")
    assert publish(sink, plan_of(sink)).won
    assert rows_of(sink) == written_by("a")
