"""``airflow tubemq offsets``: show positions, set them, free claims, rebuild a lost position.

Every change prints the state before and after, and asks first. Stop the tasks of a group before its
position is set: a running task keeps the plan it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tubemq_client import errors
from tubemq_client.json_text import load_unique_json
from tubemq_client.terminal import visible
from tubemq_provider.cli._ends import known_ends
from tubemq_provider.cli._show import changed, command, confirm, people, say
from tubemq_provider.cli._sinks import sink_of
from tubemq_provider.offsets.metadata_db import groups, open_group
from tubemq_provider.offsets.position_reset import moved, named_offsets, stamp, standing
from tubemq_provider.overview.group_progress import GroupProgress, group_position, row_of
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.anchors import read_anchors
from tubemq_provider.windows.cursor import (
    CURSOR_VERSION,
    Position,
    continue_command,
    epoch_of,
    is_by_hand,
    past_epochs,
)
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.lag import with_ends
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.claims import Claim, ClaimBook, rebuilt
from tubemq_provider.windows.protocols import Document, Sink
from tubemq_provider.windows.spaces import OffsetSpace, space_of

_BY = "airflow tubemq"
_UNSEEN = (
    "note: runs of this group may keep no cursor; tasks with offset_store='events' do not read the "
    "new one, and are moved by TubeMQOffsetsOperator(action='set')"
)


@command
def list_groups(args: Any) -> None:
    """Print a row per group, also for one whose cursor was edited and cannot be read."""
    with groups() as every:
        kind = getattr(args, "source", None)
        say(args, [row_of(group) for group in every if kind in (None, group.source)])


@command
def show(args: Any) -> None:
    """Print all stored progress of one group."""
    with open_group(args.asset) as group:
        now = group_position(group)
        # A cleared window has several events.
        accepted = len({event["window_id"] for event in group.events() if "window_id" in event})
    ends, note = known_ends(args, group)
    rows = with_ends(now.next, ends, space_of(group.source))
    document: dict[str, Any] = {
        "asset": now.asset,
        "store": now.store,
        "cursor": now.cursor,
        "newest_event": now.event,
        "windows_accepted": accepted,
        "partitions": rows,
    }
    if people(args):
        print(visible(_headline(now)))
    say(args, rows, document)
    if people(args) and note:
        print(visible(note))
    if people(args) and now.claims:
        print()
        say(args, [_claim(key, claim) for key, claim in now.claims.items()])


@command
def set_position(args: Any) -> None:
    """Set the next offset of every partition; the number of the last accepted window stays."""
    with open_group(args.asset) as group:
        store, stored = group.cursor()
        space, event = space_of(group.source), group.newest_position()
        cursor = standing(stored, event, group.asset, space)
        offsets = _offsets(args.offsets, cursor.get("next", {}), space)
        after = moved(cursor, event, offsets, by=_BY, now=datetime.now(UTC))
        changed(args, cursor["next"], offsets)
        if cursor is not stored and people(args):
            print(_UNSEEN)
        confirm(args)
        group.store_cursor(store, after)


@command
def adopt(args: Any) -> None:
    """Free claims: the next run adopts them, with their exact ranges."""
    with open_group(args.asset) as group:
        store, cursor = group.cursor()
        pending = dict((cursor or {}).get("pending", {}))
        chosen = [key for key in pending if args.window in (None, key)]
        if cursor is None or not chosen:
            raise errors.ConfigError("there is no such claim", subject="adopt")
        freed = {key: {**pending[key], "by": ""} for key in chosen}
        changed(args, {key: pending[key]["by"] for key in chosen}, dict.fromkeys(chosen, ""))
        confirm(args)
        after = {**cursor, "pending": {**pending, **freed}, **_stamp(cursor)}
        group.store_cursor(store, after)


@command
def rebuild(args: Any) -> None:
    """Rebuild position and claims from the newest event and later windows of the sink.

    Claims of unpublished windows are kept, unless they are to be dropped: a window that can never
    be read, because its log was truncated, would block its group for ever.
    """
    with open_group(args.asset) as group:
        store, cursor = group.cursor(of_ledger=True)
        event = group.newest_position()
        if event is not None and epoch_of(event) in past_epochs(cursor or {}):
            raise errors.ConfigError(
                f"epoch {epoch_of(cursor)!r} has begun and has no event yet: there is nothing to "
                f"rebuild, its next run finds the windows that it has",
                subject="rebuild",
            )
        if store == "ledger" and args.sink is None:
            raise errors.ConfigError(
                "pass --sink: without its markers, windows beyond the position would be forgotten",
                subject="rebuild",
            )
        plans = _plans(sink_of(args), event or cursor)
        claims = [] if args.drop_claims else _claims(cursor)
        space = space_of(group.source)
        book, about = _rebuilt(event, plans, cursor, claims, space)
        book = book.keeping(claims)
        if (book.pending or book.done) and store != "ledger":
            raise errors.ConfigError(
                "the sink misses a window before others, and without a ledger nothing can fill a "
                "hole; set the position by hand",
                subject="rebuild",
            )
        seq = int((cursor or {}).get("seq", 0))
        if book.position.seq < seq:
            raise errors.ConfigError(
                f"the cursor is at window {seq}, but events and sink only lead to window "
                f"{book.position.seq}; going back could store records twice. If the cursor is "
                f"wrong, set the position by hand",
                subject="rebuild",
            )
        after = _document(book, store, about, cursor, space)
        changed(args, _seen(cursor), _seen(after))
        confirm(args)
        group.store_cursor(store, after)


# Reading ------------------------------------------------------------------------------------------


def _headline(now: GroupProgress) -> str:
    cursor, event = now.cursor, now.event
    if cursor is None:
        seq = event["position"]["seq"] if event else None
        return f"{now.asset}: no cursor; newest event: window {seq}"
    return (
        f"{now.asset}: window {cursor['seq']}, {now.store}, revision {cursor.get('rev')}, "
        f"{cursor.get('updated')} by {cursor.get('by')}"
    )


def _claim(window_id: str, claim: Mapping[str, Any]) -> dict[str, object]:
    return {"claimed window": window_id, "by": claim["by"] or "nobody", "since": claim["at"]}


def _seen(document: Document | None) -> object:
    if document is None:
        return None
    return {
        "seq": document["seq"],
        "next": document.get("next", {}),
        "claims": sorted(document.get("pending", {})),
        "done": sorted(document.get("done", {})),
    }


# Making -------------------------------------------------------------------------------------------


def _offsets(text: str, partitions: Iterable[str], space: OffsetSpace) -> dict[str, int]:
    """Return offsets from the command line, of all `partitions`.

    Raises `DocumentError` with every problem.
    """
    try:
        document = load_unique_json(text)
    except (ValueError, RecursionError) as exc:
        raise DocumentError("--offsets", [f"it is not JSON: {exc}"]) from exc
    return named_offsets(document, partitions, space, subject="--offsets")


def _stamp(cursor: Document) -> Document:
    return stamp(cursor, by=_BY, now=datetime.now(UTC))


def _base(about: Mapping[str, Any], position: Position, space: OffsetSpace) -> Document:
    h = about["h"] if "h" in about else about["position"]["h"]
    names = {name: str(about.get(name, "")) for name in ("cluster", "topic", "group", "epoch")}
    return {"v": CURSOR_VERSION, **names, **position.to_document(h, space)}


def _plans(sink: Sink | None, about: Document | None) -> list[WindowPlan]:
    """Return cursor windows of this group in a sink, in order."""
    if sink is None:
        return []
    markers = [marker.plan for marker in published_windows(sink)]
    h = ((about or {}).get("position") or about or {}).get("h")
    plans = [plan for plan in markers if plan.seq and h in (None, plan.scope_hash)]
    if len({plan.scope_hash for plan in plans}) > 1:
        raise errors.ConfigError("the sink has windows of several scopes", subject="rebuild")
    return plans


def _claims(cursor: Document | None) -> list[Claim]:
    """Return the current claims. Raises `DocumentError` if they were edited and cannot be read."""
    claims = []
    for key, value in (cursor or {}).get("pending", {}).items():
        plan = WindowPlan.from_document(value.get("plan"), where=f"claim {key}")
        claims.append(Claim(plan, str(value.get("by", "")), str(value.get("at", ""))))
    return claims


def _rebuilt(
    event: Document | None,
    plans: list[WindowPlan],
    cursor: Document | None,
    claims: list[Claim],
    space: OffsetSpace,
) -> tuple[ClaimBook, Mapping[str, Any]]:
    where: Mapping[str, Any] | None = event["position"] if event is not None else None
    if where is None and cursor is not None and "next" in cursor:
        where = cursor  # e.g. of a restored database, older than the first event
    if where is not None:
        last = read_anchors(where.get("last", {}), space)
        position = Position(where["seq"], where["next"], last, is_by_hand(where))
        return rebuilt(position, plans, claims), event or where
    if not plans:
        raise errors.ConfigError(
            "no event has a position; pass --sink, whose markers have them too", subject="rebuild"
        )
    if plans[0].seq != 1:
        raise errors.ConfigError(
            f"the sink's first window is {plans[0].window_id}, and no event has what was before; "
            f"if those before it were removed, continue after the last one: "
            f"{continue_command(plans[-1])}",
            subject="rebuild",
        )
    first_position = Position(0, plans[0].bases, plans[0].anchors_at_start)
    return rebuilt(first_position, plans, claims), plans[0].to_document()


def _document(
    book: ClaimBook,
    store: str,
    about: Mapping[str, Any],
    cursor: Document | None,
    space: OffsetSpace,
) -> Document:
    past = max(past_epochs(cursor or {}), past_epochs(about), key=len)
    document = {**_base(about, book.position, space), **_stamp(cursor or {})}
    document |= {"past": list(past)} if past else {}
    if store == "ledger":
        document |= book.claims_document()
    return document
