"""``airflow tubemq windows`` and the like: credentials of a sink, large events, odd names."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.provider.sinks.openers import jdbc
from tests.provider.sinks.postgres import postgres_server, socket_of
from tests.provider.sinks.windows import plan_of, publish
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError
from tubemq_provider.cli import checks, windows
from tubemq_provider.cli._show import say
from tubemq_provider.cli.definition import get_tubemq_commands
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.commit_events import EVENT_KEY
from tubemq_provider.offsets.metadata_db import Group
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import Document

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

SECRET = "hush-hush"


def ask(command: Callable[..., Any], **arguments: Any) -> Any:
    """Run a command without what Airflow wraps around it."""
    given = {"asset": None, "sink": None, "sink_conn_id": None, "output": "json", **arguments}
    return inspect.unwrap(command)(SimpleNamespace(**given))


def options(commands: Any, above: str = "") -> Iterator[tuple[str, set[str]]]:
    for command in commands:
        name = f"{above} {command.name}"
        if hasattr(command, "subcommands"):
            yield from options(command.subcommands, name)
        else:
            yield name, {flag for arg in command.args for flag in arg.flags}


def test_every_command_with_a_sink_takes_its_credentials_from_a_connection() -> None:
    with_sink = {name: o for name, o in options(get_tubemq_commands()) if "--sink" in o}
    assert len(with_sink) == 11
    assert not [name for name, flags in with_sink.items() if "--sink-conn-id" not in flags]


def test_the_password_of_a_database_stays_out_of_the_command_line(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with postgres_server() as url:
        sink = jdbc(url, "orders", tmp_path / "staging")
        publish(sink, plan_of(sink))
        place = socket_of(url)
        connection = {"host": place, "login": "postgres", "password": SECRET}
        monkeypatch.setenv("AIRFLOW_CONN_DB", json.dumps({"conn_type": "postgres", **connection}))
        address = f"postgresql+psycopg2:///postgres?host={place}&table=orders"
        ask(windows.list_windows, sink=address, sink_conn_id="db")
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["window"], row["records"]) == (plan_of(sink).window_id, 3)
        ask(windows.show_coverage, sink=address, sink_conn_id="db", start=None, end=None)
        said = capsys.readouterr().out
    assert plan_of(sink).topic in said
    assert SECRET not in said


def test_a_connection_without_a_sink_is_refused() -> None:
    with pytest.raises(ConfigError, match="--sink-conn-id has no effect without --sink"):
        ask(windows.list_windows, sink_conn_id="db")


def test_one_group_of_a_sink_of_several_is_shown_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = ParquetSink(tmp_path / "lake")
    plans = []
    for group, begins in (("one", 280), ("two", 308)):
        scope = WindowScope("c", "t", group, sink.identity)
        for seq, range_ in enumerate([(0, 280), (begins, 560)], 1):
            plans.append(WindowPlan.cursor(scope, seq, dict.fromkeys(("1:0", "1:1"), range_)))
            assert publish(sink, plans[-1]).won
    ask(windows.list_windows, sink=str(sink.root), asset="c/t/two")
    rows = json.loads(capsys.readouterr().out)
    assert [row["window"] for row in rows] == [plan.window_id for plan in plans[2:]]

    @contextmanager
    def groups() -> Iterator[list[Group]]:
        yield [Group(f"tubemq:c/t/{name}", 1, Session(Rows([]))) for name in ("one", "two")]

    monkeypatch.setattr(windows, "groups", groups)
    assert ask(windows.verify, sink=str(sink.root), asset="tubemq:c/t/one") == 0
    assert json.loads(capsys.readouterr().out) == {"windows": 2, "accepted": 0, "problems": []}
    assert ask(windows.verify, sink=str(sink.root), asset="c/t/two") == 1


@pytest.mark.parametrize("text", ["2026-11-21", "2026-11-21T08:00:00", "yesterday"])
def test_an_instant_without_a_zone_names_its_option(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"--end:\n.*write it as 2026-01-31T08:00:00Z"):
        ask(windows.show_coverage, sink=str(tmp_path), start="2026-11-21T08:00:00Z", end=text)


class Rows:
    """Rows of a query, of which every one costs memory while it is there."""

    def __init__(self, rows: list[Document | None]) -> None:
        self.rows, self.taken, self.closed = rows, 0, False

    def __iter__(self) -> Iterator[Document | None]:
        for row in self.rows:
            self.taken += 1
            yield row

    def close(self) -> None:
        self.closed = True


class Session:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.at_once: int | None = None

    def scalars(self, statement: Any) -> Rows:
        self.at_once = statement.get_execution_options().get("yield_per")
        return self.rows


def large_events(count: int) -> list[Document | None]:
    position = {"seq": 1, "next": {f"1:{number}": 280 for number in range(10_000)}}
    return [{EVENT_KEY: {"window_id": f"c-{n}", "position": position}} for n in range(count)]


def test_the_newest_position_costs_one_event() -> None:
    rows = Rows([{"other": 1}, *large_events(1_000)])
    session = Session(rows)
    found = Group("tubemq:c/t/g", 1, session).newest_position()
    assert found is not None
    assert found["window_id"] == "c-0"
    assert (rows.taken, rows.closed) == (2, True)
    assert session.at_once is not None
    assert session.at_once <= 5


def test_the_search_of_a_window_ends_where_it_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = Rows(large_events(1_000))

    @contextmanager
    def groups() -> Iterator[list[Group]]:
        group = Group("tubemq:c/t/g", 1, Session(rows))
        group.windows = list  # type: ignore[method-assign]
        yield [group]

    monkeypatch.setattr(windows, "groups", groups)
    ask(windows.show, window_id="c-2")
    assert json.loads(capsys.readouterr().out)["event"]["window_id"] == "c-2"
    assert (rows.taken, rows.closed) == (3, True)


@pytest.mark.parametrize("output", ["table", "json"])
def test_names_do_not_steer_the_terminal(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(SimpleNamespace(output=output), [{"dag": "a\x1b[2J\x9b2J\x7f\u202e"}])
    said = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\x7f", "\u202e"} & set(said)
    assert "[2J" in said


def test_a_dead_broker_delays_its_own_partitions_in_the_lag(
    mq: EmbeddedTubeMQ,
    hook: TubeMQHook,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def open_group(_: str) -> Iterator[Any]:
        yield SimpleNamespace(
            source="tubemq",
            parts=("test", "orders", "g1"),
            cursor=lambda: ("asset_state", {"next": {"1:0": 0, "2:0": 28}}),
            newest_position=lambda: None,
        )

    monkeypatch.setattr(checks, "open_group", open_group)
    list(hook.produce("orders", [Record(b"x", partition=Partition(1, "orders", 0))]))
    mq.broker(1).store("orders", 0).flush()
    mq.broker(2).stop()
    ask(checks.lag, asset="test/orders/g1", conn_id=None)
    told = json.loads(capsys.readouterr().out)
    assert told["lag"] == 1
    assert sorted(told["delayed"]) == ["2:0", "2:1", "2:10000", "2:10001"]
    ask(checks.lag, asset="test/orders/g1", conn_id=None, output="table")
    said = capsys.readouterr().out
    assert "lag: at least 1 index entries" in said
    assert "delayed: partition 2:0: " in said
