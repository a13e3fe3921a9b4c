"""How commands speak: tables or JSON on standard output, a question before a change, short errors.

Airflow's own console wraps JSON at the width of a terminal, so this prints plainly.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk.exceptions import AirflowException
from airflow.utils.cli import suppress_logs_and_warning
from airflow.utils.providers_configuration_loader import providers_configuration_loaded

from tubemq_client import errors
from tubemq_client.terminal import visible, visible_json

__all__ = ["changed", "command", "confirm", "say", "table"]

Row = Mapping[str, object]


def command(function: Callable[[Any], int | None]) -> Callable[[Any], None]:
    """A command of Airflow's. Errors of this provider, or of Airflow, end it with their text and
    status 1; a status that it returns ends it too."""

    @suppress_logs_and_warning
    @providers_configuration_loaded
    @functools.wraps(function)
    def run(args: Any) -> None:
        try:
            status = function(args)
        except (errors.TubeMQError, AirflowException) as exc:
            raise SystemExit(f"error: {visible(str(exc), lines=True)}") from exc
        if status:
            raise SystemExit(status)

    return run


def say(args: Any, rows: Sequence[Row], document: object = None) -> None:
    """`rows` as a table, or as JSON (then `document` stands for them where it is given)."""
    if args.output == "json":
        _show_json(list(rows) if document is None else document)
    else:
        print(table(rows))


def _show_json(document: object) -> None:
    """A document as JSON."""
    print(visible_json(json.dumps(document, indent=1, default=str)))


def table(rows: Sequence[Row]) -> str:
    """Columns padded to their longest value."""
    if not rows:
        return "nothing found"
    names = list(rows[0])
    cells = [names, *([visible(str(row.get(name, ""))) for name in names] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(names))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def changed(args: Any, before: object, after: object) -> None:
    """What is there and what will be."""
    if args.output == "json":
        _show_json({"before": before, "after": after})
        return
    for name, value in (("before: ", before), ("after:  ", after)):
        print(name + visible_json(json.dumps(value, default=str)))


def confirm(args: Any) -> None:
    """Ask, unless told not to. Ends the command if the answer is no, or nobody is there."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise SystemExit("nothing changed: nobody to ask; pass --yes")
    if input("change it? [y/N] ").strip().lower() not in ("y", "yes"):
        raise SystemExit("nothing changed")
