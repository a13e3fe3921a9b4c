"""Commands that only read: output formats, ends, the next window, differences of stores."""

from __future__ import annotations

import inspect
import io
import json
import sqlite3
import sys
from argparse import Namespace
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from sqlalchemy.exc import OperationalError

from rocketmq_client import Producer
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.kit.servers import embedded_rocketmq
from tests.provider.sinks.windows import plan_of, publish
from tubemq_client import Partition, Record
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import ConfigError, ConnectError
from tubemq_provider.cli import checks, offsets, previews, windows
from tubemq_provider.cli._show import command, say, table
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.metadata_db import Group
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.windows.protocols import Document

rocketmq = embedded_rocketmq(1, connection={"extra": {"cluster": "test"}})
pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

ROWS = [{"check": "cluster", "result": "ok"}, {"check": "sink", "result": "failed"}]


class Known(Group):
    """A group of asset state, with one event."""

    def __init__(self, cursor: Document | None, event: Document | None, source: str) -> None:
        super().__init__(f"{source}:test/orders/lake", 1, None)
        self._cursor, self._event = cursor, event

    def cursor(self, *, of_ledger: bool = False) -> tuple[str, Document | None]:
        return "asset_state", self._cursor

    def events(self, *, most: int | None = None) -> Generator[Document]:
        if self._event is not None:
            yield self._event

    def windows(self) -> list[Any]:
        return []


def position(seq: int, end: int) -> Document:
    return {"v": 1, "seq": seq, "next": {"1:0": end, "1:1": end}, "h": "x"}


