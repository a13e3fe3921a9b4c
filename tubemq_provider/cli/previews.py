"""``airflow tubemq offsets diff`` and ``windows plan``: the stores compared, and the next window.

Both only read: no plan is stored, no position moved, no record read.
"""

from __future__ import annotations

from typing import Any

from tubemq_client import errors
from tubemq_client.terminal import visible
from tubemq_provider.cli._ends import hook_of, known_ends
from tubemq_provider.cli._show import command, people, say
from tubemq_provider.cli._sinks import sink_of
from tubemq_provider.offsets.group_position import advance_over
from tubemq_provider.offsets.metadata_db import Group, open_group
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.windows.cursor import Position, newer_position
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.read_limits import entries_by_log
from tubemq_provider.windows.spaces import space_of


@command
def diff(args: Any) -> int:
    """Print a row for each partition with the positions in all stores, and the end.

    Stores are the cursor, the newest event, the sink's newest window and the brokers. Status 1 if
    cursor, event and sink differ.
    """
    with open_group(args.asset) as group:
        _, cursor = group.cursor()
        event = group.newest_position()
    positions: dict[str, dict[str, Any]] = {
        "cursor": dict((cursor or {}).get("next", {})),
        "event": dict((event or {}).get("position", {}).get("next", {})),
    }
    if args.sink is not None:
        positions["sink"] = _ends_in_sink(args, group)
    ends, note = known_ends(args, group)
    compared = list(positions)
    if ends:
        positions["brokers"] = _at_brokers(args, group)
        positions["end"] = {partition.key: end.max_offset for partition, end in ends.items()}
    rows = []
    for key in space_of(group.source).ordered(
        {key for offsets in positions.values() for key in offsets}
    ):
        values = {name: positions[name].get(key, "-") for name in positions}
        held = {values[name] for name in compared if positions[name]}
        rows.append({"partition": key, **values, "verdict": "ok" if len(held) < 2 else "differs"})
    say(args, rows)
    if people(args) and note:
        print(note)
    return int(any(row["verdict"] == "differs" for row in rows))


def _ends_in_sink(args: Any, group: Group) -> dict[str, int]:
    """Return the end of the group's newest cursor window in the sink."""
    sink = sink_of(args)
    plans = [
        marker.plan
        for marker in published_windows(sink or args.sink)
        if marker.plan.scope_in("").asset == group.asset and marker.plan.seq
    ]
    newest = max(plans, key=lambda each: each.seq or 0, default=None)
    return dict(newest.ends) if newest is not None else {}


def _at_brokers(args: Any, group: Group) -> dict[str, int]:
    """Return the brokers' offsets of the group, if their administration answers."""
    _, topic, name = group.parts
    try:
        offsets = hook_of(args, group).group_offsets(topic, name)
    except errors.TubeMQError:
        return {}
    return {partition.key: offset for partition, offset in offsets.items() if offset is not None}


@command
def plan(args: Any) -> None:
    """Print the ranges of the next cursor window, as the planner would cut them now.

    With the ledger, they begin behind those that runs have claimed.
    """
    with open_group(args.asset) as group:
        cluster, topic, name = group.parts
        _, cursor = group.cursor()
        event = group.newest_position()
    newest = newer_position(cursor, event)
    if newest is None or "next" not in newest:
        raise errors.ConfigError(
            f"{args.asset} has no progress yet: its first window begins at initial_position",
            subject="plan",
        )
    hook, space = hook_of(args, group), space_of(group.source)
    planner = CursorPlanner(
        WindowScope(cluster, topic, name, "unknown", source=group.source),
        lambda: hook.reachable_ends(topic, name, stable=True),
        max_records=args.max_records,
    )
    claims = {**newest.get("done", {}), **newest.get("pending", {})}
    seq, start = int(newest["seq"]), dict(newest["next"])
    advance_over(start, claims)
    seq = max(seq, *(int(key.split("-")[1]) for key in claims)) if claims else seq
    window = planner.plan(Position(seq, start))
    rows = [
        {"partition": key, "from": start, "to": end, "entries": space.entries(start, end)}
        for key, (start, end) in (window.ranges if window else {}).items()
        if start < end
    ]
    # Partitions of a store share its log.
    entries = sum(entries_by_log(space, window.ranges).values()) if window else 0
    more = bool(window and window.has_more)
    document: dict[str, Any] = {"window": seq + 1, "entries": entries, "has_more": more}
    document["claimed"] = sorted(newest.get("pending", {}))
    say(args, rows, {**document, "ranges": rows})
    if people(args):
        for claimed in newest.get("pending", {}):
            print(visible(f"window {claimed} is claimed: a run takes it over if its task is gone"))
        rest = "; max_records leaves more for the next one" if more else ""
        print(f"window {document['window']}: at most {entries} records{rest}; nothing was stored")
