"""Commands on groups of a source of another distribution, by its word."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.installed import toy_source_installed
from tests.provider.cli.test_looks import Known
from tubemq_client.errors import ConfigError
from tubemq_provider.cli import checks, definition, offsets, previews
from tubemq_provider.cli._show import name_kind
from tubemq_provider.plugins import clusters

pytestmark = pytest.mark.airflow

POSITION = {"v": 1, "seq": 1, "next": {"north.0": 1, "south.0": 1}, "h": "x"}


@pytest.fixture(autouse=True)
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a source as another distribution would, with a topic, a connection and a group."""
    root = tmp_path / "cluster"
    (root / "orders").mkdir(parents=True)
    (root / "orders" / "north.0").write_text("a\nb\n")
    (root / "orders" / "south.0").write_text("c\n")
    document = json.dumps({"conn_type": "lines", "extra": {"root": str(root), "cluster": "test"}})
    monkeypatch.setenv("AIRFLOW_CONN_FILES", document)

    @contextmanager
    def opened(asset: str) -> Iterator[Any]:
        assert asset == "lines:test/orders/lake"
        yield Known(POSITION, None, "lines")

    for module in (offsets, previews, checks):
        monkeypatch.setattr(module, "open_group", opened)
    with toy_source_installed(tmp_path, monkeypatch):
        yield root / "orders"


def ask(command: Callable[[Any], Any], capsys: Any, **given: Any) -> Any:
    names = dict.fromkeys(("sink", "sink_conn_id", "watch", "looks", "max_records"))
    asked = {"asset": "test/orders/lake", "output": "json", "conn_id": "files", "source": "lines"}
    args = SimpleNamespace(**{**names, **asked, **given})
    name_kind(args)
    inspect.unwrap(command)(args)
    return json.loads(capsys.readouterr().out)


def test_position_lag_and_next_window_of_a_source_of_a_plugin(capsys: Any) -> None:
    shown = ask(offsets.show, capsys)["partitions"]
    assert [(row["partition"], row["next"], row["end"], row["lag"]) for row in shown] == [
        ("north.0", 1, 2, 1),
        ("south.0", 1, 1, 0),
    ]
    lag = ask(checks.lag, capsys)
    assert "entries" in json.dumps(lag)
    assert ask(previews.plan, capsys)["entries"] == 1
    assert ask(previews.diff, capsys)[0]["end"] == 2


def test_a_connection_of_a_plugin_is_checked(capsys: Any) -> None:
    rows = {row["check"]: row for row in ask(checks.check, capsys, asset=None)}
    assert rows["cluster"]["result"] == "ok"
    assert "cluster test" in rows["connection"]["what"]


def test_an_unknown_kind_and_another_kinds_group_are_refused() -> None:
    with pytest.raises(ConfigError, match="no source of kind 'linez'"):
        name_kind(SimpleNamespace(source="linez", asset="test/orders/lake"))
    with pytest.raises(ConfigError, match="is of kind 'rocketmq'"):
        name_kind(SimpleNamespace(source="lines", asset="rocketmq:test/orders/lake"))


def test_every_command_on_a_group_takes_the_kind() -> None:
    def actions(commands: Any) -> Iterator[Any]:
        for each in commands:
            yield from actions(each.subcommands) if hasattr(each, "subcommands") else [each]

    for action in actions(definition.get_tubemq_commands()):
        flags = [flag for argument in action.args for flag in argument.flags]
        if {"asset", "--asset", "--conn-id"} & {*flags}:
            assert flags.count("--source") == 1, action.name


def test_the_page_finds_the_ends_by_the_connections_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_candidates", lambda _: iter(["files"]))
    ends = clusters.ends_of("lines", "test", "orders")
    assert {each.key: end.max_offset for each, end in ends.items()} == {"north.0": 2, "south.0": 1}
