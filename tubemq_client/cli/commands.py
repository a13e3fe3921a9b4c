"""Every command: where its function is, its line in the list of commands, and examples of its use.

`app` imports a command's module when it is run, so the list needs none of them. Tests compare the
lines with the docstrings, and parse every example.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["COMMANDS", "DESCRIPTION", "EXAMPLES", "OPTIONS", "CommandEntry", "help_text"]

DESCRIPTION: Final = "Produce to, read from and look at Apache InLong TubeMQ."

OPTIONS: Final = {
    "--version": "Show the version.",
    "--config": "Options of the connection: TOML with our names, or an INI file of the C++ SDK.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": (
        "Show completion for the current shell, to copy it or customize the installation."
    ),
    "--help": "Show this message and exit.",
}
"""Options before a command, and their help."""

_LETTERS: Final = {"--version": ", -V", "--config": " FILE", "--help": ", -h"}
_WIDTH_OF_NAMES: Final = 24


class CommandEntry(NamedTuple):
    """Module and name of a command's function (or of a typer application), and its summary."""

    module: str
    attribute: str
    summary: str


COMMANDS: Final = {
    "partitions": CommandEntry(
        "inspect",
        "partitions",
        "List the partitions of a topic, their broker, and whether they can be subscribed now.",
    ),
    "ends": CommandEntry(
        "inspect",
        "ends",
        "Show how far the log of every partition reaches, up to its stable (fsynced) end.",
    ),
    "lag": CommandEntry(
        "lag",
        "lag",
        "Show how far the position that brokers keep for a group is behind the stable end.",
    ),
    "produce": CommandEntry(
        "produce",
        "produce",
        "Send rows to a topic, each as one JSON object, and print how many were stored.",
    ),
    "consume": CommandEntry("consume", "consume", "Print records of a topic."),
    "read-range": CommandEntry(
        "read", "read_range", "Print every record of [START, END) of a partition, each once."
    ),
    "doctor": CommandEntry(
        "doctor",
        "doctor",
        "Check step by step that a cluster can be used from here, and suggest what to change.",
    ),
    "serve": CommandEntry(
        "serve",
        "serve",
        "Run a TubeMQ until interrupted: for development and tests, on loopback only.",
    ),
    "topics": CommandEntry("topics", "topics", "List, show, create, modify and delete topics."),
    "brokers": CommandEntry(
        "topics", "brokers", "List brokers, take them on and offline, reload them."
    ),
    "groups": CommandEntry(
        "groups", "groups", "List groups, show members, set permissions and rate limits."
    ),
    "offsets": CommandEntry(
        "offsets", "offsets", "Show, set, copy and remove the positions of a group."
    ),
    "completion": CommandEntry(
        "completion", "completion", "Print the completion script of a shell."
    ),
}
"""Commands by their word, in the order of the list."""

