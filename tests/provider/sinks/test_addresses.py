"""An address decides alone where records go: nothing else may redirect them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.provider.sinks.postgres import postgres_server
from tests.provider.sinks.windows import plan_of, publish
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.factory import sink_for, spec_problems
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.sql import SqlSink

POSTGRES = "postgresql://db/lake?table=orders"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-csearch_path%3Dx", "name the schema instead: .table=<schema>.<table>"),
        ("-c%20search_path%3Dx", "search_path"),
        ("--search-path%3Dx", "search_path"),
        ("-c%20lock_timeout%3D1min%20-c%20search_path%3Dx", "search_path"),
        ("-c%20lock_timeout%3D1min%20--search_path%3Dx,public", "search_path"),
        ("-c%20role%3Dother", "role"),
        ("-c%20DateStyle%3DGerman", "datestyle"),
        ("-c%20default_tablespace%3Dx", "default_tablespace"),
        ("-c%20lock_timeout%3D1%5C%20min%20-csearch_path%3Dx", "search_path"),
        ("-S%2064", "words of it do not"),
        ("search_path%3Dx", "words of it do not"),
    ],
)
def test_settings_that_change_what_a_name_means_are_refused(options: str, said: str) -> None:
    spec = f"{POSTGRES}&options={options}"
    with pytest.raises(ConfigError, match=said):
        sink_for(spec.replace("//db", "//me:hush@db"))
    (problem, *_) = spec_problems(spec)
    assert said.split(":", maxsplit=1)[0].partition(" .")[0] in problem
    # With an explicit identity the sink may be anywhere.
    url = spec.replace("table=orders&", "")
    assert SqlSink(url, "orders", identity="mine").identity == "mine"


@pytest.mark.parametrize(
    "options", ["-c%20lock_timeout%3D10min", "-clock_timeout%3D5s%20--statement-timeout%3D0"]
)
def test_settings_of_waits_are_taken_and_change_no_name(options: str) -> None:
    spec = f"{POSTGRES}&options={options}"
    assert spec_problems(spec) == []
    assert sink_for(spec)._typed_identity == sink_for(POSTGRES)._typed_identity  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("sqlite:///lake.db?table=orders", "four slashes.*sqlite:////lake.db"),
        ("sqlite:///:memory:?table=orders", "in memory"),
        ("sqlite://?table=orders", "has to be dialect"),
        ("sqlite:////lake.db?uri=true&table=orders", "URI"),
        ("sqlite:///file:lake.db?table=orders", "URI"),
        ("sqlite:////lake.db?table=temp.orders", "attached, or temporary"),
        ("sqlite:////lake.db?table=other.orders", "attached, or temporary"),
    ],
)
def test_files_that_are_elsewhere_on_another_worker_are_refused(spec: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        raise ConfigError(spec_problems(spec) or ["none"], subject="sink")


def test_a_schema_of_sqlite_that_is_not_the_file_is_refused_in_python_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    with pytest.raises(ConfigError, match="attached, or temporary"):
        SqlSink(url, "temp.orders")
    publish(SqlSink(url, "main.orders"), plan_of(SqlSink(url, "main.orders")))
    with pytest.raises(ConfigError, match="URI"):
        SqlSink(f"{url}?uri=true", "orders")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("postgresql://h/?table=t", "names no database"),
        ("postgresql://h?table=t", "names no database"),
        ("postgresql://h/a%2Fb?table=t", "the character '/'"),
        ("postgresql://h/a%3Fservice%3Dx?table=t", "the character '[?]'"),
        ("postgresql://h/dbname%3Da%20host%3Db?table=t", "the character '='"),
        ("postgresql://h/db?target_session_attrs=standby&table=t", "read-write or primary"),
        ("postgresql://h/db?target_session_attrs=prefer-standby&table=t", "cannot be written"),
        ("postgresql:///db?HOST=x&table=t", "write host"),
        ("postgresql://h/db?SSLMODE=require&table=t", "write sslmode"),
        ("postgresql://h/db?table=a&table=b", "more than once"),
        ("sqlite:////d/lake.db?table=a&TABLE=b", "more than once"),
        ("sqlite:////d/lake.db/?table=t", "is a directory"),
        ("sqlite:////?table=t", "is a directory"),
    ],
)
def test_an_address_that_names_no_one_place_is_refused(spec: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        raise ConfigError(spec_problems(spec) or ["none"], subject="sink")
    if not spec.endswith("/?table=t") or spec.startswith("postgresql"):
        with pytest.raises(ConfigError, match=said):
            sink_for(spec)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("postgresql://h:0/db?table=t", "port 0"),
        ("postgresql://h:65536/db?table=t", "port 65536"),
        ("postgresql://h/db?table=.t", "an empty part"),
        ("postgresql://h/db?table=s.", "an empty part"),
        ("/data/a\nb", "control character"),
        ("delta:/data/a\0b", "control character"),
    ],
)
def test_words_that_name_nothing_are_refused_before_a_run(spec: str, said: str) -> None:
    assert said in spec_problems(spec)[0]


@pytest.mark.parametrize("url", ["postgresql://h:/db", "sqlite://:memory:"])
def test_an_address_that_cannot_be_parsed_is_an_error_of_ours(url: str) -> None:
    with pytest.raises(ConfigError, match="cannot be parsed"):
        SqlSink(url, "orders")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush@h1,h2/db",
        "postgresql:///db?host=h1&host=h2",
        "postgresql:///db?host=h1,h2&target_session_attrs=any",
        "postgresql:///db?host=h1:5433,h2:5434",
    ],
)
def test_of_several_hosts_only_one_that_can_be_written_to_is_used(url: str) -> None:
    with pytest.raises(ConfigError, match="target_session_attrs=read-write"):
        SqlSink(url, "orders")


@pytest.mark.parametrize(
    "spec",
    [
        "postgresql:///db?host=h1:5432,h2:5432&target_session_attrs=read-write&table=t",
        "postgresql:///db?host=h1&host=h2&target_session_attrs=primary&table=t",
        "postgresql:///db?host=/run/postgresql&table=t",
        "postgresql://h/db?target_session_attrs=any&table=t",
        "postgresql://h/my%20db?table=s.t",
        "postgresql+psycopg2://h:6543/db?sslmode=verify-full&sslrootcert=/ca&table=t",
    ],
)
def test_addresses_of_one_place_are_taken(spec: str) -> None:
    assert spec_problems(spec) == []
    assert "(" not in sink_for(spec)._typed_identity  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["", "delta:", "append:", "markers:"])
@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("100%25", "the escape %25"),
        ("a%2Fb", "the escape %2F"),
        ("x/./y", "did you mean s3://lake/x/y"),
        ("x/../y", "did you mean s3://lake/y"),
        ("../../y", "did you mean s3://lake/y"),
        ("x//y", "an empty part; did you mean s3://lake/x/y"),
        ("/x", "an empty part; did you mean s3://lake/x"),
        ("x\\y", "a backslash"),
        ("x\ny", "control character"),
    ],
)
def test_prefixes_that_mean_another_are_refused(kind: str, prefix: str, said: str) -> None:
    exactly_once = kind != "append:"
    (problem,) = spec_problems(f"{kind}s3://lake/{prefix}", exactly_once=exactly_once)
    assert said in problem
    with pytest.raises(ConfigError):
        ObjectStoreSink(f"s3://lake/{prefix}")


@pytest.mark.parametrize("spec", ["s3:///x", "gs://", "delta:az:///x"])
def test_a_store_needs_a_bucket(spec: str) -> None:
    assert "names no bucket" in spec_problems(spec)[0]


@pytest.mark.parametrize(
    "spec", ["s3://lake", "s3://lake/", "s3://lake/x/", "gs://lake/a b/ü", "az://c/.x/y..z/100%"]
)
def test_plain_prefixes_are_taken(spec: str) -> None:
    assert spec_problems(spec) == []


# -- a genuine PostgreSQL -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


def sink_of(postgres: str, group_path: str | None = None, table: str = "orders") -> SqlSink:
    engine = sa.create_engine(postgres)
    with engine.begin() as connection:
        name = connection.scalar(sa.text("SELECT current_user"))
        for schema in ("first", "second"):
            connection.execute(sa.text(f"CREATE SCHEMA IF NOT EXISTS {schema}"))
        if group_path is not None:
            connection.execute(sa.text(f'ALTER ROLE "{name}" SET search_path = {group_path}'))
    engine.dispose()
    return SqlSink(postgres, table)


def test_a_search_path_that_leads_elsewhere_is_refused_with_both_ways_out(postgres: str) -> None:
    sink = sink_of(postgres, "first")
    publish(sink, plan_of(sink, 1))
    moved = sink_of(postgres, "second")
    assert moved.identity == sink.identity
    with pytest.raises(ConfigError, match=r"in schema 'first'.*table=first\.orders") as refused:
        publish(moved, plan_of(moved, 2))
    assert sink.identity in str(refused.value)
    with sa.create_engine(postgres).connect() as connection:
        found = sa.text("SELECT to_regclass('second.orders')")
        assert connection.scalar(found) is None
    back = sink_of(postgres, "first")
    publish(back, plan_of(back, 2))
    named = SqlSink(postgres, "first.orders", identity=sink.identity)
    sink_of(postgres, "second")
    publish(named, plan_of(named, 3))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PGSERVICE", "lake"),
        ("PGHOSTADDR", "127.0.0.2"),
        ("PGPORT", "6543"),
        ("PGOPTIONS", "-c search_path=x"),
    ],
)
def test_variables_that_lead_elsewhere_are_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    sink = SqlSink("postgresql://db.invalid/lake", "orders")
    with pytest.raises(ConfigError, match=name):
        sink.marker("c-1-x")
