"""``airflow tubemq offsets epoch``: a group whose topic was made anew begins a new life.

What is stored afterwards is a cursor without a position: it names the epoch, those that have ended,
and where the new one begins. The next run plans its first window. Windows of earlier epochs stay in
the sink, under ids of their own. Stop the tasks of the group first.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from tubemq_client import errors
from tubemq_provider.cli._show import changed, command, confirm
from tubemq_provider.offsets.metadata_db import Group, open_group
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.canonical import rfc3339
from tubemq_provider.windows.cursor import CURSOR_VERSION, epoch_of, newer_position, past_epochs
from tubemq_provider.windows.policies import EARLIEST, LATEST, parse_offsets
from tubemq_provider.windows.protocols import Document

__all__ = ["begin"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@command
def begin(args: Any) -> None:
    """Begin an epoch; the group's next run takes its first window."""
    with open_group(args.asset) as group:
        store, cursor = group.cursor()
        present, past = _epochs(cursor, group.newest_position())
        ended = [*dict.fromkeys([*past, present])]
        if not _NAME.fullmatch(args.name) or args.name in ended:
            raise errors.ConfigError(
                f"{args.name!r} is not a name of letters, digits, '.', '_' and '-' that the group "
                f"has not had; it had {', '.join(map(repr, ended))}",
                subject="epoch",
            )
        after = _document(group, args.name, ended, _beginning(args.begin, group.parts[1]), cursor)
        changed(args, {"epoch": present}, {"epoch": args.name, "begin": after["begin"]})
        confirm(args)
        group.store_cursor(store, after)
        # Samples are ends of logs that are gone: boundaries of the new life must not rest on them.
        group.forget_timeline()


def _epochs(cursor: Document | None, event: Document | None) -> tuple[str, tuple[str, ...]]:
    """The present epoch, and those that have ended."""
    newest = newer_position(cursor, event)
    known = cursor if newest is not None and newest is cursor else event
    return epoch_of(known), past_epochs(known or {})


def _beginning(text: str, topic: str) -> str | dict[str, int | str]:
    if text in (EARLIEST, LATEST):
        return text
    try:
        given = json.loads(text)
    except ValueError as exc:
        raise errors.ConfigError(f"{text!r} is neither a word nor JSON", subject="begin") from exc
    return parse_offsets({topic: given}, topic, subject="begin", space=SPACE)


def _document(
    group: Group, name: str, ended: list[str], begin: object, before: Document | None
) -> Document:
    cluster, topic, consumer = group.parts
    return {
        "v": CURSOR_VERSION,
        "cluster": cluster,
        "topic": topic,
        "group": consumer,
        "epoch": name,
        "past": ended,
        "begin": begin,
        "seq": 0,
        "rev": int((before or {}).get("rev", 0)) + 1,
        "by": "airflow tubemq",
        "updated": rfc3339(datetime.now(UTC)),
    }
