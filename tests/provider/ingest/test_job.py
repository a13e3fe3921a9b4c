"""The composition root: whatever the source is, the same words make the same windows."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from tests.kit.toy_source.source import LineSource, open_source
from tools.devkit.patience import PATIENCE
from tubemq_client.errors import ConfigError, MissingExtraError
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.columns import expected_columns
from tubemq_provider.ingest.engines import make_engine
from tubemq_provider.ingest.job import IngestJob, needs_interval
from tubemq_provider.ingest.validation import parse
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows import spaces
from tubemq_provider.windows.errors import CountMismatch
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestWatch, Sink, Step
from tubemq_provider.windows.run.result import WindowResult
from tubemq_provider.windows.spaces import FIRST_SOURCE

AT = {"initial_position": "earliest"}
DECODE = {"format": "json", "schema": "id bigint"}
FOREIGN = Schema(
    [
        Field(name, PrimitiveType(kind))
        for name, kind in [("partition", "string"), ("offset", "long"), ("text", "integer")]
    ]
)
BASE = {"topic": "orders", "group": "lake", "cluster": "main", "source": "lines"}


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spaces.SOURCES, "lines", "tests.kit.toy_source")


@pytest.fixture
def source(tmp_path: Path) -> LineSource:
    topic = tmp_path / "cluster" / "orders"
    topic.mkdir(parents=True)
    (topic / "north.0").write_text("a\nb\nc\n")
    (topic / "south.0").write_text("d\n")
    return open_source(str(topic.parent), identity="main", topic="orders", group="lake")


class Silent:
    def at(self, step: Step, point: str) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("engine", "extra", "more"),
    [
        ("session", "spark", {}),
        ("connect", "connect", {"spark_conf": {"spark.remote": "sc://spark"}}),
    ],
)
def test_an_engine_whose_packages_are_missing_names_its_extra(
    engine: str, extra: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    given = {**BASE, **AT, "source": FIRST_SOURCE, "path": "/lake", "engine": engine, **more}
    arguments = parse(IngestArguments, given)
    source: Any = SimpleNamespace(space=spaces.space_of(FIRST_SOURCE))
    with pytest.raises(MissingExtraError) as caught, ExitStack() as stack:
        make_engine(arguments, source, Policies(), stack)
    assert f"pip install 'airflow-provider-tubemq[{extra}]'" in str(caught.value)
    assert "engine='inline'" in str(caught.value)


def test_an_engine_module_without_its_package_names_the_extra() -> None:
    code = """
import sys
from importlib import import_module
sys.modules["pyspark"] = None
for name in ("session", "connect", "spark_engine"):
    try:
        import_module(f"tubemq_provider.engines.{name}")
    except ImportError as error:
        print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
    )
    lines = run.stdout.splitlines()
    assert len(lines) == 3
    assert all("pip install 'airflow-provider-tubemq[spark]'" in line for line in lines)


def job(source: LineSource, root: Path, /, **given: Any) -> IngestJob:
    arguments = parse(IngestArguments, {**BASE, "path": str(root), "engine": "inline", **given})
    return IngestJob(arguments, source, ParquetSink(root), ExitStack())


def run(source: LineSource, root: Path, journal: MemoryJournal, **given: Any) -> WindowResult:
    store = MemoryOffsetStore(journal, task=str(len(journal.events)))
    made = job(source, root, **given)
    return made.run(store, attempt=store.writer, serialised=True, observer=Silent())


def test_a_foreign_source_has_cursor_and_explicit_windows(
    source: LineSource, tmp_path: Path
) -> None:
    journal, root = MemoryJournal(), tmp_path / "lake"
    cursor = {"initial_position": {"north.0": 1, "south.0": "earliest"}, "max_records": 2}

    first = run(source, root, journal, **cursor, commit_to_broker=True)
    second = run(source, root, journal, **cursor)
    explicit = {"starting_offsets": {"north.0": 0}, "ending_offsets": {"north.0": 1}}
    third = run(source, root, journal, mode="time", on_other_scope="start_anew", **explicit)

    assert (first.total, second.total, third.total) == (2, 1, 1)
    assert source.mirrored == {"north.0": 2, "south.0": 1}


def test_offsets_are_validated_by_the_kind_of_source() -> None:
    given = {**BASE, "path": "/lake", "engine": "inline", "initial_position": {"1:0": 28}}

    with pytest.raises(ConfigError, match=r"initial_position: .*'<place>\.<number>'"):
        parse(IngestArguments, given)
    with pytest.raises(ConfigError, match="no source of kind 'elsewhere'"):
        parse(IngestArguments, {**given, "source": "elsewhere"})


@pytest.mark.parametrize(
    ("name", "value"), [("cluster", "other"), ("topic", "payments"), ("group", "mart")]
)
def test_a_source_of_another_identity_is_refused(
    name: str, value: str, source: LineSource, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"{name}: the source is .*, the arguments are for"):
        job(source, tmp_path / "lake", **{name: value})


