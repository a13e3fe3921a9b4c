"""Options and outputs that commands share: connection options, a table or JSON.

Results go to standard output; progress and summaries go to standard error, so that output can be
piped. Nothing here opens a connection.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from enum import StrEnum
from typing import IO, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tubemq_client import errors
from tubemq_client.admin import AdminClient
from tubemq_client.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    from_file,
    with_environment,
)
from tubemq_client.model import ClientSettings, address_text
from tubemq_client.terminal import visible, visible_json

__all__ = [
    "Admin",
    "AdminToken",
    "DryRun",
    "Group",
    "JsonRows",
    "Masters",
    "Output",
    "OutputAs",
    "RpcTimeout",
    "Topic",
    "Yes",
    "admin_client",
    "client_settings",
    "config_of",
    "confirmed",
    "counted",
    "from_config_file",
    "least_width",
    "note",
    "print_table",
    "show",
    "show_json",
    "status_console",
    "table_of",
    "use_config",
]

Config = TypeVar("Config", bound=ClientConfig)

_file: ContextVar[Mapping[str, Any]] = ContextVar("options of the file of --config")

_DEFAULTS_OF_COMMANDS = ("masters", "rpc_timeout_ms")
"""Options of a file that commands have under the same names; command line and environment win."""

Masters = Annotated[
    str,
    typer.Option(
        "--masters",
        "-m",
        envvar="TUBEMQ_MASTERS",
        metavar="HOST:PORT[,…]",
        help="Master addresses, tried in this order.",
    ),
]
RpcTimeout = Annotated[
    int,
    typer.Option(
        envvar="TUBEMQ_RPC_TIMEOUT_MS", metavar="MS", help="Time for one request, in milliseconds."
    ),
]
Topic = Annotated[str, typer.Argument(help="Topic name.", show_default=False)]
Group = Annotated[
    str,
    typer.Option("--group", "-g", help="Consumer group; look-ups and readers use names below it."),
]
Admin = Annotated[
    str,
    typer.Option(
        "--admin",
        "-a",
        envvar="TUBEMQ_ADMIN",
        metavar="URL[,…]",
        help="HTTP address of every master; the active one is found.",
    ),
]
AdminToken = Annotated[
    str | None,
    typer.Option(
        "--admin-token",
        envvar="TUBEMQ_ADMIN_TOKEN",
        metavar="TEXT",
        help="The masters' confModAuthToken; better in the environment than in a shell history.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for a confirmation.")]


class Output(StrEnum):
    """Format of results on standard output: a table, one JSON array, or a JSON object per line."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


OutputAs = Annotated[
    Output,
    typer.Option(
        "--output", "-o", help="A table, one JSON array (json), or an object per line (jsonl)."
    ),
]

_SHORTEST_HEADING = 9
"""Minimum characters of a heading's line, even if the values below are shorter."""

_SHORTEST_TEXT = 12
"""Characters of a text that are never broken into lines, however narrow the terminal."""

_WIDEST = 10_000

_AUDIT_NAME = "tubemq_cli"
"""User name in the audit fields of records that a command changes."""

status_console = Console(stderr=True, highlight=False)


def admin_client(admin: str, timeout_ms: int, token: str | None = None) -> AdminClient:
    """Return a client of the HTTP administration; a context manager. TLS files come from the
    environment: `TUBEMQ_ADMIN_CA_FILE` and the like."""
    names = ("ca_file", "cert_file", "key_file", "key_password")
    files: dict[str, Any] = {
        name: os.environ.get(f"TUBEMQ_ADMIN_{name.upper()}") or None for name in names
    }
    if not any(url.strip().lower().startswith("https:") for url in admin.split(",")):
        files = {}
    return AdminClient(admin, token=token, user=_AUDIT_NAME, timeout_ms=timeout_ms, **files)


def client_settings(masters: str, rpc_timeout_ms: int) -> ClientSettings:
    """Return validated settings of the connection, from the sources of `config_of`."""
    return config_of(ClientConfig, masters, rpc_timeout_ms).settings()


def config_of(model: type[Config], masters: str, rpc_timeout_ms: int, **own: object) -> Config:
    """Return options of `model` for a command, from file, environment and command line.

    The environment's `TUBEMQ_…` override the file of `--config`, and the command's options (`own`;
    None: not given) override both. Raises `errors.ConfigError`: the command ends with code 2.
    """
    file_options = {k: v for k, v in _file.get({}).items() if k in model.model_fields}
    options = with_environment(model, file_options)
    if own.get("topic") is not None:
        options.pop("topics", None)
    options |= {"masters": masters, "rpc_timeout_ms": rpc_timeout_ms}
    options |= {name: value for name, value in own.items() if value is not None}
    return model.parse(options)


