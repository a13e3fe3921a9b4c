"""``airflow tubemq windows``: published windows, accepted windows, and their differences.

A sink's markers prove what is published, commit events (and the ledger) what was accepted. Nothing
here changes anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from tubemq_client import errors
from tubemq_client.terminal import visible
from tubemq_provider.cli._show import command, is_document, people, say, show_document
from tubemq_provider.cli._sinks import sink_of
from tubemq_provider.ingest.maintenance import instant_given
from tubemq_provider.offsets.metadata_db import Group, groups
from tubemq_provider.overview.accepted_windows import Accepted, accepted, digest
from tubemq_provider.sinks.read import published_windows
from tubemq_provider.sinks.routed import failed_tables
from tubemq_provider.windows.coverage import coverage, report
from tubemq_provider.windows.protocols import Marker, Sink


@command
def list_windows(args: Any) -> None:
    """Print a row per window: from the sink if one is named, else from commit events and ledger."""
    sink = sink_of(args)
    if sink is not None:
        say(args, [_of_marker(marker) for marker in _of_asset(sink, args.asset)])
        return
    rows = []
    with groups() as every:
        for group in _chosen(every, args.asset):
            rows += [_of_event(group, key, event) for key, event in accepted(group).items()]
            seen = {row["window"] for row in rows}
            rows += [
                {
                    "window": row.window_id,
                    "group": group.asset,
                    "state": f"{row.state} (ledger)",
                    "records": sum((row.outcome or {}).get("records", {}).values()),
                    "hash": row.plan_hash[:12],
                }
                for row in group.windows()
                if row.window_id not in seen
            ]
    say(args, rows)


@command
def show(args: Any) -> None:
    """Print event, ledger row and marker of one window."""
    window: dict[str, object] = {}
    with groups() as every:
        for group in _chosen(every, args.asset):
            with closing(group.events()) as events:
                event = next((e for e in events if e.get("window_id") == args.window_id), None)
            if event is not None:
                window |= {"asset": group.asset, "event": event}
            for row in group.windows():
                if row.window_id == args.window_id:
                    window |= {"asset": group.asset, "ledger": row.state, "plan": row.plan}
    sink = sink_of(args)
    if sink is not None:
        marker = sink.marker(args.window_id)
        window["marker"] = (
            {"plan": marker.plan.to_document(), "ref": marker.ref, **_counts(marker)}
            if marker
            else None
        )
    if not any(window.values()):
        raise errors.ConfigError(f"nothing is known of {args.window_id}", subject="window")
    if is_document(args):
        show_document(args, window)
    else:
        _print_window(args, window)


def _print_window(args: Any, window: Mapping[str, Any]) -> None:
    """Print a window for people: facts first, then a row for each partition."""
    event, marker = window.get("event") or {}, window.get("marker") or {}
    plan = marker.get("plan") or window.get("plan") or {}
    records = marker.get("records") or event.get("records") or {}
    ranges = plan.get("ranges") or plan.get("r") or event.get("ranges") or {}
    facts = {
        "window": args.window_id,
        "asset": window.get("asset", ""),
        "state": ", ".join(_states(window)),
        "interval": " to ".join(plan.get("time") or ()) or "-",
        "records": sum(records.values()),
        "bytes": marker.get("bytes", event.get("bytes", "-")),
        "place": marker.get("ref") or event.get("sink", {}).get("ref") or "-",
        "hash": event.get("hash", "-"),
        "corrupt": event.get("corrupt", 0),
        "gaps": json.dumps(event.get("gaps") or {}),
    }
    for name, value in facts.items():
        print(visible(f"{name:<9} {value}"))
    rows = [
        {"partition": key, "from": bounds[0], "to": bounds[1], "records": records.get(key, 0)}
        for key, bounds in ranges.items()
    ]
    if rows:
        print()
        say(args, rows)


def _states(window: Mapping[str, Any]) -> Iterator[str]:
    """Yield the states of a window, in words."""
    if window.get("marker"):
        yield "written"
    elif "marker" in window:
        yield "not in the sink"
    if window.get("event"):
        yield "accepted"
    if window.get("ledger"):
        yield f"{window['ledger']} (ledger)"


@command
def verify(args: Any) -> int:
    """Compare each marker with the accepted windows, and cursor windows with each other.

    Status 1 if something is wrong.
    """
    sink = _named(args)
    markers = _of_asset(sink, args.asset)
    written = {marker.plan.scope_hash for marker in markers}
    with groups() as every:
        accepted_windows = {
            key: event
            for group in _chosen(every, args.asset)
            for key, event in accepted(group).items()
            if _is_of(sink, written, key, event)
        }
    problems = [*_disagreements(markers, accepted_windows), *_breaks(markers)]
    rows = [{"problem": problem} for problem in problems]
    verdict = {"windows": len(markers), "accepted": len(accepted_windows), "problems": problems}
    if not people(args) or problems:
        say(args, rows, verdict)
    else:
        print(f"{len(markers)} windows written, {len(accepted_windows)} accepted, no problem")
    return 1 if problems else 0


@command
def show_coverage(args: Any) -> int:
    """Print the coverage of each group in a sink, with a calendar. Status 1 if incomplete."""
    instants = (("--start", args.start), ("--end", args.end))
    start, end = (instant_given(text, name) if text else None for name, text in instants)
    sink = _named(args)
    scopes = coverage(published_windows(sink), start=start, end=end)
    failed = failed_tables(sink)
    if is_document(args):
        tables = [
            {"window": window_id, "table": name, "failed": entry["failed"]}
            for window_id, entries in failed.items()
            for name, entry in entries.items()
        ]
        more = {"failed_tables": tables} if tables else {}
        show_document(args, [{**item.to_document(), **more} for item in scopes])
    else:
        lines = [
            f"{name} does not have {window_id}: {entry['failed']}"
            for window_id, entries in failed.items()
            for name, entry in entries.items()
        ]
        text = "\n\n".join([*map(report, scopes), *(["\n".join(lines)] if lines else [])])
        print(visible(text, lines=True) or "nothing found")
    return 0 if scopes and not failed and all(item.complete for item in scopes) else 1


def _named(args: Any) -> Sink:
    sink = sink_of(args)
    if sink is None:
        raise errors.ConfigError("name the sink with --sink", subject="sink")
    return sink


def _chosen(every: list[Group], label: str | None) -> list[Group]:
    chosen = [group for group in every if label in (None, group.asset, group.name)]
    if label is not None and not chosen:
        raise errors.ConfigError(f"no offsets asset {label!r}", subject="asset")
    return chosen


def _of_asset(sink: Sink, label: str | None) -> list[Marker]:
    """Return the markers of a sink, or those of one group's windows."""
    markers = published_windows(sink)
    return [marker for marker in markers if label in (None, *_labels(marker))]