@pytest.fixture
def know(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def known(
        cursor: Document | None, event: Document | None = None, source: str = "tubemq"
    ) -> None:
        group = Known(cursor, event, source)

        @contextmanager
        def opened(_: str = "") -> Iterator[Any]:
            yield group

        @contextmanager
        def groups() -> Iterator[Any]:
            yield [group]

        for module in (offsets, previews, checks):
            monkeypatch.setattr(module, "open_group", opened)
        monkeypatch.setattr(windows, "groups", groups)

    return known


@pytest.fixture
def five(mq: EmbeddedTubeMQ, hook: TubeMQHook) -> TubeMQHook:
    """Five records on disk in 1:0."""
    partition = Partition.from_key("orders", "1:0")
    list(hook.produce("orders", [Record(b"x", partition=partition)] * 5))
    mq.broker(1).store("orders", 0).flush()
    return hook


def ask(command: Callable[[Any], Any], **arguments: Any) -> Any:
    given = {"asset": "test/orders/lake", "output": "json", "conn_id": None, "sink": None}
    given |= {"sink_conn_id": None, "watch": None, "looks": None, "max_records": None}
    return inspect.unwrap(command)(SimpleNamespace(**{**given, **arguments}))


def test_every_output_format_has_the_same_content(capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for output in ("table", "plain", "json", "jsonl", "yaml"):
        say(SimpleNamespace(output=output), ROWS)
        said[output] = capsys.readouterr().out
    assert json.loads(said["json"]) == yaml.safe_load(said["yaml"]) == ROWS
    assert [json.loads(line) for line in said["jsonl"].splitlines()] == ROWS
    assert said["table"] == said["plain"], "no colours where nobody looks"
    assert "\x1b[31mfailed" in table(ROWS, colours=True)


def test_progress_shows_end_and_lag_and_works_without_the_cluster(
    know: Callable[..., None],
    five: TubeMQHook,
    mq: EmbeddedTubeMQ,
    capsys: pytest.CaptureFixture[str],
) -> None:
    know(position(1, 56))
    ask(offsets.show)
    rows = {row["partition"]: row for row in json.loads(capsys.readouterr().out)["partitions"]}
    assert rows["1:0"] == {"partition": "1:0", "next": 56, "end": 140, "lag": 3}
    mq.stop()
    ask(offsets.show, output="table")
    said = capsys.readouterr().out
    assert "without ends and lag: cannot connect" in said
    assert "1:0        56" in said


def test_a_plan_that_stores_nothing(
    know: Callable[..., None], five: TubeMQHook, capsys: pytest.CaptureFixture[str]
) -> None:
    know(position(1, 56))
    ask(previews.plan, max_records=2)
    told = json.loads(capsys.readouterr().out)
    assert (told["window"], told["entries"], told["has_more"]) == (2, 2, True)
    assert told["ranges"][0] == {"partition": "1:0", "from": 56, "to": 112, "entries": 2}
    know(None)
    with pytest.raises(ConfigError, match="begins at initial_position"):
        ask(previews.plan)


def test_a_plan_begins_behind_windows_that_are_claimed(
    know: Callable[..., None], five: TubeMQHook, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = {"by": "d|r|t|-1", "at": "", "plan": {"ranges": {"1:0": [56, 112], "1:1": [56, 112]}}}
    know({**position(1, 56), "pending": {"c-2-x": claim}, "done": {}})
    ask(previews.plan)
    told = json.loads(capsys.readouterr().out)
    assert (told["window"], told["entries"], told["claimed"]) == (3, 1, ["c-2-x"])
    assert told["ranges"][0] == {"partition": "1:0", "from": 112, "to": 140, "entries": 1}
    ask(previews.plan, output="table")
    assert "window c-2-x is claimed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong", [{"watch": -1.0}, {"watch": float("nan")}, {"watch": 1.0, "looks": 0}, {"looks": 2}]
)
def test_watching_without_a_pause_or_an_end_is_refused(
    wrong: dict[str, Any], know: Callable[..., None]
) -> None:
    know(position(1, 56))
    with pytest.raises(ConfigError, match="--"):
        ask(checks.lag, **wrong)


def test_drift_between_cursor_event_and_sink_is_shown_and_fails(
    know: Callable[..., None], five: TubeMQHook, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    know(position(1, 56), {"position": position(1, 56)})
    assert ask(previews.diff) == 0
    know(position(1, 28), {"position": position(1, 56)})
    assert ask(previews.diff) == 1
    rows = json.loads(capsys.readouterr().out.partition("]\n")[2])
    row = next(row for row in rows if row["partition"] == "1:0")
    assert (row["cursor"], row["event"], row["end"], row["verdict"]) == (28, 56, 140, "differs")


def test_a_watched_lag_shows_its_rate(
    know: Callable[..., None], five: TubeMQHook, capsys: pytest.CaptureFixture[str]
) -> None:
    know(position(1, 56))
    ask(checks.lag, output="table", watch=0.01, looks=2)
    said = capsys.readouterr().out
    assert said.count("lag: 3 index entries") == 2
    assert "+0 entries/s taken" in said


def test_a_group_of_rocketmq_is_read_through_its_own_connection(
    know: Callable[..., None],
    rocketmq: EmbeddedRocketMQ,
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Producer(rocketmq.settings) as producer:
        for _ in range(5):
            producer.send("orders", b"x")
    next_ = {"v": 1, "seq": 1, "next": {"broker-a:0": 2}, "h": "x"}
    know(next_, {"position": next_}, "rocketmq")
    ask(offsets.show)
    (row,) = json.loads(capsys.readouterr().out)["partitions"]
    assert row == {"partition": "broker-a:0", "next": 2, "end": 5, "lag": 3}
    ask(checks.lag)
    assert json.loads(capsys.readouterr().out)["lag"] == 3
    ask(previews.plan, max_records=2)
    assert json.loads(capsys.readouterr().out)["entries"] == 2
    (tmp_path / "lake").mkdir()
    assert ask(previews.diff, sink=str(tmp_path / "lake")) == 0


def test_a_connection_is_tested_by_its_type(
    rocketmq: EmbeddedRocketMQ,
    five: TubeMQHook,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Errors of either kind advise the command; Airflow's own test is off by default."""

    @contextmanager
    def nothing() -> Iterator[Any]:
        yield []

    monkeypatch.setattr(checks, "groups", nothing)
    for conn_id, servers in ((None, "masters "), ("rocketmq_default", "name servers ")):
        assert ask(checks.check, conn_id=conn_id) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [row["result"] for row in rows[:2]] == ["ok", "ok"]
        assert f"cluster test, {servers}127.0.0.1:" in rows[0]["what"]
    assert ask(checks.check, conn_id="nowhere") == 1
    assert json.loads(capsys.readouterr().out)[0]["result"] == "failed"


def test_a_window_is_shown_as_facts_and_ranges(
    know: Callable[..., None], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = ParquetSink(tmp_path / "lake")
    plan = plan_of(sink)
    publish(sink, plan)
    know(None, {"window_id": plan.window_id, "hash": plan.hash, "position": position(1, 56)})
    ask(
        windows.show,
        asset=None,
        window_id=plan.window_id,
        sink=str(tmp_path / "lake"),
        output="table",
    )
    said = capsys.readouterr().out
    assert f"window    {plan.window_id}" in said
    assert "state     written, accepted" in said
    assert "{'" not in said
    key, (start, end) = next(iter(plan.ranges.items()))
    assert any(line.split()[:3] == [key, str(start), str(end)] for line in said.splitlines())


def test_a_watch_prints_each_check_at_once_and_ends_with_ctrl_c(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    come = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(come))
    looks_left = iter(range(3))

    def look(_: object) -> int:
        assert next(looks_left, None) is not None, "what a pipe waits for stays behind"
        if come.getvalue():
            raise KeyboardInterrupt
        print("one look")
        return 3

    monkeypatch.setattr(checks, "_show_lag", look)
    assert ask(checks.lag, watch=0.01) is None
    assert come.getvalue() == b"one look\n"


def test_a_watch_continues_when_a_query_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([3, ConnectError("the master is away"), 1, ConfigError("wrong")])

    def look(_: object) -> int:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(checks, "_show_lag", look)
    with pytest.raises(ConfigError, match="wrong"):
        ask(checks.lag, watch=0.01)
    said = capsys.readouterr()
    assert ("the master is away" in said.err, said.out) == (True, "")


def test_a_database_without_tables_is_one_line_and_not_a_traceback() -> None:
    def look(args: Any) -> int:
        raise OperationalError("SELECT …", {}, sqlite3.OperationalError("no such table: asset"))

    with pytest.raises(SystemExit) as caught:
        command(look)(Namespace(verbose=False))
    text = str(caught.value)
    assert text.startswith("error: Airflow's metadata database: no such table: asset; ")
    assert text.endswith("airflow db migrate")
    assert "SELECT" not in text
