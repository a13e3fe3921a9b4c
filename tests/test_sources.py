"""The seam for sources: modules that may know the meaning of a TubeMQ offset."""

import ast
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sources.base import Source
from tubemq_provider.sources.registry import config_of, open_source
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows import spaces
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.run._base import Planner
from tubemq_provider.windows.run.kinds import window_run

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ROOT = Path(__file__).resolve().parent.parent
MAY_KNOW = ("tubemq_provider/sources/tubemq/",)
KNOWLEDGE = re.compile(
    r"INDEX_ENTRY_BYTES|PARTITIONS_PER_STORE|\bstore_(id|key)\b|[%/*] ?28\b"
    r"|\b(PartitionEnds|ReachableEnds)\b|Partition\.(from_key|is_key)|OffsetRange\(|\.broker_id\b"
)
SECOND = "rocketmq"
MAY_NAME_BOTH = {
    "tubemq_provider/extensions.py",  # kinds and their packages
    "tubemq_provider/get_provider_info.py",  # what Airflow reads of a provider
    "tubemq_provider/dagster/__init__.py",  # exports the names of each for Dagster
    "tubemq_provider/dagster/ingest.py",  # the assets of both, on one base
    "tubemq_provider/dagster/resource.py",  # the resources of both, on one base
}
SCOPE = WindowScope("main", "orders", "lake", "/lake")


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WindowScope:
    """Install a third kind of source like another distribution, by an entry point only.

    It has partition keys and counts records as offsets.
    """
    installed = tmp_path / "site" / "toy-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[tubemq_provider.sources]\nlines = tests.kit.toy_source\n"
    )
    monkeypatch.syspath_prepend(str(installed.parent))
    return replace(SCOPE, source="lines")


def test_only_the_source_knows_entries_stores_and_the_clients_ends() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for package in ("tubemq_provider", "pyspark_tubemq")
        for path in (ROOT / package).rglob("*.py")
        if not str(path.relative_to(ROOT)).startswith(MAY_KNOW)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if KNOWLEDGE.search(line)
    }

    assert found == set()


def test_only_registry_and_manifest_know_the_second_source_by_name() -> None:
    """And nothing anywhere compares a kind with its name."""
    files = [
        path
        for package in ("tubemq_client", "tubemq_provider", "pyspark_tubemq")
        for path in (ROOT / package).rglob("*.py")
    ]
    named = {path for path in files if SECOND in path.read_text().lower()}
    compared = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in named
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Compare, ast.MatchValue)) and SECOND in ast.unparse(node).lower()
    ]

    others = {str(path.relative_to(ROOT)) for path in named if SECOND not in str(path)}
    assert others == MAY_NAME_BOTH
    assert compared == []


def test_nothing_imports_or_compares_with_the_source_of_the_plug_in() -> None:
    """Kafka's names stand only in hints on its option words, and in what its connectors write."""
    trees = {
        path.relative_to(ROOT): ast.parse(path.read_text())
        for path in (ROOT / "tubemq_provider").rglob("*.py")
    }
    imported = [
        f"{path}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "kafka" in ast.unparse(node).lower()
    ]
    named = [
        f"{path}:{node.lineno}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in ("kafka", "confluent_kafka")
    ]

    assert (imported, named) == ([], [])


def test_the_first_source_leaves_no_trace_in_ids_and_documents() -> None:
    plan = WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 28)})

    assert SCOPE.scope_hash == "929933c2fc"  # as before there was a second kind
    assert "source" not in plan.to_document()
    assert plan.to_document()["v"] == 1


def test_another_kind_of_source_has_separate_windows(lines: WindowScope) -> None:
    plan = WindowPlan.cursor(lines, 1, {"north.10": (0, 3), "north.2": (5, 5)})
    document = json.loads(plan.canonical())

    assert lines.scope_hash != SCOPE.scope_hash
    assert (document["source"], document["v"]) == ("lines", 2)
    assert WindowPlan.from_document(document) == plan
    assert [(found.partition.key, found.end) for found in plan.reads()] == [("north.10", 3)]
    assert list(plan.ranges) == ["north.2", "north.10"]
    assert plan.entries == 3


def test_keys_and_offsets_are_judged_by_their_own_source(lines: WindowScope) -> None:
    with pytest.raises(DocumentError, match="the key is not '<broker id>:<partition id>'"):
        WindowPlan.cursor(SCOPE, 1, {"north.0": (0, 28)})
    with pytest.raises(DocumentError, match="3 is not a multiple of 28"):
        WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 3)})
    with pytest.raises(DocumentError, match=r"the key is not '<place>\.<number>'"):
        WindowPlan.cursor(lines, 1, {"1:0": (0, 3)})


def test_a_plan_of_an_unknown_source_is_refused_with_its_name() -> None:
    document = WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 28)}).to_document()

    with pytest.raises(DocumentError, match="no source of kind 'elsewhere'"):
        WindowPlan.from_document({**document, "v": 2, "source": "elsewhere"})
    with pytest.raises(ConfigError, match="known: rocketmq, tubemq"):
        spaces.space_of("elsewhere")


