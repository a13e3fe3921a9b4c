"""Errors of a database in a log: code, columns and constraints; neither records nor logins."""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
import sqlalchemy as sa

from tests.provider.sinks.openers import jdbc
from tests.provider.sinks.postgres import postgres_server
from tests.provider.sinks.windows import COUNTS, ignore, plan_of, publish, stage
from tubemq_provider.sinks.sql import SqlSink
from tubemq_provider.sinks.sql.errors import plain_errors
from tubemq_provider.windows.errors import DatabaseError

SECRET = "iban-de89-3704"
COLUMNS = '"window_id" text, "partition" text, "offset" bigint, "msg_time" timestamptz'


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


def make(url: str, *statements: str) -> None:
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def refusal(sink: SqlSink) -> DatabaseError:
    """Return the error of publishing two records, the second of which has a secret in it."""
    plan = plan_of(sink)
    staging = sink.begin(plan, "a")
    stage(staging, SECRET)
    with pytest.raises(DatabaseError) as caught:
        sink.publish(staging, plan, COUNTS, ignore)
    return caught.value


def shown(error: BaseException) -> str:
    """All that a log would have, with every error that is chained, suppressed or not."""
    lines = []
    while error is not None:
        lines += traceback.format_exception(error, chain=False)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return "".join(lines)


@pytest.mark.parametrize(
    ("attributes", "constraint", "said"),
    [
        ("jsonb", 'CONSTRAINT short CHECK (length("attributes"::text) < 9)', "constraint short"),
        ("jsonb", 'CONSTRAINT same UNIQUE ("attributes")', "SQLSTATE 23505"),
        ("jsonb GENERATED ALWAYS AS ('{}') STORED", "", "SQLSTATE 428C9"),
        ("jsonb NOT NULL", "", "column attributes"),
    ],
)
def test_records_that_postgresql_refuses_are_not_shown(
    attributes: str, constraint: str, said: str, postgres: str, tmp_path: Path
) -> None:
    table = f"t{abs(hash((attributes, constraint)))}"
    columns = f'{COLUMNS}, "attributes" {attributes}, "value" bytea'
    make(postgres, f"CREATE TABLE {table} ({columns}{constraint and ', ' + constraint})")
    if "UNIQUE" in constraint:
        make(postgres, f"""INSERT INTO {table} (attributes) VALUES ('{{"source": "{SECRET}"}}')""")
    error = refusal(jdbc(postgres, table, tmp_path / "staging"))
    assert said in str(error)
    assert (error.retriable, error.fatal) == (True, False)
    assert SECRET not in shown(error)
    # The way out: mend the table, and the same window goes in.
    make(postgres, f"DROP TABLE {table}")
    again = jdbc(postgres, table, tmp_path / "staging")
    assert publish(again, plan_of(again), "again").won


def test_what_a_trigger_says_is_not_repeated(postgres: str, tmp_path: Path) -> None:
    make(
        postgres,
        f'CREATE TABLE told ({COLUMNS}, "attributes" jsonb, "value" bytea)',
        """CREATE FUNCTION tell() RETURNS trigger AS $$
        BEGIN RAISE EXCEPTION 'no: %', NEW.attributes; END $$ LANGUAGE plpgsql""",
        "CREATE TRIGGER tells BEFORE INSERT ON told FOR EACH ROW EXECUTE FUNCTION tell()",
    )
    error = refusal(jdbc(postgres, "told", tmp_path / "staging"))
    assert "SQLSTATE P0001" in str(error)
    assert SECRET not in shown(error)


def test_records_that_sqlite_refuses_are_not_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lake.db"
    make(url, f'CREATE TABLE orders ({COLUMNS}, "attributes" text NOT NULL, "value" blob)')
    error = refusal(jdbc(url, "orders", tmp_path / "staging"))
    assert "NOT NULL constraint failed: orders.attributes" in str(error)
    assert SECRET not in shown(error)


def test_statements_are_logged_without_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = jdbc(f"sqlite:///{tmp_path}/lake.db", "orders", tmp_path / "staging")
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"):
        publish(sink, plan_of(sink), SECRET)
    assert "INSERT INTO orders" in caplog.text
    assert SECRET not in caplog.text


def test_a_login_that_is_refused_is_not_shown(postgres: str, tmp_path: Path) -> None:
    url = sa.make_url(postgres).set(username="loader_7", password=SECRET)
    sink = jdbc(url.render_as_string(hide_password=False), "orders", tmp_path / "staging")
    with pytest.raises(DatabaseError) as caught:
        sink.window_ids()
    assert 'role "***"' in str(caught.value) or 'user "***"' in str(caught.value)
    assert not [name for name in ("loader_7", SECRET) if name in shown(caught.value)]


class Speaker:
    """Error texts of a driver, with each way to quote a name."""

    address, login = "postgresql://db/lake", ("loader_7", SECRET)

    @plain_errors
    def speak(self) -> None:
        words = f"no pg_hba.conf entry for loader_7 ({SECRET}) on database lake"
        raise sa.exc.OperationalError("SELECT 1", {}, psycopg2.OperationalError(words))


def test_a_login_is_not_shown_in_whatever_words() -> None:
    with pytest.raises(DatabaseError, match=r"entry for \*\*\* \(\*\*\*\) on database lake"):
        Speaker().speak()


def test_an_unreachable_database_is_named_and_retried(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"postgresql+psycopg2://loader_7:{SECRET}@127.0.0.1:{port}/lake"
    sink = SqlSink(url, "orders", staging_root=tmp_path)
    with pytest.raises(DatabaseError, match=rf"127.0.0.1:{port}/lake/orders.*refused") as caught:
        sink.marker("c-1")
    assert caught.value.retriable
    assert not [name for name in ("loader_7", SECRET) if name in shown(caught.value)]
