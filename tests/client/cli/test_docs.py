"""docs/cli.md and the command are equal: same commands, known options, same tables, same codes."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.console import Console

from tests.client.cli.conftest import Run
from tubemq_client.cli.app import build_app, load_command
from tubemq_client.cli.doctor import EXIT_CODES
from tubemq_client.cli.options import table_of

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def commands(group: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Commands that do something, by their words."""
    found: dict[str, Any] = {}
    for name in group.commands:
        command = load_command(name) if not path else group.commands[name]
        if hasattr(command, "commands"):
            found |= commands(command, (*path, name))
        else:
            found[" ".join((*path, name))] = command
    return found


COMMANDS = commands(typer.main.get_command(build_app()))


def uses() -> list[str]:
    """Return the commands of the page, behind `tubemq`, inline and in blocks."""
    return re.findall(r"(?:`|\$ |^|\| )tubemq ([a-z][^`|\n]*)", PAGE, re.MULTILINE)


def command_of(use: str) -> str | None:
    words = use.split()
    return next((c for c in (" ".join(words[:2]), words[0]) if c in COMMANDS), None)


def test_every_command_is_documented() -> None:
    assert {command_of(use) for use in uses()} - {None} == set(COMMANDS)


def test_what_is_documented_exists() -> None:
    families = {name.split()[0] for name in COMMANDS}
    for use in uses():
        name = command_of(use)
        if name is None:
            assert use.split()[0] in families, use
            continue
        known = {o for p in COMMANDS[name].params for o in (*p.opts, *p.secondary_opts)}
        for option in re.findall(r"--[a-z][a-z-]+", use):
            assert option in known, f"{option} in: tubemq {use}"


@pytest.mark.parametrize(
    "name", ["consume", "produce", "serve"], ids=lambda name: f"options of {name}"
)
def test_every_option_of_the_big_commands_is_documented(name: str) -> None:
    own = {
        (p.secondary_opts or p.opts)[0]
        for p in COMMANDS[name].params
        if p.param_type_name == "option"
    }
    shared = {"--masters", "--rpc-timeout-ms", "--output", "--help", "--group"}
    assert {option for option in own - shared if option not in PAGE} == set()


def test_exit_codes_of_the_doctor_are_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)`:", PAGE, re.MULTILINE)
    assert {step: int(code) for code, step in rows} == EXIT_CODES


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("topics", "show", "plain"),
        ("brokers", "list"),
        ("lag", "plain", "--group", "documented"),
        ("offsets", "show", "documented", "--topic", "plain"),
        ("offsets", "set", "documented", "plain", "earliest", "--dry-run"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_tables_have_the_columns_shown(
    run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    outcome = run(*command)
    printed = next(line for line in (outcome.out + outcome.err).splitlines() if "┃" in line)
    columns = [word.strip() for word in printed.strip("┃ ").split("┃")]
    shown = [
        [word.strip() for word in line.strip("┃ ").split("┃")]
        for line in PAGE.splitlines()
        if line.startswith("┃")
    ]
    assert columns in shown


def test_numbers_are_not_broken_into_lines() -> None:
    offset = 812_345_678_920
    row = {"partition": "12:10003", "position": offset, "end": offset + 28, "written_per_s": 1.5}
    console = Console(width=50, record=True, file=io.StringIO())
    console.print(table_of([{**row, "caught_up_in": "never"}], "narrow"))
    text = console.export_text()
    assert str(offset) in text
    assert str(offset + 28) in text
