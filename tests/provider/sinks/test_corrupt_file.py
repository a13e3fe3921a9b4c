"""Corrupt records on their way into a file: as they come, and no more of them in memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tubemq_client import Partition
from tubemq_provider.files.locations import LocalLocation
from tubemq_provider.files.quarantine import QuarantineFile

KEY = Partition(1, "demo", 0)


@dataclass(frozen=True)
class Entry:
    position: int
    data: bytes
    partition: Partition = KEY
    batch_offset: int = 28
    message_id: int = 7


def test_without_corrupt_records_there_is_no_file(tmp_path: Path) -> None:
    corrupt = QuarantineFile()
    with corrupt.into(LocalLocation(tmp_path), "_corrupt/records.parquet"):
        pass
    assert len(corrupt) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_comes_is_kept_in_order_and_a_second_file_begins_empty(tmp_path: Path) -> None:
    corrupt = QuarantineFile()
    for name, count in (("a", 2500), ("b", 3)):
        with corrupt.into(LocalLocation(tmp_path), name):
            for position in range(count):
                corrupt.add(Entry(position, b"x"))
        assert len(corrupt) == count
        assert pq.read_table(tmp_path / name)["position"].to_pylist() == list(range(count))


def test_a_ruined_log_does_not_fill_the_memory(tmp_path: Path) -> None:
    corrupt, body = QuarantineFile(), 256 * 1024
    tracemalloc.start()
    try:
        with corrupt.into(LocalLocation(tmp_path), "records.parquet"):
            for position in range(200):
                corrupt.add(Entry(position, bytes(body)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 60 * body
    assert pq.ParquetFile(tmp_path / "records.parquet").metadata.num_rows == 200


def test_a_file_of_a_failed_read_is_closed(tmp_path: Path) -> None:
    corrupt = QuarantineFile()

    def broken() -> None:
        with corrupt.into(LocalLocation(tmp_path), "a"):
            for position in range(1025):
                corrupt.add(Entry(position, b"x"))
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        broken()
    with corrupt.into(LocalLocation(tmp_path), "b"):
        corrupt.add(Entry(1, b"y"))
    assert pq.read_table(tmp_path / "b")["position"].to_pylist() == [1]


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    """The file is there, and its first bytes find no room."""
    (tmp_path / "a").symlink_to("/dev/full")
    corrupt = QuarantineFile()
    with (
        pytest.raises(OSError, match="No space left on device"),
        corrupt.into(LocalLocation(tmp_path), "a"),
    ):
        corrupt.add(Entry(1, b"x"))
    with corrupt.into(LocalLocation(tmp_path), "b"):
        corrupt.add(Entry(2, b"y"))
    assert pq.read_table(tmp_path / "b")["position"].to_pylist() == [2]
