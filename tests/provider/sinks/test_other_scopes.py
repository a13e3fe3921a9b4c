"""A renamed connection makes a new scope: no sink takes the same records again by surprise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.provider.sinks.openers import delta, iceberg, jdbc, object_store, parquet
from tests.provider.windows.fake_reader import KEYS, TOPIC, ends_of, open_fake
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.append import AppendSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.errors import IdentityMismatch, OtherScopeFound
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Marker, Sink
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult

ENDS = [dict.fromkeys(KEYS, 28 * count) for count in (11, 40)]
OPENERS: dict[str, Callable[[Path], Sink]] = {
    "parquet": lambda root: parquet(root / "lake"),
    "object_store": lambda root: object_store(str(root / "lake"), root / "staging"),
    "jdbc": lambda root: jdbc(f"sqlite:///{root}/lake.db", "orders", root / "staging"),
    "delta": lambda root: delta(str(root / "delta"), root / "staging"),
    "iceberg": lambda root: iceberg(root / "iceberg"),
}


def run(
    sink: Sink, cluster: str, journal: MemoryJournal, turn: int = 0, epoch: str = "", **on: str
) -> WindowResult:
    """One cursor window of a group that knows the cluster by this name."""
    scope = WindowScope(cluster, TOPIC, "g1", sink.identity, epoch=epoch)
    planner = CursorPlanner(
        scope,
        lambda: ends_of(ENDS[turn]),
        initial_position="earliest",
        policies=Policies.of(**on),
    )
    store = MemoryOffsetStore(journal, task=f"{cluster}-{turn}")
    return window_run(planner, store, sink, InlineEngine(open_fake), attempt=f"a{turn}").run()


@pytest.mark.parametrize("kind", OPENERS)
def test_a_renamed_connection_does_not_store_the_topic_again(kind: str, tmp_path: Path) -> None:
    sink = OPENERS[kind](tmp_path)
    first = run(sink, "tubemq_default", MemoryJournal())
    renamed = MemoryJournal()
    for _ in range(2):  # a retry is no way round
        with pytest.raises(OtherScopeFound) as refused:
            run(OPENERS[kind](tmp_path), "prod", renamed)
    said = str(refused.value)
    assert "cluster 'tubemq_default' (this run: 'prod')" in said
    assert "set cluster='tubemq_default'" in said
    assert "on_other_scope='start_anew'" in said
    assert str(first.window_id) in said
    assert list(sink.window_ids()) == [first.window_id]
    assert (renamed.cursor, renamed.plans) == (None, {})


@pytest.mark.parametrize("kind", OPENERS)
def test_start_anew_is_needed_only_once(kind: str, tmp_path: Path) -> None:
    sink = OPENERS[kind](tmp_path)
    first = run(sink, "tubemq_default", MemoryJournal())
    renamed = MemoryJournal()
    anew = run(sink, "prod", renamed, on_other_scope="start_anew")
    assert anew.total == first.total
    following = run(sink, "prod", renamed, turn=1)
    assert following.total > 0
    # Its own windows lead the way too, once everything else is lost.
    assert run(sink, "prod", MemoryJournal(), turn=1).empty
    assert len(set(sink.window_ids())) == 3


class CountingSink(ParquetSink):
    """A Parquet sink that counts how often it is listed and asked for markers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.listed = 0
        self.asked: list[str] = []

    def window_ids(self) -> list[str]:
        self.listed += 1
        return list(super().window_ids())

    def marker(self, window_id: str) -> Marker | None:
        self.asked.append(window_id)
        return super().marker(window_id)


def test_only_the_first_window_of_a_scope_looks_for_others(tmp_path: Path) -> None:
    journal, other = MemoryJournal(), WindowScope("c9", TOPIC, "g1", "elsewhere")
    run(parquet(tmp_path), "c1", MemoryJournal())
    sink = CountingSink(tmp_path)
    first = run(sink, "c2", journal, on_other_scope="start_anew")
    sink.listed, sink.asked = 0, []
    second = run(sink, "c2", journal, turn=1)
    assert sink.listed == 1  # for its own windows beyond the position, as long as they are few
    # The one that the position stands on is looked for as well: the sink may have lost it.
    assert set(sink.asked) == {first.window_id, second.window_id}
    assert other.scope_hash not in "".join(sink.asked)


def test_a_sink_without_markers_cannot_tell(tmp_path: Path) -> None:
    def sink() -> AppendSink:
        return AppendSink(tmp_path, exactly_once=False)

    run(sink(), "tubemq_default", MemoryJournal())
    assert run(sink(), "prod", MemoryJournal()).total > 0


def test_a_lake_that_was_moved_is_named_as_before(tmp_path: Path) -> None:
    """The advice was an argument that the operator does not have."""
    old, new = tmp_path / "lake", tmp_path / "moved"
    first = run(parquet(old), "prod", MemoryJournal())
    old.rename(new)
    with pytest.raises(OtherScopeFound, match="a link at its old path"):
        run(parquet(new), "prod", MemoryJournal())
    old.symlink_to(new)
    again = run(parquet(old), "prod", MemoryJournal(), turn=1)
    assert again.window_id == first.window_id.replace("c-1-", "c-2-")  # type: ignore[union-attr]
    assert read_windows(new).count_rows() == first.total + again.total


def test_a_group_whose_lake_was_moved_continues_at_its_position(tmp_path: Path) -> None:
    """Progress is of the old name; from scratch, the new one would get all records again."""
    journal = MemoryJournal()
    first = run(parquet(tmp_path / "lake"), "prod", journal)
    (tmp_path / "lake").rename(tmp_path / "moved")
    with pytest.raises(IdentityMismatch) as caught:
        run(parquet(tmp_path / "moved"), "prod", journal)
    given = re.search(r"offsets epoch \S+ <name> --begin '(\{.*\})'", str(caught.value))
    assert given
    order = {"v": 1, "epoch": "2", "past": [""], "seq": 0, "begin": json.loads(given[1]), "rev": 2}
    journal.cursor = json.dumps(order)  # what the command leaves
    again = run(parquet(tmp_path / "moved"), "prod", journal, turn=1, epoch="2")
    assert again.total + first.total == 80  # of two logs with 40 records
    assert read_windows(tmp_path / "moved").count_rows() == first.total + again.total