def test_a_source_of_another_kind_is_refused(source: LineSource, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kind: the source is 'lines', the arguments are for"):
        job(source, tmp_path / "lake", source="tubemq")


def test_the_spark_engine_refuses_other_sources(source: LineSource, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Spark source for 'lines'; use engine='inline'"):
        job(source, tmp_path / "lake", engine="session")


def test_a_window_of_time_needs_an_interval_from_somewhere() -> None:
    given = {**BASE, "path": "/lake", "engine": "inline", "mode": "time", "boundaries": {}}
    arguments = parse(IngestArguments, {**given, "boundaries": "/boundaries.json"})

    assert needs_interval(arguments, (None, None))
    cursor = parse(IngestArguments, {**BASE, "path": "/lake", "engine": "inline"})
    assert not needs_interval(cursor, (None, None))


def test_nothing_of_a_framework_is_imported() -> None:
    code = (
        "import sys, tubemq_provider.ingest.job;"
        "loaded = {m.partition('.')[0] for m in sys.modules};"
        "assert not {'airflow', 'dagster', 'pyspark'} & loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60 * PATIENCE)


def sinks_of(arguments: IngestArguments, root: Path) -> dict[str, Sink]:
    """Yield a sink of each kind that keeps files, built from the arguments."""
    catalog = f"sqlite:///{root}/catalog.db"
    properties = {"type": "sql", "uri": catalog, "warehouse": f"file://{root}/warehouse"}
    options = arguments.sink_options
    del options["exactly_once"]
    return {
        "parquet": sink_for(root / "lake", **options),
        "delta": sink_for(f"delta:{root}/table", **options),
        "iceberg": sink_for("iceberg:main/s.orders", catalog_properties=properties, **options),
        "objects": ObjectStoreSink(str(root / "objects"), **options),
    }


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg", "objects"])
def test_footers_are_read_where_the_argument_says_so(
    kind: str, source: LineSource, tmp_path: Path
) -> None:
    """A writer's word is compared with the file in every sink of files, if that is asked for."""
    for verify in ("facts", "footers"):
        given = {"initial_position": "earliest", "verify": verify, "engine": "inline"}
        arguments = parse(IngestArguments, {**BASE, "path": "/lake", **given})
        sink = sinks_of(arguments, tmp_path)[kind]
        scope = WindowScope("main", "orders", verify, sink.identity, (), "", "lines")
        plan = WindowPlan.cursor(scope, 1, {"north.0": (0, 3)})
        staging = sink.begin(plan, "a")
        engine = make_engine(arguments, source, Policies(), ExitStack())
        counts = engine.ingest(plan, staging, IngestWatch())
        (fact,) = counts.files or ()
        liar = replace(counts, files=(replace(fact, schema=b""),))
        if verify == "footers":
            with pytest.raises(CountMismatch, match="its footer has"):
                sink.publish(staging, plan, liar, lambda _: None)
        assert sink.publish(staging, plan, counts, lambda _: None).won


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "column 'text' is .*, the files have"),
        ({"decode": DECODE}, "it has no column 'id'"),
    ],
    ids=["records", "rows"],
)
def test_a_table_that_would_refuse_the_window_is_asked_before_a_record_is_read(
    given: dict[str, Any], problem: str, source: LineSource, tmp_path: Path
) -> None:
    table = DeltaTable.create(tmp_path / "table", schema=FOREIGN)
    arguments = parse(
        IngestArguments,
        {**BASE, "sink": f"delta:{tmp_path / 'table'}", "engine": "inline", **AT, **given},
    )
    made = IngestJob(arguments, source, DeltaSink(tmp_path / "table"), ExitStack())
    made.read_with(lambda _: pytest.fail("the window was read"))
    store = MemoryOffsetStore(MemoryJournal(), task="t")

    with pytest.raises(ConfigError, match=problem):
        made.run(store, attempt="t", serialised=True, observer=Silent())
    assert table.version() == 0


def test_the_columns_of_an_inferred_schema_are_those_that_were_kept(tmp_path: Path) -> None:
    kept = tmp_path / "schema.sql"
    given = {"format": "json", "schema_file": str(kept)}
    arguments = parse(IngestArguments, {**BASE, "path": "/lake", "decode": given})

    assert expected_columns(arguments, "lines") is None
    kept.write_text("id bigint\n")
    found = expected_columns(arguments, "lines")
    assert found is not None
    assert found.names == ["partition", "offset", "text", "id"]
    elsewhere = {"format": "function", "function": "on.the.cluster", "schema": "id bigint"}
    others = [{"transform": "some.where"}, {"direct_write": "off"}, {"decode": elsewhere}]
    for other in others:
        assert (
            expected_columns(parse(IngestArguments, {**BASE, "path": "/l", **other}), "lines")
            is None
        )


@pytest.mark.parametrize("sink", ["append:/lake", "sqlite:////lake.db?table=orders"])
def test_sinks_without_files_of_a_window_have_no_footers_to_read(sink: str) -> None:
    given = {**BASE, "sink": sink, "exactly_once": not sink.startswith("append")}
    with pytest.raises(ConfigError, match="verify='footers' has no effect with"):
        parse(IngestArguments, {**given, "verify": "footers"})


def test_files_are_compressed_as_asked(source: LineSource, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    run(source, root, MemoryJournal(), initial_position="earliest", compression="zstd")

    files = list(root.rglob("window_id=*/*.parquet"))
    found = {pq.ParquetFile(file).metadata.row_group(0).column(0).compression for file in files}
    assert found == {"ZSTD"}
    with pytest.raises(ConfigError, match="compression has no effect with engine='session'"):
        parse(
            IngestArguments,
            {**BASE, "path": "/lake", "compression": "zstd", "engine": "session"},
        )
