"""Administrative changes to a group: retire a broker, remove a boundary, start an epoch.

Pure changes of a boundary book or a cursor document, for commands and jobs that show them first.
Queries no cluster. This module must not know how a framework stores progress.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from tubemq_client.errors import ConfigError
from tubemq_client.json_text import load_unique_json
from tubemq_provider.windows.canonical import parse_instant, rfc3339
from tubemq_provider.windows.cursor import (
    CURSOR_VERSION,
    epoch_of,
    newer_position,
    past_epochs,
    present_epoch,
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
    """Current epoch of a group, its ended ones, and the last window at the stored position.

    `last` is the window's id, "" for none.
    """

    present: str
    past: tuple[str, ...]
    last: str = ""


def book_of(sink: Sink, scope: WindowScope) -> ScopeBook:
    """Return the boundaries of `scope` in its sink. Raises `ConfigError` if the sink has none."""
    if sink.boundaries is None:
        raise ConfigError(f"{sink.identity} has no place for boundaries", subject="sink")
    return ScopeBook(sink.boundaries, scope)


def broker_names(names: Iterable[object]) -> list[int | str]:
    """Return names of brokers in order, as in documents: numeric ones as integers."""
    ordered = sorted({str(name) for name in names}, key=lambda name: (len(name), name))
    return [int(name) if name.isdecimal() else name for name in ordered]


def brokers_to_retire(
    names: Iterable[object], source: str, *, option: str, hint: str = ""
) -> list[str]:
    """Return brokers as in partition keys.

    Raises `ConfigError`, with the `option` and a `hint`, for names where brokers have numbers:
    retiring one would have no effect.
    """
    texts = [str(name) for name in names]
    if source != FIRST_SOURCE:
        return texts
    if wrong := [name for name in texts if not name.isdecimal()]:
        raise ConfigError(
            f"{option} {wrong[0]!r}: brokers of TubeMQ have numbers{hint}", subject="broker"
        )
    return [str(int(name)) for name in texts]


def instant_given(text: str, option: str) -> datetime:
    """Return an instant from a command line. Raises `ConfigError` with the `option`."""
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
    """Check that the boundary at `instant` is unused, so that `ScopeBook.withdraw` may remove it.

    Raises `ConfigError` unless the boundary is fixed. Raises `BoundaryConflict` if a published
    window uses it: one spans the instant, or one begins or ends there with the boundary's offsets
    (other offsets mean that the boundary was lost, and fixed again), or if one of the `planned`
    windows touches it. `option` confirms that the runs which planned these windows have ended.
    """
    if not book.has(instant):
        last_ones = ", ".join(map(rfc3339, book.instants()[-5:])) or "none"
        raise ConfigError(
            f"no boundary of this group is fixed at {rfc3339(instant)}; the last ones: {last_ones}",
            subject="unfix",
        )

    def touching(window_ids: Iterable[str]) -> list[str]:
        intervals = (interval_of(window_id, scope.scope_hash) for window_id in window_ids)
        touched = sorted(each for each in intervals if each and each[0] <= instant <= each[1])
        return [time_window_id(*each, scope.scope_hash) for each in touched]

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
                f"if they ended without publishing them, pass {option}: a later try plans again",
            ],
        )


def epochs_of(
    cursor: Document | None, event: Document | None, recent: Iterable[Document] = ()
) -> Epochs:
    """Return the current epoch, and the ended ones, newest first.

    They come from the cursor, the newest commit event with a position and the `recent` events.
    Names of windows of time other than the current epoch count as ended: used again they would mean
    two epochs.
    """
    recent = list(recent)
    life = present_epoch(cursor, event, recent)
    present, past = epoch_of(life), list(past_epochs(life or {}))
    for event_of_time in recent:
        if event_of_time.get("kind") == WindowKind.TIME:
            past += [*past_epochs(event_of_time), epoch_of(event_of_time)]
    newest = newer_position(cursor, event)
    last = newest if newest and "h" in newest else None
    return Epochs(
        present,
        tuple(name for name in dict.fromkeys(past) if name != present),
        cursor_window_id(int(last["seq"]), str(last["h"])) if last else "",
    )


def beginning(text: str) -> object:
    """Return the begin of an epoch from a command line: a keyword, or offsets as JSON.

    Raises `ConfigError` for anything else.
    """
    if text in (EARLIEST, STABLE, LATEST):
        return end_word(text)
    try:
        return load_unique_json(text)
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
    """Return the cursor with which a group starts the epoch `name` at `begin`.

    `names` are cluster, topic and group. `begin` is ``earliest``, ``stable`` or offsets by
    partition key. `known` are its earlier epochs, `seen` the last window of the run whose error
    advised the epoch; records published after it that are still in the log are not read again.

    Raises `ConfigError` for a name that was used, for invalid offsets, and if the group has
    advanced since `seen`.
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
    """Raise `ConfigError` if the group has advanced since an error advised an epoch.

    The run that failed may have followed windows of the sink beyond the stored position, so it may
    have seen more than is stored, never less; unless the sink had lost all of them, which the
    number 0 says: the epoch then begins after those that are there when its first run looks.
    """
    if not seen:
        return
    window_seen, stored = cursor_window_of(seen), cursor_window_of(last)
    if window_seen is None:
        raise ConfigError(
            f"{seen!r} is not the id of a cursor window, such as c-12-3f2a9c01bb", subject="seen"
        )
    if stored is not None and (stored[1] != window_seen[1] or stored[0] > window_seen[0] > 0):
        raise ConfigError(
            f"the group has advanced since: the error was raised behind window {seen}, and the "
            f"last one is {last} now; run it again, and follow its new error, if there is one",
            subject="seen",
        )