def test_partitions_of_a_store_share_a_log() -> None:
    assert SPACE.logs(["1:0", "1:9999", "1:10000", "2:0"]) == {
        "1/0": ["1:0", "1:9999"],
        "1/1": ["1:10000"],
        "2/0": ["2:0"],
    }
    assert SPACE.ordered(["10:0", "2:10", "2:9"]) == ["2:9", "2:10", "10:0"]


def write_lines(root: Path, **partitions: int) -> None:
    for key, count in partitions.items():
        path = root / "orders" / key.replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        times = (NOON + timedelta(minutes=n) for n in range(count))
        path.write_text(
            "".join(f"{at.isoformat()} {path.name} {n}\n" for n, at in enumerate(times))
        )


def lines_in(sink: ParquetSink) -> list[str]:
    return sorted(pq.read_table(sink.root)["text"].to_pylist())


def taken(planner: Planner, source: Source, sink: ParquetSink, journal: MemoryJournal) -> int:
    """Return the records of one more window; only the source is of its kind."""
    store = MemoryOffsetStore(journal, task=str(uuid4()))
    engine = InlineEngine.for_source(source, policies=planner.policies)
    run = window_run(planner, store, sink, engine, attempt=str(uuid4()), mirror=source.mirror)
    return run.run().total


def test_a_source_of_another_distribution_has_windows_through_everything(
    lines: WindowScope, tmp_path: Path
) -> None:
    sink, journal = ParquetSink(tmp_path / "lake"), MemoryJournal()
    scope = replace(lines, sink=sink.identity)
    settings = config_of("lines").parse({"root": str(tmp_path)}).settings()
    source = open_source("lines", settings, identity="main", topic="orders", group="lake")

    def planner() -> CursorPlanner:
        return CursorPlanner(
            scope, source.ends, "earliest", max_records=70, witness=source.record_lookup()
        )

    write_lines(tmp_path, north_0=50, north_1=0, south_0=30)
    counts = [taken(planner(), source, sink, journal) for _ in range(3)]
    write_lines(tmp_path, north_0=55, west_0=5)
    counts.append(taken(planner(), source, sink, journal))

    every = "".join(path.read_text() for path in (tmp_path / "orders").iterdir()).splitlines()
    assert counts == [70, 10, 0, 10]
    assert lines_in(sink) == sorted(every)
    assert source.mirrored == {"north.0": 55, "north.1": 0, "south.0": 30, "west.0": 5}


def test_a_time_of_another_source_resolves_windows(lines: WindowScope, tmp_path: Path) -> None:
    sink, journal = ParquetSink(tmp_path / "lake"), MemoryJournal()
    scope = replace(lines, sink=sink.identity)
    source = open_source("lines", str(tmp_path), identity="main", topic="orders", group="lake")
    write_lines(tmp_path, north_0=50, south_0=30)
    resolver = source.resolver("line_time", {})

    def window(first: int, last: int) -> int:
        start, end = (NOON + timedelta(minutes=minutes) for minutes in (first, last))
        planner = TimePlanner(scope, start, end, resolver, source.ends, sink.boundaries)
        return taken(planner, source, sink, journal)

    assert [window(20, 40), window(0, 20), window(20, 40)] == [30, 40, 30]
    assert len(lines_in(sink)) == 70


def test_a_broker_of_another_source_is_retired_by_its_name(
    lines: WindowScope, tmp_path: Path
) -> None:
    sink = ParquetSink(tmp_path / "lake")
    book = sink.boundaries
    assert book is not None
    ScopeBook(book, lines).retire("south")
    ScopeBook(book, SCOPE).retire(2)

    assert ScopeBook(book, lines).is_retired("south.3")
    assert not ScopeBook(book, lines).is_retired("north.3")
    assert ScopeBook(book, SCOPE).retired == {"2"}
    assert book.read(f"retired-2-{SCOPE.scope_hash}") == {
        "v": 1,
        "broker": 2,
        "h": SCOPE.scope_hash,
    }


def test_a_package_that_is_no_source_is_refused_with_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(spaces.SOURCES, "half", "tests.kit.toy_source")
    monkeypatch.delattr("tests.kit.toy_source.source.open_source")

    with pytest.raises(ConfigError, match="has no open_source, which a source of kind 'half'"):
        open_source("half", "", identity="main", topic="orders", group="lake")


def test_tubemq_says_which_ways_to_time_it_has() -> None:
    source = open_source("tubemq", None, identity="main", topic="orders", group="lake")

    with pytest.raises(ConfigError, match="its own are history, message_time"):
        source.resolver("store_time", {})
    with pytest.raises(ConfigError, match="TubeMQ keeps no offset by time"):
        source.offsets_at(NOON)
