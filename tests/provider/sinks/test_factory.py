"""From a user's words to a sink, and clear answers to words that mean none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.provider.sinks.openers import parquet
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.factory import SUPPORTED, sink_for, sink_uri, spec_problems
from tubemq_provider.sinks.sql import SqlSink


@pytest.mark.parametrize(
    ("spec", "kind", "identity", "uri"),
    [
        ("/data/x", "parquet", "parquet:/data/x", "file:///data/x"),
        (Path("/data/x"), "parquet", "parquet:/data/x", "file:///data/x"),
        ("file:///data/x", "parquet", "parquet:/data/x", "file:///data/x"),
        ("/data/a:b", "parquet", "parquet:/data/a:b", "file:///data/a:b"),
        ("s3://b/x/", "object_store", "object_store:s3://b/x", "s3://b/x"),
        ("GS://b/x", "object_store", "object_store:gs://b/x", "gs://b/x"),
        ("delta:/data/x", "delta", "delta:/data/x", "file:///data/x"),
        ("delta:///data/x", "delta", "delta:/data/x", "file:///data/x"),
        ("delta:s3://b/x", "delta", "delta:s3://b/x", "s3://b/x"),
        (
            "postgresql+psycopg2://me:hush@db:5433/lake?table=s.orders&sslmode=require",
            "jdbc",
            "jdbc:postgresql://db:5433/lake/s.orders",
            "postgresql://db:5433/lake/s.orders",
        ),
        (
            "sqlite:////data/lake.db?table=orders",
            "jdbc",
            "jdbc:sqlite:/data/lake.db/orders",
            "sqlite:////data/lake.db/orders",
        ),
    ],
)
def test_words_that_mean_a_sink(spec: str | Path, kind: str, identity: str, uri: str) -> None:
    sink = sink_for(spec)
    assert (sink.kind, sink.identity) == (kind, identity)
    assert sink_uri(spec) == uri
    assert "hush" not in repr(sink)


def test_an_iceberg_table_needs_a_catalog_that_is_configured() -> None:
    with pytest.raises(ConfigError, match="pyiceberg's configuration"):
        sink_for("iceberg:nowhere/sales.orders")
    with pytest.raises(ConfigError, match="needs a catalog and a table"):
        sink_for("iceberg:sales.orders")
    assert sink_uri("iceberg:lake/sales.orders") == "iceberg://lake/sales.orders"


def test_a_sink_is_taken_as_it_is(tmp_path: Path) -> None:
    sink = parquet(tmp_path)
    assert sink_for(sink) is sink


def test_a_sink_is_not_asked_who_it_is_before_it_is_used() -> None:
    class Unreachable(SqlSink):
        def window_ids(self) -> Iterable[str]:
            raise ConnectionError("the database is away while a Dag is parsed")

    sink = Unreachable("postgresql://DB.example:5432/lake", "orders")
    assert sink_for(sink) is sink


def test_appending_has_to_be_asked_for_twice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exactly_once=False"):
        sink_for(f"append:{tmp_path}")
    assert sink_for(f"append:{tmp_path}", exactly_once=False).kind == "append"
    with pytest.raises(ConfigError, match="no effect"):
        sink_for(str(tmp_path), exactly_once=False)


@pytest.mark.parametrize("spec", ["hdfs://n/x", "kafka:topic", "me:hush@host/x", 7])
def test_other_words_are_answered_with_what_is_supported(spec: object) -> None:
    with pytest.raises(ConfigError) as refused:
        sink_for(spec)  # type: ignore[arg-type]
    assert all(line in str(refused.value) for line in SUPPORTED)
    assert "hush" not in str(refused.value)


def test_a_database_needs_a_table() -> None:
    with pytest.raises(ConfigError, match="table=<name>") as refused:
        sink_for("postgresql://me:hush@db/lake")
    assert "hush" not in str(refused.value)


def test_options_without_effect_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="storage_options has no effect"):
        sink_for(tmp_path, storage_options={"region": "x"})
    with pytest.raises(ConfigError, match="storage_options has no effect"):
        sink_for("sqlite:////x.db?table=t", storage_options={"region": "x"})


@pytest.mark.parametrize("password", ["hush", "hu#sh", "hu/sh", "hu?sh", "hu:sh"])
def test_a_uri_has_no_part_of_a_password(password: str) -> None:
    spec = f"postgresql://me:{password}@db/lake?table=orders"
    assert sink_uri(spec) == "postgresql://db/lake/orders"
    assert sink_for(spec).identity == "jdbc:postgresql://db/lake/orders"


@pytest.mark.parametrize("spec", ["lake", "delta:{}/table", "s3://lake/orders"])
def test_the_check_of_files_can_be_chosen(spec: str, tmp_path: Path) -> None:
    place = spec.format(tmp_path) if "{}" in spec or "://" in spec else tmp_path / spec
    sink_for(place, verify="footers")
    with pytest.raises(ConfigError, match="verify 'quickly' is none of facts, footers"):
        sink_for(place, verify="quickly")  # type: ignore[arg-type]


def test_sinks_that_read_the_files_anyway_take_no_choice(tmp_path: Path) -> None:
    for spec in (f"sqlite:///{tmp_path}/lake.db?table=orders", f"append:{tmp_path}"):
        with pytest.raises(ConfigError, match="verify has no effect"):
            sink_for(spec, verify="footers", exactly_once=not spec.startswith("append"))


@pytest.mark.parametrize(
    ("spec", "instead"),
    [
        ("hdfs://nn:8020/lake", "between TubeMQPlanWindowOperator and TubeMQCommitWindowOperator"),
        ("viewfs://c/lake", "name an object store or a table"),
        ("abfss://c@account.dfs.core.windows.net/x", "write az://<container>/<prefix>"),
        ("s3a://bucket/x", "write s3://<bucket>/<prefix>"),
    ],
)
def test_names_of_other_tools_are_answered_with_what_to_write(spec: str, instead: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sink_for(spec)
    assert instead in str(refused.value)
    assert any(instead in problem for problem in spec_problems(spec))
    assert any(
        instead in problem for problem in spec_problems(f"append:{spec}", exactly_once=False)
    )
