"""The engine `session` over RocketMQ: every way to write a window results in what the receipts
say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_client import Credentials, Producer
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.errors import NoPermission
from tubemq_client.errors import ConfigError, CorruptRecord
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.transforms import sql_transform
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sources.registry import open_source
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import Engine, IngestCounts, IngestWatch
from tubemq_provider.windows.verify import check_counts

pq = pytest.importorskip("pyarrow.parquet")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BAD = 7


class Filled:
    """RocketMQ cluster of two brokers with 120 objects in four queues, every `BAD`th with a bad
    id."""

    def __init__(self, mq: EmbeddedRocketMQ) -> None:
        self.mq = mq
        self.bodies: dict[tuple[str, int], bytes] = {}
        self.odd: set[tuple[str, int]] = set()
        with Producer(mq.settings) as producer:
            for number in range(120):
                body = {"id": "x" if number % BAD == 0 else number}
                text, tags = json.dumps(body).encode(), ("even", "odd")[number % 2]
                receipt = producer.send("orders", text, tags=tags)
                self.bodies[receipt.queue.key, receipt.offset] = text
                if tags == "odd":
                    self.odd.add((receipt.queue.key, receipt.offset))

    def plan(self, filters: tuple[str, ...] = ()) -> WindowPlan:
        """Plan everything but the first two records of each queue."""
        ends: dict[str, int] = {}
        for key, offset in self.bodies:
            ends[key] = max(ends.get(key, 0), offset + 1)
        scope = WindowScope("main", "orders", "lake", "/lake", filters, source="rocketmq")
        return WindowPlan.explicit(scope, {key: (2, end) for key, end in ends.items()})

    def expected(self) -> dict[tuple[str, int], bytes]:
        return {place: body for place, body in self.bodies.items() if place[1] >= 2}

    def inline(self, **options: Any) -> Engine:
        source = open_source(
            "rocketmq", self.mq.settings, identity="main", topic="orders", group="lake"
        )
        return InlineEngine.for_source(source, policies=Policies(), **options)

    def session(self, **options: Any) -> SessionEngine:
        return SessionEngine(self.mq.settings, kind="rocketmq", **options)


@pytest.fixture(scope="module")
def filled() -> Iterator[Filled]:
    with EmbeddedRocketMQ(topics={"orders": 2}, brokers=2) as server:
        yield Filled(server)


def publish(root: Path, engine: Engine, plan: WindowPlan) -> tuple[Any, IngestCounts]:
    """Run one attempt as a run does; return the table that readers of the directory find."""
    sink = ParquetSink(root)
    staging = sink.begin(plan, "try-1")
    counts = engine.ingest(plan, staging, IngestWatch())
    check_counts(plan, counts)
    assert sink.publish(staging, plan, counts, lambda _: None).won
    return pq.read_table(root, partitioning=None).sort_by([(n, "ascending") for n in ORDER]), counts


ORDER = ("partition", "offset")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("direct_write", ["on", "off"])
def test_spark_and_inline_engines_write_equal_windows(
    filled: Filled, tmp_path: Path, direct_write: str
) -> None:
    plan = filled.plan()
    options = {"minPartitions": "5"}
    here, inline = publish(tmp_path / "inline", filled.inline(), plan)
    there, spark = publish(
        tmp_path / "spark", filled.session(direct_write=direct_write, options=options), plan
    )

    found = zip(*(there.column(name).to_pylist() for name in (*ORDER, "value")), strict=True)
    assert {(key, offset): body for key, offset, body in found} == filled.expected()
    assert there.schema.names == here.schema.names
    assert there.to_pylist() == here.to_pylist()
    assert (spark.records, spark.bytes, spark.last) == (inline.records, inline.bytes, inline.last)


@pytest.mark.usefixtures("spark")
def test_tags_keep_only_their_records_and_a_query_changes_them(
    filled: Filled, tmp_path: Path
) -> None:
    engine = filled.session(
        transform=sql_transform("select partition, offset, upper(tags) as t from records")
    )
    table, counts = publish(tmp_path, engine, filled.plan(("odd",)))

    found = set(zip(*(table.column(name).to_pylist() for name in ORDER), strict=True))
    assert found == filled.odd & filled.expected().keys()
    assert counts.total == len(found)
    assert set(table["t"].to_pylist()) == {"ODD"}


@pytest.mark.parametrize("engine", ["inline", "direct_write", "spark"])
def test_bodies_become_rows_and_bad_ones_keep_their_place(
    filled: Filled, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    decode = DecodeSpec.parse({"format": "json", "schema": "id bigint"})
    if engine != "inline":
        request.getfixturevalue("spark")
    aside = "drop" if engine == "spark" else "quarantine"
    made: Engine = filled.session(
        decode=decode, corrupt_records=aside, direct_write="off" if engine == "spark" else "auto"
    )
    if engine == "inline":
        source = open_source(
            "rocketmq", filled.mq.settings, identity="main", topic="orders", group="lake"
        )
        policies = Policies.of(corrupt_records=aside)
        made = InlineEngine.for_source(source, policies=policies, decode=decode)
    table, counts = publish(tmp_path, made, filled.plan())

    bad = {place for place, body in filled.expected().items() if json.loads(body)["id"] == "x"}
    assert counts.corrupt == len(bad)
    assert table.num_rows == len(filled.expected()) - len(bad)
    assert None not in table["id"].to_pylist()
    if aside == "quarantine":
        files = list(tmp_path.rglob("*.corrupt"))
        rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
        assert {(row["partition"], row["batch_offset"]) for row in rows} == bad


@pytest.mark.usefixtures("spark")
def test_a_schema_is_inferred_from_the_first_bodies(filled: Filled, tmp_path: Path) -> None:
    decode = DecodeSpec.parse({"format": "json", "schema_file": str(tmp_path / "schema.ddl")})
    engine = filled.session(decode=decode, corrupt_records="drop")
    table, counts = publish(tmp_path / "lake", engine, filled.plan())

    assert table.num_rows + counts.corrupt == len(filled.expected())
    assert "id" in table.schema.names
    assert (tmp_path / "schema.ddl").exists()


@pytest.mark.usefixtures("spark")
def test_a_bad_body_fails_the_window_with_the_way_out(filled: Filled, tmp_path: Path) -> None:
    decode = DecodeSpec.parse({"format": "json", "schema": "id bigint"})
    with pytest.raises(CorruptRecord, match=r"broker-[ab]:\d .*corruptRecords=drop"):
        publish(tmp_path, filled.session(decode=decode), filled.plan())


@pytest.mark.usefixtures("spark")
def test_an_error_of_a_broker_keeps_its_class(filled: Filled, tmp_path: Path) -> None:
    """The class tells that no retry can fix it."""
    auth = Credentials("reader01", "the-secret")
    with EmbeddedRocketMQ(topics={"orders": 2}, brokers=2, credentials=auth) as closed:
        engine = SessionEngine(closed.settings, kind="rocketmq")
        with pytest.raises(NoPermission) as caught:
            publish(tmp_path, engine, filled.plan())
    assert caught.value.fatal


def test_a_kind_without_a_spark_source_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tubemq_provider.spark.formats import format_of

    monkeypatch.delattr("tubemq_provider.sources.rocketmq.SPARK")
    with pytest.raises(ConfigError, match="no Spark source for 'rocketmq'; use engine='inline'"):
        format_of("rocketmq")


def test_options_that_say_where_to_read_are_the_engines(filled: Filled) -> None:
    with pytest.raises(ConfigError, match="nameServers: is set by the engine"):
        filled.session(options={"nameServers": "127.0.0.1:1"})