def use_config(context: typer.Context, path: str | None) -> None:
    """Use `path` as the option file of the command that follows.

    It may be a consumer's or a producer's. Raises `errors.ConfigError` for names that are options
    of neither: a misspelt one would otherwise be ignored.
    """
    options = from_file(path) if path else {}
    option_names = {*ConsumerConfig.model_fields, *ProducerConfig.model_fields}
    unknown = sorted(options.keys() - option_names)
    if unknown:
        raise errors.ConfigError([f"{path}: {name}: unknown option" for name in unknown])
    _file.set(options)
    defaults = {name: options[name] for name in _DEFAULTS_OF_COMMANDS if name in options}
    masters = defaults.get("masters", "")
    if not isinstance(masters, str):
        ClientConfig.parse({"masters": masters})
        texts = (item if isinstance(item, str) else address_text(tuple(item)) for item in masters)
        defaults["masters"] = ",".join(texts)
    context.default_map = _for_every_command(context.command, defaults)


def from_config_file(name: str) -> object:
    """Return an option of the file of `--config`, or None."""
    return _file.get({}).get(name)


def _for_every_command(command: Any, defaults: dict[str, Any]) -> dict[str, Any]:
    """Return `defaults` in typer's form: nested by the words of each command."""
    below = getattr(command, "commands", {})
    return {**defaults, **{n: _for_every_command(c, defaults) for n, c in below.items()}}


def counted(records: int) -> str:
    """Return a count of records as text."""
    return "1 record" if records == 1 else f"{records} records"


def note(text: str) -> None:
    """Print a line for the user on standard error."""
    status_console.print(visible(text, lines=True), markup=False, soft_wrap=True)


class JsonRows:
    """Writer of JSON objects, each on a separate line and flushed, for pipes. As `Output.JSON`
    they are one array, which `close` ends."""

    def __init__(self, output: Output, out: IO[bytes] | None = None) -> None:
        self._array = output is Output.JSON
        self._out = out or sys.stdout.buffer
        self._written = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Write one object."""
        before = (",\n" if self._written else "[\n") if self._array else ""
        after = "" if self._array else "\n"
        text = visible_json(json.dumps(row, ensure_ascii=False))
        self._out.write(f"{before}{text}{after}".encode())
        self._out.flush()
        self._written += 1

    def close(self) -> None:
        """End the array."""
        if self._array:
            self._out.write(b"\n]\n" if self._written else b"[]\n")
            self._out.flush()


def show_json(rows: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Print rows as JSON; as a table nothing, because a note for the user tells the same."""
    if output is not Output.TABLE:
        with closing(JsonRows(output)) as writer:
            for row in rows:
                writer.add(row)


def show(rows: Sequence[Mapping[str, Any]], *, output: Output, title: str) -> None:
    """Print rows with equal keys as a table or as JSON."""
    if output is not Output.TABLE:
        show_json(rows, output)
        return
    if rows:
        print_table(Console(highlight=False), rows, title)
    else:
        note(f"{title}: none")


def print_table(console: Console, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print rows as a table. On a narrow terminal its lines overflow, because a truncated number
    would be read as another number."""
    table = table_of(rows, title)
    table.width = least if (least := least_width(table)) > console.width else None
    console.print(table, crop=False)


def least_width(table: Table) -> int:
    """Return the width below which a table would be truncated."""
    wide = Console(width=_WIDEST)
    return Measurement.get(wide, wide.options, table).minimum


def table_of(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Return rows with equal keys as a table. Numbers are never broken into lines, headings
    may be."""
    table = Table(title=Text(visible(title, lines=True)) if title else None)
    for name in rows[0] if rows else ("none",):
        numbers = all(type(row[name]) in (int, float, type(None)) for row in rows)
        heading = name.replace("_", " ")
        texts = [_cell(row[name]) for row in rows]
        if numbers:
            longest = max([_SHORTEST_HEADING, *map(len, texts)])
            heading = "\n".join(textwrap.wrap(heading, longest, break_long_words=False))
        table.add_column(
            Text(heading),
            justify="right" if numbers else "left",
            overflow="fold",
            no_wrap=numbers,
            min_width=min(_SHORTEST_TEXT, max(map(len, [*texts, *heading.split()]))),
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    return table


def confirmed(question: str, *, yes: bool, dry_run: bool = False) -> bool:
    """Ask for a confirmation at the terminal unless `yes`; return False for a dry run.

    Raises `errors.ConfigError` if the answer is not yes or there is no terminal to ask.
    """
    if dry_run or yes:
        return not dry_run
    try:
        if typer.confirm(visible(question), err=True):
            return True
    except (typer.Abort, RuntimeError):  # the latter where standard input is closed
        pass
    raise errors.ConfigError("not confirmed, nothing was changed (--yes does not ask)")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return visible(", ".join(map(str, value))) or "-"
    return "-" if value is None else visible(str(value))
