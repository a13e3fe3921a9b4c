"""What a person does to a group between runs: give up a broker, take a boundary back, begin a life.

Pure changes of what a boundary book or a cursor says, for commands and jobs that show them first.
Asks no cluster. This module must not know how a framework keeps progress.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from tubemq_client.errors import ConfigError
from tubemq_client.json_text import given_json
from tubemq_provider.windows.canonical import parse_instant, rfc3339
from tubemq_provider.windows.cursor import (
    CURSOR_VERSION,
    epoch_of,
    newer_position,
    past_epochs,
    present_life,
)
from tubemq_provider.windows.errors import BoundaryConflict
from tubemq_provider.windows.plan import (
    WindowKind,
    WindowScope,
    cursor_window_id,
    cursor_window_of,
    time_window_id,
)
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.planning.overlaps import interval_of
from tubemq_provider.windows.planning.published import PublishedWindows
from tubemq_provider.windows.policies import EARLIEST, LATEST, STABLE, end_word, parse_offsets
from tubemq_provider.windows.protocols import Document, Sink
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

__all__ = [
    "Epochs",
    "beginning",
    "book_of",
    "broker_names",
    "brokers_to_retire",
    "check_untouched",
    "epoch_document",
    "epochs_of",
    "instant_given",
]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Epochs(NamedTuple):
    """The present epoch of a group, those that have ended, and the id of the last window that the
    stored position has behind it ("": there is none)."""

    present: str
    past: tuple[str, ...]
    last: str = ""


def book_of(sink: Sink, scope: WindowScope) -> ScopeBook:
    """The boundaries of `scope` in its sink. Raises `ConfigError` where it keeps none."""
    if sink.boundaries is None:
        raise ConfigError(f"{sink.identity} has no place for boundaries", subject="sink")
    return ScopeBook(sink.boundaries, scope)


def broker_names(names: Iterable[object]) -> list[int | str]:
    """Names of brokers in order, as documents have them: numbers where they are."""
    ordered = sorted({str(name) for name in names}, key=lambda name: (len(name), name))
    return [int(name) if name.isdecimal() else name for name in ordered]


def brokers_to_retire(
    names: Iterable[object], source: str, *, option: str, hint: str = ""
) -> list[str]:
    """Brokers as keys of partitions have them. Raises `ConfigError`, with the `option` and a
    `hint`, for names where brokers have numbers: retiring such a one would have no effect."""
    texts = [str(name) for name in names]
    if source != FIRST_SOURCE:
        return texts
    if wrong := [name for name in texts if not name.isdecimal()]:
        raise ConfigError(
            f"{option} {wrong[0]!r}: brokers of TubeMQ have numbers{hint}", subject="broker"
        )
    return [str(int(name)) for name in texts]


def instant_given(text: str, option: str) -> datetime:
    """An instant as a person types it. Raises `ConfigError` with the `option`."""
    try:
        return parse_instant(text)
    except ValueError as exc:
        problem = f"{exc}; write it as 2026-01-31T08:00:00Z or 2026-01-31T09:00:00+01:00"
        raise ConfigError(problem, subject=option) from exc


def check_untouched(
    sink: Sink,
    scope: WindowScope,
    book: ScopeBook,
    instant: datetime,
    planned: Iterable[str],
    *,
    option: str,
) -> None:
    """Raise `ConfigError` or `BoundaryConflict` unless the boundary at `instant` is fixed, and no
    published window has it: none lies there, and those that begin or end there do so elsewhere (the
    boundary was lost, and fixed again). None of the `planned` windows may touch the instant either.
    `ScopeBook.take_back` may then forget it. `option` tells that the runs which planned these
    windows have ended."""
    if not book.has(instant):
        known = ", ".join(map(rfc3339, book.instants()[-5:])) or "none"
        raise ConfigError(
            f"no boundary of this group is fixed at {rfc3339(instant)}; the last ones: {known}",
            subject="unfix",
        )

    def touching(window_ids: Iterable[str]) -> list[str]:
        intervals = (interval_of(window_id, scope.scope_hash) for window_id in window_ids)
        found = sorted(each for each in intervals if each and each[0] <= instant <= each[1])
        return [time_window_id(*each, scope.scope_hash) for each in found]

    published = PublishedWindows(sink, scope)
    using = [edge.window_id for edge in published.at(instant) if book.agrees(instant, edge)]
    if (across := published.across(instant)) is not None:
        using.append(across)
    if using:
        raise BoundaryConflict(
            f"the boundary at {rfc3339(instant)} is in use",
            [f"{window_id} is published" for window_id in sorted(using)],
            ["what is published stays; give later windows offsets that fit"],
        )
    if waiting := touching(planned):
        raise BoundaryConflict(
            f"the boundary at {rfc3339(instant)} is in use",
            [f"{window_id} is planned, and may be being read" for window_id in waiting],
            [
                "let the runs end that have planned these windows",
                f"if they ended without publishing them, say {option}: a later try plans anew",
            ],
        )


def epochs_of(
    cursor: Document | None, event: Document | None, recent: Iterable[Document] = ()
) -> Epochs:
    """The present epoch, and those that have ended, as the cursor, the newest commit event with a
    position and the `recent` events say, newest first. Names that windows of time beside the
    present epoch have count as ended: they would mean two lives."""
    recent = list(recent)
    life = present_life(cursor, event, recent)
    present, past = epoch_of(life), list(past_epochs(life or {}))
    for told in recent:
        if told.get("kind") == WindowKind.TIME:
            past += [*past_epochs(told), epoch_of(told)]
    newest = newer_position(cursor, event)
    last = newest if newest and "h" in newest else None
    return Epochs(
        present,
        tuple(name for name in dict.fromkeys(past) if name != present),
        cursor_window_id(int(last["seq"]), str(last["h"])) if last else "",
    )


def beginning(text: str) -> object:
    """Where an epoch begins, as a person types it: a word, or offsets of every partition as JSON.
    Raises `ConfigError` for what is neither."""
    if text in (EARLIEST, STABLE, LATEST):
        return end_word(text)
    try:
        return given_json(text)
    except (ValueError, RecursionError) as exc:
        raise ConfigError(
            f"{text!r} is neither earliest or stable nor JSON ({exc})", subject="begin"
        ) from exc


def epoch_document(
    names: tuple[str, str, str],
    name: str,
    begin: object,
    known: Epochs,
    *,
    before: Document | None,
    by: str,
    source: str,
    seen: str | None = None,
) -> Document:
    """The cursor with which the group `names` (cluster, topic, group) begins the epoch `name` at
    `begin`: ``earliest``, ``stable`` or offsets by partition key. `known` are the epochs it had,
    `seen` the last window that the run knew whose error advised the epoch; what was published after
    it and the log still has is not read again.

    Raises `ConfigError` for a name that it had, for offsets that are none, and if the group has
    gone on since `seen`.
    """
    cluster, topic, group = names
    ended = [*dict.fromkeys([*known.past, known.present])]
    _refuse_stale(seen, known.last)
    if not _NAME.fullmatch(name) or name in ended:
        raise ConfigError(
            f"{name!r} is not a name of letters, digits, '.', '_' and '-' that the group has not "
            f"had; it had {', '.join(map(repr, ended))}",
            subject="epoch",
        )
    if begin not in (EARLIEST, STABLE, LATEST):
        begin = parse_offsets({topic: begin}, topic, subject="begin", space=space_of(source))
    return {
        "v": CURSOR_VERSION,
        "cluster": cluster,
        "topic": topic,
        "group": group,
        "epoch": name,
        "past": ended,
        "begin": begin,
        "seq": 0,
        "rev": int((before or {}).get("rev", 0)) + 1,
        "by": by,
        "updated": rfc3339(datetime.now(UTC)),
    } | ({"seen": seen or known.last} if seen or known.last else {})


def _refuse_stale(seen: str | None, last: str) -> None:
    """Raise `ConfigError` if the group has gone on since an error was raised that advised an epoch.

    The run that failed may have followed windows of the sink beyond the stored position, so it may
    have seen more than is stored, never less.
    """
    if not seen:
        return
    there, stored = cursor_window_of(seen), cursor_window_of(last)
    if there is None:
        raise ConfigError(
            f"{seen!r} is not the id of a cursor window, such as c-12-3f2a9c01bb", subject="seen"
        )
    if stored is not None and (stored[1] != there[1] or stored[0] > there[0]):
        raise ConfigError(
            f"the group has gone on since: the error was raised behind window {seen}, and the last "
            f"one is {last} now; let it run again, and do what its error says then, if there is "
            f"one",
            subject="seen",
        )
