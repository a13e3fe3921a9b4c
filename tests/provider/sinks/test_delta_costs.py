"""The cost of a window in a Delta table does not grow with the windows before it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.transaction import AddAction

from tests.provider.sinks.openers import delta
from tests.provider.sinks.windows import plan_of, publish
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.sinks._storage import LocalStorage
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.delta.rules import rules_of
from tubemq_provider.sinks.delta.snapshot import LogNotUnderstood, Snapshot, read_snapshot
from tubemq_provider.sources.tubemq.columns import RECORDS

_STATE = ("_delta_log/", "add.", "txn.", "metaData.", "protocol.")
COLUMNS = RECORDS.arrow_schema(("partition", "offset", "msg_time", "attributes", "value"))


def snapshot_of(place: Path) -> Snapshot:
    found = read_snapshot(LocalStorage(place), LocalLocation(place))
    assert found is not None
    return found


def assert_as_deltalake(place: Path, *app_ids: str) -> None:
    """Assert that a snapshot of the log equals the state that deltalake loads."""
    own, table = snapshot_of(place), DeltaTable(place)
    assert own.version() == table.version()
    assert rules_of(own) == rules_of(table)
    for app_id in (*app_ids, "unknown"):
        assert own.transaction_version(app_id) == table.transaction_version(app_id)


def table_of(place: Path, files: int) -> Path:
    """Create a table with `files` windows of one file each, right after a checkpoint."""
    table = DeltaTable.create(place, schema=Schema.from_arrow(COLUMNS))
    adds, transactions = [], []
    for number in range(files):
        window = f"windows/c-{number}-0000000000/{number:016x}-0-part-0.parquet"
        adds.append(AddAction(window, 1234, {}, 1_700_000_000_000, True, '{"numRecords": 3}'))
        name = f"tubemq/c1/orders/g1/c-{number}-0000000000"
        transactions.append(deltalake.Transaction(name, 1))
        transactions.append(deltalake.Transaction(f"{name}/try", number + 1))
    said = deltalake.CommitProperties(app_transactions=transactions)
    table.create_write_transaction(adds, "append", table.schema(), commit_properties=said)
    sink = delta(str(place))
    publish(sink, plan_of(sink, 1), "before")
    DeltaTable(place).create_checkpoint()
    return place


def test_the_10_000th_window_reads_what_the_100th_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    read, opened = LocalStorage.read_bytes, LocalLocation.open

    def note_bytes(self: LocalStorage, name: str) -> bytes | None:
        looks.append(name)
        return read(self, name)

    def note_open(self: LocalLocation, name: str) -> object:
        looks.append(name)
        return opened(self, name)

    class Noted(pq.ParquetFile):
        """Notes the columns that are decoded."""

        def read_row_groups(self, row_groups: object, columns: list[str], **more: object) -> object:
            looks.extend(columns)
            return super().read_row_groups(row_groups, columns, **more)

    found = []
    for files in (100, 10_000):
        place = table_of(tmp_path / str(files), files)
        with monkeypatch.context() as patch:
            patch.setattr(LocalStorage, "read_bytes", note_bytes)
            patch.setattr(LocalLocation, "open", note_open)
            patch.setattr(pq, "ParquetFile", Noted)
            patch.setattr(DeltaSink, "_opened", lambda _: pytest.fail("deltalake loads all files"))
            looks.clear()
            sink = delta(str(place))
            assert publish(sink, plan_of(sink, 2), "own").won
            found.append([look for look in looks if "_delta_log" in look or "." not in look])
            found[-1] += [
                look for look in looks if look.split(".")[0] in ("add", "txn", "metaData")
            ]
        assert_as_deltalake(place, "tubemq/c1/orders/g1/c-7-0000000000/try")
        assert len(DeltaTable(place).file_uris()) == files + 2
    assert found[0] == found[1]
    assert len(found[1]) < 30
    assert "txn.appId" in found[1]
    assert not [look for look in found[1] if look.startswith("add.")]


def test_delta_rs_writes_checkpoints_at_the_interval_of_the_table(tmp_path: Path) -> None:
    sink = delta(str(tmp_path))
    DeltaTable.create(
        tmp_path,
        schema=Schema.from_arrow(COLUMNS),
        configuration={"delta.checkpointInterval": "3"},
    )
    for seq in range(1, 8):
        publish(delta(str(tmp_path)), plan_of(sink, seq), f"w{seq}")
    made = sorted(path.name for path in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(name[:20]) for name in made] == [2, 5]
    assert_as_deltalake(tmp_path, *(f"tubemq/c1/orders/g1/{plan_of(sink, 4).window_id}",))


def test_a_checkpoint_that_cannot_be_written_leaves_the_window_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink = delta(str(tmp_path))
    DeltaTable.create(
        tmp_path,
        schema=Schema.from_arrow(COLUMNS),
        configuration={"delta.checkpointInterval": "1"},
    )

    def fail(_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_checkpoint", fail)
        assert publish(sink, plan_of(sink), "a").won
    assert "no checkpoint was written" in caplog.text
    assert not list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert publish(delta(str(tmp_path)), plan_of(sink, 2), "b").won
    assert snapshot_of(tmp_path).checkpoint == 2


def test_an_outdated_hint_does_not_hide_newer_commits(tmp_path: Path) -> None:
    """Another writer of checkpoints may note an older one last; log clean-up has removed the
    commits between, and a window would get a number that the log has had."""
    sink = delta(str(tmp_path))
    for seq in range(1, 6):
        publish(sink, plan_of(sink, seq), f"w{seq}")
    log = tmp_path / "_delta_log"
    DeltaTable(tmp_path, version=2).create_checkpoint()
    hint = (log / "_last_checkpoint").read_bytes()
    DeltaTable(tmp_path).create_checkpoint()
    newest = DeltaTable(tmp_path).version()
    (log / "_last_checkpoint").write_bytes(hint)
    for version in range(newest):
        (log / f"{version:020}.json").unlink()
    assert snapshot_of(tmp_path).version() == newest
    (log / "_last_checkpoint").unlink()
    assert snapshot_of(tmp_path).version() == newest
    assert publish(delta(str(tmp_path)), plan_of(sink, 6), "w6").won
    assert DeltaTable(tmp_path).version() == newest + 1


def test_a_log_with_a_gap_is_left_to_deltalake(tmp_path: Path) -> None:
    sink = delta(str(tmp_path))
    for seq in (1, 2, 3):
        publish(sink, plan_of(sink, seq), f"w{seq}")
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(LogNotUnderstood, match="are missing"):
        snapshot_of(tmp_path)


def test_a_checkpoint_in_parts_is_read(tmp_path: Path) -> None:
    sink = delta(str(tmp_path))
    for seq in (1, 2):
        publish(sink, plan_of(sink, seq), f"w{seq}")
    DeltaTable(tmp_path).create_checkpoint()
    log = tmp_path / "_delta_log"
    whole = next(log.glob("*.checkpoint.parquet"))
    table, stem = pq.read_table(whole), whole.name.removesuffix(".parquet")
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), log / f"{stem}.{1:010}.{2:010}.parquet")
    pq.write_table(table.slice(half), log / f"{stem}.{2:010}.{2:010}.parquet")
    whole.unlink()
    (log / "_last_checkpoint").write_text(f'{{"version": {int(stem[:20])}, "size": 9, "parts": 2}}')
    assert_as_deltalake(tmp_path, f"tubemq/c1/orders/g1/{plan_of(sink, 1).window_id}")
    (log / "_last_checkpoint").unlink()
    assert snapshot_of(tmp_path).checkpoint == int(stem[:20])


def test_names_partitions_properties_and_features_are_read(tmp_path: Path) -> None:
    columns = COLUMNS.append(pa.field("at", pa.timestamp("us")))
    table = DeltaTable.create(
        tmp_path,
        schema=Schema.from_arrow(columns),
        partition_by=["partition"],
        name="orders",
        description="Orders of all shops",
        configuration={"delta.enableChangeDataFeed": "true", "delta.appendOnly": "true"},
    )
    assert_as_deltalake(tmp_path)
    table.create_checkpoint()
    assert_as_deltalake(tmp_path)
    own, other = snapshot_of(tmp_path).metadata(), table.metadata()
    assert own.name == other.name == "orders"
    assert own.description == other.description
    assert own.created_time == other.created_time
    assert own.partition_columns == ["partition"]


def test_tables_with_a_feature_of_the_log_or_a_lock_go_through_deltalake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    DeltaTable.create(tmp_path, schema=Schema.from_arrow(COLUMNS))
    log.write_text(
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,'
        '"readerFeatures":["v2Checkpoint"],"writerFeatures":["v2Checkpoint"]}}\n'
    )
    with pytest.raises(LogNotUnderstood, match="v2Checkpoint"):
        snapshot_of(tmp_path)
    sink = delta(str(tmp_path))
    assert publish(sink, plan_of(sink), "a").won
    assert sink._handle is not None
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
    locked = delta(str(tmp_path / "other"))
    assert publish(locked, plan_of(locked), "a").won
    assert locked._snapshot is None


def test_windows_and_commits_of_others_at_once_are_all_in_the_table(tmp_path: Path) -> None:
    place = str(tmp_path)
    first = delta(place)
    publish(first, plan_of(first, 100), "first")
    rows = pa.table({"partition": ["9:9"]})

    def work(number: int) -> None:
        if number % 3 == 2:
            write_deltalake(place, rows, mode="append", schema_mode="merge")
        else:
            assert publish(delta(place), plan_of(first, number + 1), f"w{number}").won

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(18)))
    values = DeltaTable(place).to_pyarrow_table()["partition"].to_pylist()
    expected = Counter({"1:0": 2 * 13, "1:1": 13, "9:9": 6})
    assert Counter(values) == expected
    assert DeltaTable(place).version() == snapshot_of(tmp_path).version()
    shutil.rmtree(tmp_path / "_delta_log")
    assert read_snapshot(LocalStorage(tmp_path), LocalLocation(tmp_path)) is None


def test_a_window_behind_a_checkpoint_does_not_load_pandas(tmp_path: Path) -> None:
    """Pyarrow imports it for any scalar or array of Python values, in 0.3 s of CPU a process."""
    table_of(tmp_path / "lake", 3)
    code = """if True:
        import sys
        from tests.provider.sinks.openers import delta
        from tests.provider.sinks.windows import plan_of
        sink = delta(sys.argv[1])
        assert sink.marker(plan_of(sink, 1).window_id) is not None
        assert sink.marker(plan_of(sink, 2).window_id) is None
        print("pandas" in sys.modules)
    """
    command = [sys.executable, "-c", code, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