EXAMPLES: Final = {
    "": (
        "tubemq serve --topic orders --port 8715",
        "tubemq partitions orders --masters 127.0.0.1:8715",
    ),
    "partitions": (
        "tubemq partitions orders",
        "tubemq partitions orders --masters m1:8715,m2:8715 -o json",
    ),
    "ends": ("tubemq ends orders", "tubemq ends orders --latest -o jsonl"),
    "lag": ("tubemq lag orders --group nightly", "tubemq lag orders --group nightly --watch"),
    "produce": (
        "tubemq produce orders --file orders.jsonl",
        "tubemq produce orders --file orders.csv --time-field at --boundaries orders.json",
    ),
    "consume": (
        "tubemq consume orders --limit 10",
        "tubemq consume orders --follow --group audit -o raw",
    ),
    "read-range": (
        "tubemq read-range orders 1:0 0 2800",
        "tubemq read-range orders 1:0 0 2800 -o json",
    ),
    "completion": (
        "tubemq completion bash > ~/.local/share/bash-completion/completions/tubemq",
        "tubemq completion fish | source",
    ),
    "doctor": (
        "tubemq doctor --masters m1:8715 --admin http://m1:8080",
        "tubemq doctor --masters m1:8715 --topic orders",
    ),
    "serve": (
        "tubemq serve --topic orders",
        "tubemq serve --topic orders:2:3 --brokers 2 --port 8715 --data-dir data",
    ),
    "topics": ("tubemq topics list", "tubemq topics create orders --partitions 3"),
    "topics list": ("tubemq topics list", "tubemq topics list --all -o json"),
    "topics show": ("tubemq topics show orders", "tubemq topics show orders -o json"),
    "topics create": (
        "tubemq topics create orders --partitions 3",
        "tubemq topics create orders --broker 1 --retention delete,72h",
    ),
    "topics modify": (
        "tubemq topics modify orders --partitions 4",
        "tubemq topics modify orders --no-publish --yes",
    ),
    "topics delete": (
        "tubemq topics delete orders",
        "tubemq topics delete orders --remove-data --yes",
    ),
    "brokers": ("tubemq brokers list", "tubemq brokers offline 2"),
    "brokers list": ("tubemq brokers list", "tubemq brokers list -o json"),
    "brokers online": ("tubemq brokers online 2", "tubemq brokers online 1 2 --yes"),
    "brokers offline": ("tubemq brokers offline 2", "tubemq brokers offline 1 2 --yes"),
    "brokers reload": ("tubemq brokers reload 1 2", "tubemq brokers reload 1 -o jsonl"),
    "brokers access": (
        "tubemq brokers access 1 --no-publish",
        "tubemq brokers access 1 --publish --subscribe --yes",
    ),
    "groups": ("tubemq groups list", "tubemq groups show nightly"),
    "groups list": ("tubemq groups list", "tubemq groups list --topic orders -o json"),
    "groups show": ("tubemq groups show nightly", "tubemq groups show nightly -o jsonl"),
    "groups names": ("tubemq groups names nightly", "tubemq groups names nightly --pool-size 8"),
    "groups control": (
        "tubemq groups control nightly",
        "tubemq groups control nightly --topic orders --deny --reason moved",
    ),
    "offsets": ("tubemq offsets show nightly", "tubemq offsets set nightly orders earliest"),
    "offsets show": (
        "tubemq offsets show nightly",
        "tubemq offsets show nightly --topic orders -o json",
    ),
    "offsets set": (
        "tubemq offsets set nightly orders earliest --dry-run",
        "tubemq offsets set nightly orders latest 1:0=2800",
    ),
    "offsets clone": (
        "tubemq offsets clone nightly nightly2 --dry-run",
        "tubemq offsets clone nightly nightly2 --topic orders --yes",
    ),
    "offsets remove": (
        "tubemq offsets remove nightly --dry-run",
        "tubemq offsets remove nightly --topic orders --yes",
    ),
}
"""Examples by the words of a command; every `--help` ends with its own."""


def help_text() -> str:
    """Return the answer to `tubemq --help`, made without typer: importing it takes longer than all
    the rest."""
    options = {f"{name}{_LETTERS.get(name, '')}": text for name, text in OPTIONS.items()}
    summaries = {word: entry.summary for word, entry in COMMANDS.items()}
    lines = ["Usage: tubemq [OPTIONS] COMMAND [ARGS]...", "", DESCRIPTION]
    lines += ["", "Options:", *_columns(options.items())]
    lines += ["", "Commands:", *_columns(summaries.items())]
    lines += ["", "Examples:", *(f"  $ {line}" for line in EXAMPLES[""])]
    lines += ["", "Options and examples of a command: tubemq COMMAND --help"]
    return "\n".join(lines)


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    width = max(48, min(shutil.get_terminal_size().columns, 100))
    lines = []
    for name, text in rows:
        first, *more = textwrap.wrap(text, width - _WIDTH_OF_NAMES - 2)
        lines.append(f"  {name:<{_WIDTH_OF_NAMES}}{first}")
        lines += [" " * (_WIDTH_OF_NAMES + 2) + line for line in more]
    return lines
