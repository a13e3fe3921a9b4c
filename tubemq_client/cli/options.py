"""Options and outputs that commands share: how to reach a cluster, JSON lines or a table.

What a user reads goes to standard output; progress and summaries go to standard error, so that
output can be piped. Nothing here opens a connection.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tubemq_client import errors
from tubemq_client.config import ClientConfig, from_file, with_environment
from tubemq_client.model import ClientSettings

__all__ = [
    "Admin",
    "AdminToken",
    "AsJson",
    "DryRun",
    "Group",
    "Masters",
    "RpcTimeout",
    "Topic",
    "Yes",
    "agreed",
    "client_settings",
    "note",
    "print_json",
    "show",
    "status_console",
    "table_of",
    "use_config",
]

_CONFIG = "TUBEMQ_CONFIG"
_RPC_TIMEOUT_MS = 10_000

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
    int, typer.Option(metavar="MS", help="Time for one request, in milliseconds.")
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
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Change without asking first.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]

status_console = Console(stderr=True, highlight=False)


def client_settings(masters: str, rpc_timeout_ms: int) -> ClientSettings:
    """Validated settings: the file of `--config`, overruled by `TUBEMQ_…` of the environment, and
    that by the command's own options. Raises `errors.ConfigError`: the command ends with code 2."""
    options = with_environment(ClientConfig, _from_config())
    options["masters"] = masters
    if rpc_timeout_ms != _RPC_TIMEOUT_MS:
        options["rpc_timeout_ms"] = rpc_timeout_ms
    return ClientConfig.parse(options).settings()


def use_config(path: str | None) -> None:
    """Make `path` the option file of this process; its masters are used unless others are named."""
    if path is None:
        return
    os.environ[_CONFIG] = path
    masters = _from_config().get("masters")
    if masters:
        text = masters if isinstance(masters, str) else ",".join(map(str, masters))
        os.environ.setdefault("TUBEMQ_MASTERS", text)


def _from_config() -> dict[str, Any]:
    """What the option file says of the connection; it may also be a consumer's or producer's."""
    path = os.environ.get(_CONFIG)
    options = from_file(path) if path else {}
    return {name: value for name, value in options.items() if name in ClientConfig.model_fields}


def note(text: str) -> None:
    """A line for the person at the terminal, on standard error."""
    status_console.print(text, markup=False, soft_wrap=True)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on one line of standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def show(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str) -> None:
    """Print rows with equal keys as JSON lines or as a table."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    if rows:
        Console(highlight=False).print(table_of(rows, title))
    else:
        note(f"{title}: none")


def table_of(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Rows with equal keys as a table."""
    table = Table(title=title)
    for name in rows[0] if rows else ("none",):
        numbers = all(type(row[name]) in (int, float, type(None)) for row in rows)
        table.add_column(
            name.replace("_", " "), justify="right" if numbers else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    return table


def agreed(question: str, *, yes: bool, dry_run: bool = False) -> bool:
    """Whether to go on: asked at the terminal unless `yes`; False for a dry run.

    Raises `errors.ConfigError` when the answer is not yes or nobody is there to answer.
    """
    if dry_run or yes:
        return not dry_run
    try:
        if typer.confirm(question, err=True):
            return True
    except typer.Abort:
        pass
    raise errors.ConfigError("not confirmed, nothing was changed (--yes does not ask)")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)
