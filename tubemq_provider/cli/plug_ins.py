"""``airflow tubemq plugins``: the words of each kind, who brings them, and what is broken.

Plug-ins of other distributions are imported to try them; the package's own are only listed. This
module must not know what a plug-in of any kind does.
"""

from __future__ import annotations

from typing import Any

from tubemq_provider.cli._show import command, say
from tubemq_provider.extensions import GROUPS, INTERFACE, Kind, Plugin, installed, problem_of


@command
def show_plugins(args: Any) -> int | None:
    """Print a row per word; the status is 1 if a plug-in is broken."""
    kinds: list[Kind] = [kind for kind in GROUPS if args.kind in (None, kind)]
    rows = [_row(plugin) for kind in kinds for plugin in installed(kind)]
    say(args, rows)
    return 1 if any(row["state"] == "failed" for row in rows) else None


def _row(plugin: Plugin) -> dict[str, Any]:
    problem = problem_of(plugin)
    return {
        "kind": plugin.kind,
        "word": plugin.word,
        "distribution": plugin.distribution,
        "interface": "" if problem else INTERFACE,
        "state": "failed" if problem else "ok",
        "problem": problem or "",
    }
