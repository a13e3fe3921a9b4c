"""Commands as typed: the commands in documentation and error messages parse."""

from __future__ import annotations

import argparse
import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tubemq_provider.cli import definition
from tubemq_provider.cli.definition import get_tubemq_commands

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

ROOT = Path(__file__).parents[3]
TYPED = re.compile(r"`airflow (tubemq [^`\[…<]+)`")


def parsed(line: str) -> argparse.Namespace:
    """Return the arguments of a command line, parsed as Airflow does."""
    words = shlex.split(line)
    found: Any = {command.name: command for command in get_tubemq_commands()}
    while isinstance(found, dict):
        command = found[words.pop(0)]
        commands = getattr(command, "subcommands", None)
        found = {sub.name: sub for sub in commands} if commands else command
    parser = argparse.ArgumentParser(exit_on_error=False)
    for argument in found.args:
        argument.add_to_parser(parser)
    try:
        return parser.parse_args(words)
    except SystemExit:
        raise AssertionError(f"not understood: airflow {line}") from None


def documented() -> list[str]:
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    found = {match for page in pages for match in TYPED.findall(page.read_text())}
    complete = {line for line in found if len(line.split()) > 3}
    return sorted(complete)


def test_an_epoch_is_begun_under_the_name_that_is_given() -> None:
    given = parsed("tubemq offsets epoch c1/orders/nightly life-2 --yes")
    assert (given.asset, given.name, given.begin, given.yes) == (
        "c1/orders/nightly",
        "life-2",
        "earliest",
        True,
    )


def test_every_command_has_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow imports the function of a command when it runs, so a wrong path is seen by users."""
    paths: list[str] = []
    monkeypatch.setattr(definition, "lazy_load_command", paths.append)
    for text in re.findall(r'"([a-z_]+\.[a-z_]+)"', Path(definition.__file__).read_text()):
        definition._action("name", "text", text)
    assert len(paths) > 15
    for path in paths:
        module, _, name = path.rpartition(".")
        assert callable(getattr(import_module(module), name)), path


def every_command(group: Any, path: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
    """Return groups and commands by their words."""
    found = {path: group}
    for command in getattr(group, "subcommands", ()):
        found |= every_command(command, (*path, command.name))
    return found


WORDS = every_command(get_tubemq_commands()[0], ("tubemq",))


@pytest.mark.parametrize("words", [*WORDS], ids=" ".join)
def test_help_ends_with_examples_that_are_understood(words: tuple[str, ...]) -> None:
    lines = WORDS[words].epilog.split("\n  airflow ")
    assert lines.pop(0) == "examples:"
    assert lines
    for line in lines:
        assert line.startswith(" ".join(words))
        assert parsed(line)


@pytest.mark.parametrize("words", [*WORDS], ids=" ".join)
def test_formats_and_letters_are_the_same_everywhere(words: tuple[str, ...]) -> None:
    command = WORDS[words]
    if hasattr(command, "subcommands"):
        return
    letters = {flags[0]: flags[-1] for flags in (arg.flags for arg in command.args) if flags[1:]}
    assert letters.items() >= {("-o", "--output"), ("-v", "--verbose")}
    assert letters.keys() <= {"-o", "-v", "-y"}
    for output in ("table", "json", "jsonl"):
        line = WORDS[words].epilog.split("\n  airflow ")[1]
        assert parsed(f"{line} -o {output}").output == output


@pytest.mark.parametrize("line", documented())
def test_commands_of_the_documentation_are_understood(line: str) -> None:
    assert parsed(line)
