"""The memory and the file store pass the suite; the file store also survives kills and twins."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.provider.offsets.suite import OffsetStoreSuite, OpenTry, event
from tubemq_provider.files.durable import create_document, ensure_directory, read_document
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.windows.errors import DocumentError


class TestMemoryStore(OffsetStoreSuite):
    @pytest.fixture
    def open_try(self) -> OpenTry:
        journal = MemoryJournal()
        return lambda task: MemoryOffsetStore(journal, task=task)


class TestFileStore(OffsetStoreSuite):
    @pytest.fixture
    def open_try(self, tmp_path: Path) -> OpenTry:
        return lambda task: FileOffsetStore(tmp_path / "g1", task=task)

    def test_task_names_cannot_leave_the_directory(self, tmp_path: Path) -> None:
        store = FileOffsetStore(tmp_path / "g1", task="../../dag|2026-11-21T00:00:00+00:00|x")
        store.store_task_plan({"v": 1})
        assert [path.parent.name for path in tmp_path.rglob("*.json")] == ["tasks"]

    def test_events_emitted_at_the_same_moment_are_all_kept(self, tmp_path: Path) -> None:
        def emit(seq: int) -> None:
            FileOffsetStore(tmp_path, task=str(seq)).emit(event(seq))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(emit, range(40)))
        assert len(list((tmp_path / "events").glob("*.json"))) == 40

    def test_nothing_but_whole_documents_is_left(self, tmp_path: Path) -> None:
        store = FileOffsetStore(tmp_path, task="a")
        for number in range(5):
            store.store_cursor({"seq": number})
            store.emit(event(number))
        assert not list(tmp_path.rglob(".*"))

    def test_a_file_somebody_broke_is_reported_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "cursor.json").write_text('{"seq": ')
        with pytest.raises(DocumentError, match=r"cursor\.json"):
            FileOffsetStore(tmp_path, task="a").load_cursor()
        (tmp_path / "cursor.json").write_text("[]")
        with pytest.raises(DocumentError, match="not an object"):
            FileOffsetStore(tmp_path, task="a").load_cursor()


def test_of_many_creators_one_wins_and_all_see_its_document(tmp_path: Path) -> None:
    path = tmp_path / "new" / "boundary.json"

    def create(number: int) -> bool:
        return create_document(path, {"by": number})

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(40)))
    assert won.count(True) == 1
    assert read_document(path) == {"by": won.index(True)}


def test_directories_may_be_there_already(tmp_path: Path) -> None:
    ensure_directory(tmp_path / "a" / "b")
    ensure_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
