"""What a full disk leaves behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tubemq_provider.files.durable import create_document, replace_document
from tubemq_provider.sinks._storage import LocalStorage


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that has room for names, and for no bytes."""

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("write", [create_document, replace_document])
def test_a_document_that_finds_no_room_leaves_nothing(
    write: Callable[[Path, dict[str, int]], object], tmp_path: Path
) -> None:
    """Each retry left another file, whose name begins with a dot: no sink looks for those."""
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path / "marker.json", {"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_a_document_that_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "marker.json").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_document(tmp_path / "marker.json", {"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["marker.json"]


def test_a_file_of_another_disk_that_finds_no_room_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "part-0.parquet"
    source.write_bytes(b"PAR1")
    storage = LocalStorage(tmp_path / "table")
    forced = os.fsync

    def other_disk(*_: object) -> None:
        monkeypatch.setattr(os, "fsync", refuse)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", other_disk)
    with pytest.raises(OSError, match="No space left"):
        storage.put_file(source, "windows/w/part-0.parquet")
    monkeypatch.setattr(os, "fsync", forced)
    assert list((tmp_path / "table" / "windows" / "w").iterdir()) == []
