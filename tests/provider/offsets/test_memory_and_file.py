"""The memory and the file store pass the suite; the file store also survives kills and twins."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tubemq_provider.files.durable import create_document, ensure_directory, read_document
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.offsets.file_claims import FileClaimStore
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.testing.offset_store_suite import (
    ClaimStoreSuite,
    OffsetStoreSuite,
    OpenTry,
    event,
)
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
        (tmp_path / "cursor.json").write_bytes('{"by": "Jürgen"}'.encode("latin-1"))
        with pytest.raises(DocumentError, match=r"cursor\.json"):
            FileOffsetStore(tmp_path, task="a").load_cursor()
        (tmp_path / "cursor.json").write_text("[]")
        with pytest.raises(DocumentError, match="not an object"):
            FileOffsetStore(tmp_path, task="a").load_cursor()


class TestFileClaims(ClaimStoreSuite):
    @pytest.fixture
    def open_try(self, tmp_path: Path) -> OpenTry:
        return lambda task: FileClaimStore(tmp_path / "g1", task=task, over=lambda _: False)

    def test_changes_at_the_same_moment_are_all_there(self, tmp_path: Path) -> None:
        def count(number: int) -> None:
            store = FileClaimStore(tmp_path, task=str(number), over=lambda _: False)
            store.change_cursor(lambda there: {"n": (there or {"n": 0})["n"] + 1})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(count, range(40)))
        assert FileClaimStore(tmp_path, task="a", over=bool).load_cursor() == {"n": 40}

    def test_a_cursor_of_the_plain_store_is_where_claims_begin(self, tmp_path: Path) -> None:
        FileOffsetStore(tmp_path, task="a").store_cursor({"seq": 3})
        store = FileClaimStore(tmp_path, task="a", over=lambda task: task == "dead")
        assert (store.load_cursor(), store.previous_cursor()) == (None, {"seq": 3})
        assert (store.is_over("dead"), store.is_over("alive")) == (True, False)


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
