"""What every `OffsetStore` must do. Subclass it and give `tries`; pytest collects the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tubemq_provider.windows.protocols import Document, OffsetStore

OpenTry = Callable[[str], OffsetStore]
"""Opens the store as a try of the named task sees it; tries of one task share its task plan."""

BIG = 2**62 // 28 * 28
"""An offset beyond what a float can hold."""


def event(seq: int | None) -> Document:
    document: Document = {"v": 1, "window_id": f"c-{seq}-0123456789"}
    if seq is not None:
        document["position"] = {"h": "0123456789", "seq": seq, "next": {"1:0": BIG}}
    return document


class OffsetStoreSuite:
    """Behaviour shared by all stores. `settle` makes emitted events of a finished task visible."""

    @pytest.fixture
    def open_try(self) -> OpenTry:
        raise NotImplementedError

    def settle(self, store: OffsetStore) -> None:
        """The task of `store` has succeeded."""

    def test_an_empty_store_knows_nothing(self, open_try: OpenTry) -> None:
        store = open_try("a")
        assert isinstance(store, OffsetStore)
        assert store.load_cursor() is None
        assert store.load_plan("c-1-0123456789") is None
        assert store.load_task_plan() is None
        assert store.newest_position() is None

    def test_documents_come_back_unchanged(self, open_try: OpenTry) -> None:
        document: Document = {"v": 1, "next": {"1:0": BIG, "2:10002": 0}, "by": "ä|b", "list": [1]}
        open_try("a").store_cursor(document)
        open_try("a").store_plan("c-1-0123456789", document)
        open_try("a").store_task_plan(document)
        again = open_try("a")
        assert again.load_cursor() == document
        assert again.load_plan("c-1-0123456789") == document
        assert again.load_task_plan() == document

    def test_the_last_write_stays(self, open_try: OpenTry) -> None:
        one, two = open_try("a"), open_try("b")
        one.store_cursor({"seq": 1})
        two.store_cursor({"seq": 2})
        assert one.load_cursor() == {"seq": 2}
        one.store_plan("w", {"seq": 1})
        two.store_plan("w", {"seq": 2})
        assert one.load_plan("w") == {"seq": 2}

    def test_a_task_plan_is_seen_by_tries_of_the_same_task_only(self, open_try: OpenTry) -> None:
        open_try("a").store_task_plan({"seq": 1})
        assert open_try("b").load_task_plan() is None
        assert open_try("a").load_task_plan() == {"seq": 1}

    def test_a_forgotten_plan_is_gone_and_others_stay(self, open_try: OpenTry) -> None:
        store = open_try("a")
        store.store_plan("c-1-0123456789", {"seq": 1})
        store.store_plan("c-2-0123456789", {"seq": 2})
        store.forget_plan("c-1-0123456789")
        store.forget_plan("never-there")
        assert store.load_plan("c-1-0123456789") is None
        assert store.load_plan("c-2-0123456789") == {"seq": 2}

    def test_the_newest_event_with_a_position_is_found(self, open_try: OpenTry) -> None:
        for seq in (1, 2, None, None):
            store = open_try(f"task-{seq}")
            store.emit(event(seq))
            self.settle(store)
        assert open_try("z").newest_position() == event(2)

    def test_a_position_is_found_behind_many_events_without_one(self, open_try: OpenTry) -> None:
        store = open_try("a")
        store.emit(event(7))
        self.settle(store)
        for number in range(60):
            later = open_try(f"time-{number}")
            later.emit(event(None))
            self.settle(later)
        assert open_try("z").newest_position() == event(7)

    @pytest.mark.parametrize("value", [1.5, float("nan"), b"x"])
    def test_values_that_some_store_would_change_are_refused(
        self, open_try: OpenTry, value: object
    ) -> None:
        store = open_try("a")
        with pytest.raises(TypeError):
            store.store_cursor({"nested": [value]})
        assert store.load_cursor() is None

    def test_the_writer_is_named(self, open_try: OpenTry) -> None:
        assert open_try("a").writer
