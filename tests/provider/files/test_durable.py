"""Full disks: no temporary file stays behind."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tubemq_client.errors import ConfigError, TubeMQError
from tubemq_provider.files.durable import create_document, replace_document
from tubemq_provider.files.objects import StoreFailed
from tubemq_provider.sinks._storage import LocalStorage, StorageBook


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a disk that has room for names and for no bytes."""

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


# -- what a file system says, in words of our own -------------------------------------------------


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.EMLINK])
def test_a_file_system_without_hard_links_is_refused_with_the_place(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vfat, SMB, Azure Files."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    book = StorageBook(LocalStorage(tmp_path), "_boundaries")
    with pytest.raises(ConfigError, match=f"{tmp_path}.*hard links.*object store"):
        book.fix("a", {"a": 1})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_links_in_a_circle_and_odd_places_are_told_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.json").mkdir()
    storage = LocalStorage(tmp_path)
    for name in ("loop", "file/x", "folder.json"):
        with pytest.raises(StoreFailed, match=re.escape(f"{tmp_path / name}: ")) as failed:
            storage.read(name)
        assert isinstance(failed.value, TubeMQError)
        assert failed.value.retriable
    with pytest.raises(StoreFailed, match="loop/x"):
        storage.create("loop/x", {"a": 1})
    with pytest.raises(StoreFailed, match="file/x"):
        storage.create("file/x", {"a": 1})
    with pytest.raises(StoreFailed, match=r"folder\.json"):
        storage.remove(["folder.json"])


@pytest.mark.parametrize("length", [222, 240, 255])
def test_names_may_be_as_long_as_the_file_system_takes(length: int, tmp_path: Path) -> None:
    name = f"{'x' * (length - 5)}.json"
    storage = LocalStorage(tmp_path)
    assert storage.create(name, {"a": 1})
    assert not storage.create(name, {"a": 2})
    assert storage.swap(name, {"a": 1}, {"a": 3})
    assert storage.read(name) == {"a": 3}
    with pytest.raises(StoreFailed, match="File name too long"):
        storage.create(f"{'x' * 252}.json", {"a": 1})


def test_files_of_others_among_documents_are_passed_over(tmp_path: Path) -> None:
    book = StorageBook(LocalStorage(tmp_path), "_boundaries")
    book.fix("a", {"a": 1})
    for name in ("README.txt", "a.json~", ".DS_Store", "a.json.bak"):
        (tmp_path / "_boundaries" / name).write_text("x")
    (tmp_path / "_boundaries" / "old").mkdir()
    (tmp_path / "_boundaries" / "old" / "b.json").write_text("{}")
    assert [*book.listing()] == ["a"]
