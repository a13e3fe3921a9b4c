"""A sink that has lost windows that count as published: nothing is read, and the error leads on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.provider.sinks.openers import iceberg, iceberg_catalog, parquet
from tests.provider.sinks.test_runs import SINKS, ByHour
from tests.provider.sinks.windows import ignore, publish
from tests.provider.windows.fake_reader import KEYS, TOPIC, ends_of, expected, open_fake
from tests.provider.windows.planning.test_claims import MemoryClaims
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.files.objects import StoreFailed
from tubemq_provider.ingest.maintenance import beginning, epoch_document, epochs_of
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.offsets.position_reset import moved, standing
from tubemq_provider.sinks.append import AppendSink
from tubemq_provider.sinks.iceberg.history import KEPT
from tubemq_provider.windows.errors import IdentityMismatch, SinkDamaged, SinkHistoryLost
from tubemq_provider.windows.plan import WindowPlan, WindowScope, cursor_window_of
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.standalone_planner import ExplicitPlanner, TimePlanner
from tubemq_provider.windows.policies import OnOtherScope, Policies
from tubemq_provider.windows.protocols import IngestCounts, Sink
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STEP = 28 * 10
KINDS = pytest.mark.parametrize("kind", list(SINKS))
STORES = pytest.mark.parametrize("claims", [False, True], ids=["cursor", "claims"])


class Lake:
    """A lake below one directory, copies of it, and a group that writes into it."""

    def __init__(self, kind: str, directory: Path, *, claims: bool = False) -> None:
        self.open, self._read, _ = SINKS[kind]
        self.root, self.copies = directory / "lake", directory / "copies"
        self.root.mkdir()
        self.journal = MemoryJournal()
        self.claims, self.epoch, self.runs = claims, "", 0

    def run(self, upto: int | None = None) -> WindowResult:
        """Run when the log has `upto` times ten entries in each partition."""
        self.runs += 1
        ends = dict.fromkeys(KEYS, STEP * (upto or self.runs))
        sink = self.open(self.root)
        scope = WindowScope("c1", TOPIC, "g1", sink.identity, epoch=self.epoch)
        planner = CursorPlanner(scope, lambda: ends_of(ends), initial_position="earliest")
        task = f"task-{self.runs}"
        store = (
            MemoryClaims(self.journal, task=task, dead=set())
            if self.claims
            else MemoryOffsetStore(self.journal, task=task)
        )
        return window_run(planner, store, sink, InlineEngine(open_fake), attempt="a").run()

    def copy(self, name: str) -> None:
        shutil.copytree(self.root, self.copies / name)

    def restore(self, name: str) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.copies / name, self.root)

    def values(self) -> Counter[bytes | None]:
        return Counter(self._read(self.open(self.root), self.root))

    def expect(self, upto: int, *, without: tuple[int, int] = (0, 0)) -> None:
        """Assert that the lake has all records up to `upto`, except those between two others,
        once."""
        wanted = Counter(expected(dict.fromkeys(KEYS, STEP * upto)))
        wanted -= Counter(expected(dict.fromkeys(KEYS, STEP * without[1])))
        wanted += Counter(expected(dict.fromkeys(KEYS, STEP * without[0])))
        assert self.values() == wanted

    def refused(self, upto: int) -> str:
        before = self.values()
        with pytest.raises(SinkHistoryLost) as caught:
            self.run(upto)
        assert self.values() == before
        return str(caught.value)

    def obey(self, text: str, after: str) -> None:
        """Do just what the command says that stands behind the words `after`."""
        found = re.search(rf"{after}[^:]*: (airflow tubemq offsets .*)", text)
        assert found, text
        words = shlex.split(found[1])
        cursor = json.loads(self.journal.cursor or "null")
        event = json.loads(self.journal.events[-1]) if self.journal.events else None
        assert words[4] == "c1/orders/g1"
        if words[3] == "set":
            kept = standing(cursor, event, words[4], WindowScope("", "", "", "").space)
            offsets = json.loads(words[6])
            changed = moved(kept, event, offsets, by="operator", now=NOW)
        else:
            assert words[3] == "epoch"
            self.epoch = "life-2"
            given = dict(zip(words[6::2], words[7::2], strict=True))
            begin = beginning(given.get("--begin", "earliest"))
            known, seen = epochs_of(cursor, event), given.get("--seen")
            names = ("c1", "orders", "g1")
            changed = epoch_document(
                names, self.epoch, begin, known, before=cursor, by="op", source="tubemq", seen=seen
            )
        self.journal.cursor = json.dumps(changed)


@STORES
@KINDS
def test_a_lake_that_came_back_older_is_refused_and_read_again_as_the_error_says(
    kind: str, claims: bool, tmp_path: Path
) -> None:
    lake = Lake(kind, tmp_path, claims=claims)
    for number in range(1, 6):
        lake.run()
        lake.copy(str(number))
    lake.restore("2")
    text = lake.refused(6)
    lake.restore("5")
    lake.run(6)
    lake.copy("6")
    lake.expect(6)
    lake.restore("2")
    text = lake.refused(6)
    assert "its newest window is c-2-" in text
    lake.obey(text, "To read again what is lost")
    assert cursor_window_of(lake.run(7).window_id or "") == (7, text.split("c-6-")[1][:10])
    lake.expect(7)
    assert lake.run(7).window_id is None
    lake.run(8)
    lake.expect(8)


@STORES
@KINDS
def test_a_group_continues_without_windows_removed_on_purpose(
    kind: str, claims: bool, tmp_path: Path
) -> None:
    lake = Lake(kind, tmp_path, claims=claims)
    lake.run()
    lake.copy("1")
    lake.run()
    lake.run()
    lake.restore("1")
    lake.obey(lake.refused(3), "continue without them")
    assert lake.run(3).window_id is None  # and the given position survives a run without news
    lake.run(4)
    lake.run(5)
    lake.expect(5, without=(1, 3))


@STORES
@KINDS
def test_a_lake_of_which_nothing_is_left_is_filled_again(
    kind: str, claims: bool, tmp_path: Path
) -> None:
    lake = Lake(kind, tmp_path, claims=claims)
    lake.copy("0")
    for _ in range(3):
        lake.run()
    shutil.rmtree(lake.root)
    shutil.copytree(lake.copies / "0", lake.root)
    if kind in {"parquet", "delta", "object_store", "jdbc"}:
        with pytest.raises(SinkHistoryLost, match=r"windows were written before, but .* mounted"):
            lake.run(4)
        made = {"parquet": "lake", "object_store": "objects", "delta": "delta", "jdbc": "lake.db"}
        place = lake.root / made[kind]
        place.touch() if kind == "jdbc" else place.mkdir()
    with pytest.raises(SinkHistoryLost, match="its newest window is none of the group") as caught:
        lake.run(4)
    lake.obey(str(caught.value), "To read again what is lost")
    lake.run(4)
    lake.expect(4)


@STORES
@pytest.mark.parametrize("back", ["2", "3"])
def test_a_lake_that_comes_back_before_an_epoch_fills_it_is_not_read_twice(
    back: str, claims: bool, tmp_path: Path
) -> None:
    """The epoch was begun because the lake was empty, and read all that it had again."""
    lake = Lake("parquet", tmp_path, claims=claims)
    for number in range(1, 4):
        lake.run()
        lake.copy(str(number))
    remove(lake, "lake/window_id=*")
    with pytest.raises(SinkHistoryLost) as caught:
        lake.run(4)
    lake.obey(str(caught.value), "To read again what is lost")
    lake.restore(back)
    assert lake.run(4).total == len(KEYS) * 5 * (4 - int(back))
    lake.run(5)
    lake.expect(5)


@STORES
def test_progress_of_an_older_backup_is_not_taken_for_a_lake_that_was_pruned(
    claims: bool, tmp_path: Path
) -> None:
    """Windows 1 to 4 were removed by age, window 5 is there: its records came twice."""
    lake = Lake("parquet", tmp_path, claims=claims)
    for _ in range(2):
        lake.run()
    kept = MemoryJournal(cursor=lake.journal.cursor, events=list(lake.journal.events))
    for _ in range(3):
        lake.run()
    for path in (lake.root / "lake").glob("window_id=c-[1-4]-*"):
        shutil.rmtree(path)
    lake.run(6)
    lake.journal = kept
    lake.obey(lake.refused(7), "continue after")
    lake.run(7)
    lake.expect(7, without=(0, 4))


@STORES
def test_progress_of_an_older_backup_is_held_against_windows_far_beyond_it(
    claims: bool, tmp_path: Path
) -> None:
    """Window 2 is there, and 3 and 4 are lost."""
    lake = Lake("parquet", tmp_path, claims=claims)
    for _ in range(2):
        lake.run()
    kept = MemoryJournal(cursor=lake.journal.cursor, events=list(lake.journal.events))
    for _ in range(3):
        lake.run()
    for path in (lake.root / "lake").glob("window_id=c-[34]-*"):
        shutil.rmtree(path)
    lake.journal = kept
    text = lake.refused(6)
    if claims:
        assert "airflow tubemq offsets rebuild" in text
        return
    lake.obey(text, "continue after the last one")
    lake.run(6)
    lake.expect(6, without=(2, 4))


@STORES
def test_windows_that_were_removed_by_age_hold_nothing_up(claims: bool, tmp_path: Path) -> None:
    lake = Lake("parquet", tmp_path, claims=claims)
    for number in range(1, 5):
        lake.run()
        for path in (lake.root / "lake").glob(f"window_id=c-{number - 1}-*"):
            shutil.rmtree(path)
    assert lake.run(4).window_id is None
    lake.expect(4, without=(0, 3))


def test_progress_and_lake_of_one_backup_read_the_rest_again(tmp_path: Path) -> None:
    lake = Lake("parquet", tmp_path)
    for _ in range(2):
        lake.run()
    kept = MemoryJournal(cursor=lake.journal.cursor, events=list(lake.journal.events))
    lake.copy("2")
    for _ in range(3):
        lake.run()
    lake.restore("2")
    lake.journal = kept
    lake.run(6)
    lake.expect(6)


@STORES
def test_a_delta_table_that_was_restored_to_an_earlier_version(
    claims: bool, tmp_path: Path
) -> None:
    lake = Lake("delta", tmp_path, claims=claims)
    for _ in range(3):
        lake.run()
    table = DeltaTable(lake.root / "delta")
    newest = table.version()
    lake.run()
    DeltaTable(lake.root / "delta").restore(newest)
    text = lake.refused(5)
    assert "its newest window is c-3-" in text
    DeltaTable(lake.root / "delta").restore(newest + 1)  # taken back
    lake.run(5)
    lake.expect(5)
    DeltaTable(lake.root / "delta").restore(newest)
    lake.obey(lake.refused(6), "To read again what is lost")
    lake.run(6)
    lake.expect(6)
    assert lake.run(6).window_id is None


def test_compaction_of_a_delta_table_holds_nothing_up(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    for _ in range(3):
        lake.run()
    table = DeltaTable(lake.root / "delta")
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    lake.run()
    lake.expect(4)


@STORES
def test_an_iceberg_table_that_was_rolled_back(claims: bool, tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path, claims=claims)
    lake.run()
    table = iceberg_catalog(lake.root / "iceberg").load_table("sales.orders")
    back = table.current_snapshot()
    assert back is not None
    lake.run()
    lake.run()
    table = iceberg_catalog(lake.root / "iceberg").load_table("sales.orders")
    with table.manage_snapshots() as change:
        roll_back(change, back.snapshot_id)
    text = lake.refused(4)
    assert "its newest window is c-1-" in text
    lake.obey(text, "To read again what is lost")
    lake.run(4)
    lake.expect(4)
    lake.run(5)
    lake.expect(5)


def remove(lake: Lake, pattern: str) -> None:
    for path in [*lake.root.glob(pattern)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def drop_table(lake: Lake) -> None:
    with closing(sqlite3.connect(lake.root / "lake.db")) as connection:
        connection.execute("DROP TABLE orders")


@STORES
@pytest.mark.parametrize(
    ("kind", "lose"),
    [
        ("parquet", lambda lake: remove(lake, "lake/window_id=c-3-*/*.parquet")),
        ("object_store", lambda lake: remove(lake, "objects/data/window_id=c-3-*")),
        ("jdbc", drop_table),
    ],
)
def test_a_marker_alone_is_no_window(
    kind: str, lose: Callable[[Lake], None], claims: bool, tmp_path: Path
) -> None:
    """A rule expired the data and not the manifests: the next window was green without a word."""
    lake = Lake(kind, tmp_path, claims=claims)
    for number in range(1, 4):
        lake.run()
        lake.copy(str(number))
    lose(lake)
    with pytest.raises(SinkHistoryLost) as caught:
        lake.run(4)
    lake.obey(str(caught.value), "To read again what is lost")
    lake.run(4)
    if kind != "jdbc":
        with pytest.raises(SinkDamaged, match=r"of published windows are gone: .*window_id=c-3-"):
            lake.values()
        remove(lake, "lake/window_id=c-3-*")
        remove(lake, "objects/_tubemq/windows/c-3-*")
    lake.expect(4)
    lake.run(5)
    lake.expect(5)


@pytest.mark.parametrize("kind", ["parquet", "object_store"])
def test_files_that_were_merged_into_others_hold_nothing_up(kind: str, tmp_path: Path) -> None:
    lake = Lake(kind, tmp_path)
    lake.run()
    for path in [*lake.root.rglob("*.parquet")]:
        path.rename(path.with_name(f"merged-{path.name}"))
    assert lake.run().total == len(KEYS) * 5


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("delta", "delta/_delta_log/*0.json"),
        ("delta", "delta/_delta_log/*2.json"),
        ("iceberg", "iceberg/**/*.metadata.json"),
        ("iceberg", "iceberg/**/*.avro"),
    ],
)
def test_damaged_logs_of_tables_are_errors_of_ours(kind: str, pattern: str, tmp_path: Path) -> None:
    lake = Lake(kind, tmp_path)
    lake.run()
    lake.run()
    for path in lake.root.glob(pattern):
        path.write_bytes(b'{"commitInfo":{')
    with pytest.raises(SinkDamaged, match="no reader can read the table"):
        lake.run()


def test_a_catalog_that_fails_is_an_error_of_ours(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    lake.run()
    sink = lake.open(lake.root)
    (lake.root / "iceberg/catalog.db").write_bytes(b"no database" * 400)
    with pytest.raises(StoreFailed, match="its catalog fails"):
        list(sink.window_ids()) or sink.marker("c-1-0123456789")


def test_an_iceberg_catalog_older_than_its_files_is_reported(tmp_path: Path) -> None:
    """Old metadata files leave the table: a restored catalog may name one that is gone."""
    lake = Lake("iceberg", tmp_path)
    lake.run()
    for path in (lake.root / "iceberg").rglob("*.metadata.json"):
        path.unlink()
    with pytest.raises(SinkDamaged, match="its catalog names metadata that is gone"):
        lake.run()


def group(sink: Sink, name: str, seq: int) -> WindowPlan:
    scope = WindowScope("c1", TOPIC, name, sink.identity)
    return WindowPlan.cursor(scope, seq, {"1:0": (0, 280), "1:1": (0, 280)})


@pytest.mark.parametrize("last", ["empty", "compacted", "plain"])
def test_a_group_that_rests_loses_nothing_while_others_write_an_iceberg_table(
    last: str, tmp_path: Path
) -> None:
    """Snapshots of old windows expire, and pyiceberg makes the next one forget its parent."""
    sink = iceberg(tmp_path)
    publish(sink, group(sink, "resting", 1))
    plan = group(sink, "resting", 2)
    if last == "empty":
        none = IngestCounts({"1:0": 0, "1:1": 0}, 0)
        marker = sink.publish(sink.begin(plan, "a"), plan, none, ignore).marker
    else:
        marker = publish(sink, plan).marker
    if last == "compacted":
        table = iceberg_catalog(tmp_path).load_table("sales.orders")
        table.overwrite(table.scan().to_arrow())
    for number in range(1, KEPT + 5):
        publish(sink, group(sink, "busy", number))
        assert iceberg(tmp_path).holds(marker), number


@pytest.mark.parametrize("others", [0, 3, KEPT + 5])
def test_a_rollback_is_seen_however_much_others_write_after_it(others: int, tmp_path: Path) -> None:
    sink = iceberg(tmp_path)
    publish(sink, group(sink, "busy", 1))
    back = iceberg_catalog(tmp_path).load_table("sales.orders").current_snapshot()
    assert back is not None
    markers = [publish(sink, group(sink, "resting", number)).marker for number in (1, 2)]
    table = iceberg_catalog(tmp_path).load_table("sales.orders")
    with table.manage_snapshots() as change:
        roll_back(change, back.snapshot_id)
    for number in range(2, 2 + others):
        publish(sink, group(sink, "busy", number))
    assert [iceberg(tmp_path).holds(marker) for marker in markers] == [False, False]


def roll_back(change: Any, snapshot_id: int) -> None:
    name = "rollback_to_snapshot"
    make: Callable[..., object] | None = getattr(change, name, None)
    if make is None:
        make = lambda found: change.set_current_snapshot(snapshot_id=found)  # noqa: E731
    make(snapshot_id)


def test_a_sink_that_appends_has_nothing_to_lose(tmp_path: Path) -> None:
    journal = MemoryJournal()
    for number in (1, 2):
        sink: Sink = AppendSink(str(tmp_path / "lake"), exactly_once=False)
        shutil.rmtree(tmp_path / "lake", ignore_errors=True)
        (tmp_path / "lake").mkdir()
        ends = dict.fromkeys(KEYS, STEP * number)
        planner = CursorPlanner(
            WindowScope("c1", TOPIC, "g1", sink.identity),
            lambda ends=ends: ends_of(ends),  # type: ignore[misc]
            initial_position="earliest",
        )
        store = MemoryOffsetStore(journal, task=str(number))
        run = window_run(planner, store, sink, InlineEngine(open_fake), attempt="a")
        assert run.run().total == len(KEYS) * 5


class Hours:
    """A group with windows of time, in a directory or another sink."""

    def __init__(self, directory: Path, kind: str = "") -> None:
        self.root, self.journal = directory / "lake", MemoryJournal()
        self.open, self.read, _ = SINKS[kind] if kind else (parquet, *SINKS["parquet"][1:])

    def run(self, hour: int, *, later: int = 0, **options: Any) -> WindowResult:
        sink = self.open(self.root)
        planner = TimePlanner(
            WindowScope("c1", TOPIC, "g1", sink.identity, epoch=options.pop("epoch", "")),
            datetime(2026, 1, 1, hour, tzinfo=UTC),
            datetime(2026, 1, 1, hour + 1, tzinfo=UTC),
            ByHour(later),
            lambda: ends_of(dict.fromkeys(KEYS, 28 * 60)),
            sink.boundaries,
        )
        task = options.pop("task", f"{hour}")
        store = MemoryOffsetStore(self.journal, task=task)
        engine = InlineEngine(open_fake)
        return window_run(planner, store, sink, engine, attempt="a", **options).run()

    def write(self, start: dict[str, int], end: dict[str, int]) -> WindowResult:
        """Write offsets as an explicit window beside the others."""
        sink = self.open(self.root)
        planner = ExplicitPlanner(
            WindowScope("c1", TOPIC, "g1", sink.identity),
            *(start, end),
            lambda: ends_of(dict.fromkeys(KEYS, 28 * 60)),
            Policies(on_other_scope=OnOtherScope.START_ANEW),
        )
        store = MemoryOffsetStore(self.journal, task="by hand")
        return window_run(planner, store, sink, InlineEngine(open_fake), attempt="a").run()

    def values(self) -> Counter[bytes | None]:
        return Counter(self.read(self.open(self.root), self.root))

    def lose(self, *names: str) -> None:
        for name in names:
            for path in self.root.glob(name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_hours_are_not_written_into_a_lake_that_has_lost_all_of_them(tmp_path: Path) -> None:
    """A mount point without its mount: the window was green, and hidden once the lake was back."""
    hours = Hours(tmp_path)
    hours.run(0)
    hours.run(1)
    hours.root.rename(tmp_path / "elsewhere")
    hours.root.mkdir()
    with pytest.raises(SinkHistoryLost, match=r"accepted, and .* has neither it nor another"):
        hours.run(2)
    with pytest.raises(SinkHistoryLost, match="neither it nor another"):
        hours.run(1, task="a new run of the same hour")
    assert not any(hours.root.iterdir())
    hours.root.rmdir()
    (tmp_path / "elsewhere").rename(hours.root)
    assert hours.run(2).total == 20


def test_an_emptied_lake_is_filled_by_tasks_that_are_cleared(tmp_path: Path) -> None:
    hours = Hours(tmp_path)
    before = [hours.run(number).total for number in (0, 1)]
    hours.lose("*")
    assert [hours.run(number, cleared=True).total for number in (0, 1)] == before
    assert hours.run(2).warnings == ()


def test_an_hour_that_the_lake_lost_is_reported_and_read_again_unchanged(tmp_path: Path) -> None:
    hours = Hours(tmp_path)
    hours.run(0)
    first = hours.run(1)
    hours.lose("window_id=t-20260101T01*")
    third = hours.run(2, later=2)
    assert any(str(first.window_id) in text for text in third.warnings)
    again = hours.run(1, later=2, task="a new run of the same hour")
    assert (again.ranges, again.replayed) == (first.ranges, False)
    assert not any("was accepted" in text for text in hours.run(2).warnings)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_hour_that_a_restore_took_away_is_not_taken_for_written(
    kind: str, tmp_path: Path
) -> None:
    """A cleared task was green, with all records counted in files that the table had no more."""
    hours = Hours(tmp_path, kind)
    hours.root.mkdir()
    for hour in (0, 1):
        hours.run(hour)
    if kind == "delta":
        version = DeltaTable(hours.root / "delta").version()
        whole = hours.run(2).total and hours.values()
        DeltaTable(hours.root / "delta").restore(version)
    else:
        table = iceberg_catalog(hours.root / "iceberg").load_table("sales.orders")
        back = table.current_snapshot()
        assert back is not None
        whole = hours.run(2).total and hours.values()
        table = iceberg_catalog(hours.root / "iceberg").load_table("sales.orders")
        with table.manage_snapshots() as change:
            roll_back(change, back.snapshot_id)
    for _ in range(2):
        with pytest.raises(SinkHistoryLost, match="gone back to a state without") as caught:
            hours.run(2, cleared=True)
    given = re.findall(r"(?:starting|ending)_offsets=(\{.*?\}\})", str(caught.value))
    start, end = (json.loads(text)[TOPIC] for text in given)
    assert hours.write(start, end).total == 20
    assert hours.values() == whole
    assert any("says how to continue" in text for text in hours.run(1).warnings)


def test_an_hour_of_a_table_that_was_dropped_is_not_taken_for_written(tmp_path: Path) -> None:
    """It was an error of the database."""
    hours = Hours(tmp_path, "jdbc")
    hours.root.mkdir()
    hours.run(0)
    with closing(sqlite3.connect(hours.root / "lake.db")) as connection:
        connection.execute("DROP TABLE orders")
    with pytest.raises(SinkDamaged, match=r"on_clear='rewrite'.*\n.*0 rows in the sink, 6 were"):
        hours.run(0, cleared=True)


def test_an_hour_is_known_in_a_delta_table_whose_log_was_cleaned_since_a_restore(
    tmp_path: Path,
) -> None:
    hours = Hours(tmp_path, "delta")
    hours.root.mkdir()
    for hour in (0, 1):
        hours.run(hour)
    table = DeltaTable(hours.root / "delta")
    kept = table.version()
    hours.run(2)
    table = DeltaTable(hours.root / "delta")
    table.create_checkpoint()
    table.restore(kept)
    for version in range(kept):
        (hours.root / f"delta/_delta_log/{version:020}.json").unlink()
    assert hours.run(0, cleared=True).replayed
    with pytest.raises(SinkHistoryLost, match="gone back to a state without"):
        hours.run(2, cleared=True)


def test_an_hour_that_was_accepted_is_never_written_with_other_offsets(tmp_path: Path) -> None:
    hours = Hours(tmp_path)
    hours.run(0)
    first = hours.run(1)
    hours.lose("window_id=t-20260101T01*", "_boundaries/20260101T02*", "_boundaries/turn-*")
    with pytest.raises(SinkHistoryLost, match="was accepted with offsets") as caught:
        hours.run(1, later=2, task="a new run of the same hour")
    start, end = re.findall(r"(?:starting|ending)_offsets=(\{.*?\}\})", str(caught.value))
    given = {key: (json.loads(start)[TOPIC][key], json.loads(end)[TOPIC][key]) for key in KEYS}
    assert given == first.ranges
    assert not [*hours.root.glob("window_id=t-20260101T01*")]


def test_an_hour_goes_into_another_lake_if_a_person_wants_it_and_not_by_a_retry(
    tmp_path: Path,
) -> None:
    """Runs of one partition in Dagster share its plan: a backfill elsewhere is no retry."""
    hours = Hours(tmp_path)
    first = hours.run(0)
    hours.root = tmp_path / "other"
    with pytest.raises(IdentityMismatch, match="an earlier try of this task"):
        hours.run(0, retried=True)
    assert hours.run(0).total == first.total


def test_an_epoch_that_changes_between_tries_is_refused_as_every_other_edit_is(
    tmp_path: Path,
) -> None:
    """Each of the two refusals had an advice; a run of an hour is not triggered, it is cleared."""
    hours = Hours(tmp_path)
    hours.run(0)
    with pytest.raises(IdentityMismatch, match=r"epoch '', now 'second'.*, clear the task: "):
        hours.run(0, epoch="second", retried=True)
    hours.root = tmp_path / "other"
    with pytest.raises(IdentityMismatch, match=r"another sink than .*other.*, clear the task: "):
        hours.run(0, retried=True)
