"""Tables on terminals that are too narrow for them."""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from tubemq_client.cli.lag import _fitting
from tubemq_client.cli.options import Output, show

POSITION = {
    "topic": "orders",
    "partition": "12:10000",
    "position": 1_120_000_000_000,
    "in_flight": 8_400_000,
    "min": 1_092_000_000_000,
    "end": 1_120_280_000_000,
    "lag": 10_000_000,
}


@pytest.mark.parametrize("columns", [10, 50, 70, 80])
def test_numbers_are_whole_however_narrow_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last digits were cut off: a number of thirteen digits was shown with ten."""
    monkeypatch.setenv("COLUMNS", str(columns))
    show([POSITION], output=Output.TABLE, title="positions")
    shown = capsys.readouterr().out
    for value in POSITION.values():
        assert str(value) in shown


@pytest.mark.parametrize("columns", [32, 50, 70, 90, 140])
def test_a_watch_leaves_out_what_has_no_room(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {"written_per_s": 12345.6, "read_per_s": 22345.6, "caught_up_in": "12:12:12"}
    row = {n: v for n, v in POSITION.items() if n not in ("topic", "in_flight", "min")} | rates
    console = Console(width=columns)
    console.print(_fitting([row], "lag of a group", columns))
    shown = capsys.readouterr().out
    assert str(row["lag"]) in shown
    assert str(row["partition"]) in shown
    # What is shown of the others is whole.
    assert set(re.findall(r"[\d.:]{6,}", shown)) <= {str(value) for value in row.values()}
