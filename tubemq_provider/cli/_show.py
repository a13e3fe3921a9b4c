"""Output of commands: tables, JSON (also as lines) or YAML on standard output, questions first,
and short errors.

Airflow's own console wraps JSON at the width of a terminal, so this module prints plainly.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from airflow.utils.cli import suppress_logs_and_warning
from airflow.utils.providers_configuration_loader import providers_configuration_loaded

from tubemq_client import errors
from tubemq_client.terminal import visible, visible_json
from tubemq_provider._airflow import AirflowException
from tubemq_provider.windows.spaces import space_of

Row = Mapping[str, object]

_CONTEXT: Final = "_AIRFLOW_PROCESS_CONTEXT"
"""Variable by which Airflow decides where connections are searched."""


def command(function: Callable[[Any], int | None]) -> Callable[[Any], None]:
    """Wrap a command for Airflow.

    Errors of this provider, or of Airflow, end it with their text and status 1; a status that it
    returns ends it too. Connections are found wherever a server of Airflow finds them, in its
    database too; by default a process that is no task asks its environment and secrets backends.
    """

    @suppress_logs_and_warning
    @providers_configuration_loaded
    @functools.wraps(function)
    def run(args: Any) -> None:
        from sqlalchemy.exc import DBAPIError

        os.environ[_CONTEXT] = "server"
        try:
            name_kind(args)
            status = function(args)
        except (errors.TubeMQError, AirflowException) as exc:
            raise SystemExit(f"error: {visible(str(exc), lines=True)}") from exc
        except DBAPIError as exc:
            reason = visible(str(exc.orig).strip().partition("\n")[0])
            hint = "if it has no tables yet: airflow db migrate"
            raise SystemExit(f"error: Airflow's metadata database: {reason}; {hint}") from None
        if status:
            raise SystemExit(status)

    return run


def name_kind(args: Any) -> None:
    """Put ``--source`` before the name of the group, as assets of that kind are named.

    Raises `errors.ConfigError` for an unknown kind, and for a group of another one.
    """
    source, asset = getattr(args, "source", None), getattr(args, "asset", None)
    if source is None:
        return
    space_of(source)
    if asset is None:
        return
    kind, _, name = asset.partition(":") if ":" in asset.partition("/")[0] else ("", "", asset)
    if kind not in ("", source):
        raise errors.ConfigError(f"{asset} is of kind {kind!r}", subject="--source")
    args.asset = f"{source}:{name}"


def say(args: Any, rows: Sequence[Row], document: object = None) -> None:
    """Print `rows` as a table or JSON lines, or `document` (default: the rows) as JSON or YAML."""
    if is_document(args):
        whole = document is None or args.output == "jsonl"
        show_document(args, list(rows) if whole else document)
    else:
        print(table(rows, colours=args.output == "table" and _is_terminal()))


def show_document(args: Any, document: object) -> None:
    """Print a document as JSON or YAML, or each of its rows as a line of JSON."""
    if args.output == "yaml":
        yaml: Any = import_module("yaml")
        plain = json.loads(json.dumps(document, default=str))
        print(visible(yaml.safe_dump(plain, sort_keys=False).rstrip(), lines=True))
    elif args.output == "jsonl":
        for row in document if isinstance(document, list) else [document]:
            print(visible_json(json.dumps(row, default=str)))
    else:
        print(visible_json(json.dumps(document, indent=1, default=str)))


def is_document(args: Any) -> bool:
    """Return True for formats that programs parse as a whole."""
    return args.output in ("json", "jsonl", "yaml")


def people(args: Any) -> bool:
    """Return True for a table, which may have notes and headings."""
    return bool(args.output == "table")


_COLOURS: Final = {
    "failed": "31",
    "ok": "32",
    "accepted": "32",
    "written": "32",
    "claimed": "33",
    "differs": "33",
    "delayed": "33",
}
"""ANSI colours of words in a table."""


def _is_terminal() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def table(rows: Sequence[Row], *, colours: bool = False) -> str:
    """Return rows as columns padded to their longest value."""
    if not rows:
        return "nothing found"
    names = list(rows[0])
    cells = [names, *([visible(str(row.get(name, ""))) for name in names] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(names))]
    lines = []
    for number, line in enumerate(cells):
        padded = [c.ljust(w) for c, w in zip(line, widths, strict=True)]
        if colours:
            padded = [_coloured(c, text, number) for c, text in zip(padded, line, strict=True)]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _coloured(padded: str, text: str, number: int) -> str:
    code = "1" if number == 0 else _COLOURS.get(text.partition(" ")[0], "")
    return f"\x1b[{code}m{padded}\x1b[0m" if code else padded


def changed(args: Any, before: object, after: object) -> None:
    """Print the state before and after a change."""
    if is_document(args):
        show_document(args, {"before": before, "after": after})
        return
    for name, value in (("before: ", before), ("after:  ", after)):
        print(name + visible_json(json.dumps(value, default=str)))


def confirm(args: Any) -> None:
    """Ask, unless ``--yes`` is given. Ends the command if the answer is no, or without a
    terminal."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise SystemExit("nothing changed: no terminal to ask on; pass --yes")
    if input("change it? [y/N] ").strip().lower() not in ("y", "yes"):
        raise SystemExit("nothing changed")