def _labels(marker: Marker) -> tuple[str, str]:
    """Return the group of a window as commands name it, and with the kind of its source."""
    scope = marker.plan.scope_in("")
    return scope.asset, f"{scope.source}:{scope.asset.removeprefix(f'{scope.source}:')}"


def _is_of(sink: Sink, written: set[str], window_id: str, event: Accepted) -> bool:
    """Return True if an accepted window was written to this sink.

    It is of a scope that the sink has windows of, or was published at this sink's location.
    """
    if window_id.rpartition("-")[2] in written:
        return True
    location = sink.identity.partition(":")[2]
    return event.sink_kind == sink.kind and event.ref.startswith(location)


def _of_event(group: Group, window_id: str, event: Accepted) -> dict[str, object]:
    return {
        "window": window_id,
        "group": group.asset,
        "state": "accepted",
        "records": event.records,
        "hash": event.hash[:12],
    }


def _of_marker(marker: Marker) -> dict[str, object]:
    plan = marker.plan
    return {
        "window": plan.window_id,
        "group": plan.scope_in("").asset,
        "state": "written",
        "records": sum(marker.counts.published.values()),
        "hash": plan.hash[:12],
    }


def _counts(marker: Marker) -> dict[str, object]:
    counts = marker.counts
    tables = {"tables": dict(counts.tables)} if counts.tables else {}
    return {"records": dict(counts.published), "bytes": counts.bytes, **tables}


def _disagreements(
    markers: list[Marker], accepted_windows: Mapping[str, Accepted]
) -> Iterator[str]:
    written = {marker.plan.window_id: marker for marker in markers}
    for window_id, event in accepted_windows.items():
        marker = written.get(window_id)
        if marker is None:
            yield f"{window_id} was accepted, but the sink has no marker of it"
        elif marker.plan.hash != event.hash:
            yield f"{window_id} was accepted with other ranges than the sink has"
        elif digest(marker.counts.published) != event.counts:
            yield f"{window_id} was accepted with other counts than the sink has"


def _breaks(markers: list[Marker]) -> Iterator[str]:
    """Cursor windows that do not continue the one before."""
    before: dict[str, Marker] = {}
    for marker in markers:
        plan = marker.plan
        if plan.seq is None:
            continue
        last = before.get(plan.scope_hash)
        if last is not None and not plan.continues(last.plan.ends):
            yield f"{plan.window_id} does not begin where {last.plan.window_id} ends"
        before[plan.scope_hash] = marker
