"""Verification of counts: engine against plan, files against engine, sink against marker.

Each check raises with every disagreement in the message, before anything becomes visible. This
module must not do I/O; the caller reads files and documents and passes their facts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from tubemq_provider.windows.errors import CountMismatch, MarkerConflict, SinkDamaged
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import IngestCounts, Marker
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = [
    "chain_problems",
    "check_counts",
    "check_files",
    "check_marker",
    "check_staged",
    "counts_of_another",
]


def counts_of_another() -> MarkerConflict:
    """Return the refusal of reported counts whose window is neither the next nor published."""
    return MarkerConflict(
        "the counts are of another window than the one that comes next now: progress was set, or "
        "the window was planned for other arguments; run the planning task and what is between "
        "again"
    )


def check_counts(plan: WindowPlan, counts: IngestCounts, *, replaces: Marker | None = None) -> None:
    """Raise `CountMismatch` unless an engine's counts are possible for `plan`.

    Every partition must be counted, and none may have more records than its ranges have index
    entries (fewer is normal: partitions of a store share the log, and filters leave records out).
    If the engine reports the sub-ranges it read, they must tile the plan's ranges. If the window
    replaces a published one, no more records may be lost or corrupt than in that one.
    """
    room = dict.fromkeys(plan.ranges, 0)
    for range_ in plan.reads():
        room[range_.partition.key] += range_.entries
    problems = [f"{key} was not counted" for key in plan.ranges if key not in counts.records]
    for key, records in (counts.records if counts.read is None else counts.read).items():
        if key not in room:
            problems.append(f"{key} is not in the plan, but {records} records were counted")
        elif not 0 <= records <= room[key]:
            problems.append(f"{key} has {records} records, but at most {room[key]} fit its range")
    if counts.pieces is not None:
        problems += _tiling_problems(plan, counts.pieces)
    if replaces is not None:
        problems += _lost_since(plan.space, replaces.counts, counts)
    _raise(plan, problems)


def check_staged(
    plan: WindowPlan, counts: IngestCounts, staged: Mapping[str, int] | None, total: int
) -> None:
    """Raise `CountMismatch` unless staged files have the records that the engine counted.

    `staged` are the files' records by partition key, or None if they have no column of partitions:
    then only `total` is compared.
    """
    problems = []
    if staged is not None:
        for key in sorted(staged.keys() | counts.records.keys()):
            in_files, counted = staged.get(key, 0), counts.records.get(key, 0)
            if in_files != counted:
                problems.append(f"{key}: {in_files} records in files, {counted} counted")
    if total != counts.total:
        problems.append(f"{total} records in files, {counts.total} counted")
    _raise(plan, problems)


def check_files(
    plan: WindowPlan,
    counts: IngestCounts,
    stored: Mapping[str, tuple[int, str]],
    others: Sequence[str] = (),
) -> None:
    """Raise `CountMismatch` unless the facts of files fit `plan` and the files in the storage.

    `stored` are size and tag by file name. Facts must name each file once, with its stored size
    and, if both have a tag, the same tag. Their sub-ranges must lie within the ranges that the
    engine reports as read, and account for all rows of the file. `others` are files without facts
    that would be published too: a problem each.
    """
    facts = counts.files or ()
    problems = [f"{name}: no fact describes it" for name in others]
    named = Counter(fact.path for fact in facts)
    problems += [f"{name} is named {times} times" for name, times in named.items() if times > 1]
    for fact in facts:
        size, tag = stored.get(fact.path, (None, ""))
        if size != fact.size:
            problem = "is not there" if size is None else f"has {size} bytes"
            problems.append(f"{fact.path} {problem}, {fact.size} were written")
        elif tag and fact.tag and tag != fact.tag:
            problems.append(f"{fact.path} has other bytes than were written")
        if fact.pieces and sum(rows for *_, rows in fact.pieces) != fact.rows:
            problems.append(f"{fact.path}: its pieces do not have its {fact.rows} rows")
    problems += _piece_problems(counts)
    _raise(plan, problems)


def _piece_problems(counts: IngestCounts) -> list[str]:
    """Return problems of the files' sub-ranges, which must neither overlap nor leave the ranges
    that were read."""
    if counts.pieces is None:
        return []
    read = {key: _joined((a, b) for a, b in parts) for key, parts in counts.pieces.items()}
    written: dict[str, list[tuple[int, int]]] = {}
    for fact in counts.files or ():
        for key, start, end, _ in fact.pieces:
            written.setdefault(key, []).append((start, end))
    problems = []
    for key, pieces in written.items():
        for start, end in _joined(pieces):
            if not any(a <= start and end <= b for a, b in read.get(key, [])):
                problems.append(f"{key}: files have [{start}, {end}), read {read.get(key, [])}")
        for (_, end), (start, _) in pairwise(sorted(pieces)):
            if start < end:
                problems.append(f"{key}: files overlap before offset {end}")
    return problems


def check_marker(marker: Marker, found: Mapping[str, int]) -> None:
    """Raise `SinkDamaged` unless the sink's rows by partition key are those of the marker."""
    published = marker.counts.records
    problems = [
        f"{key}: {found.get(key, 0)} rows in the sink, {published.get(key, 0)} were published"
        for key in sorted(published.keys() | found.keys())
        if found.get(key, 0) != published.get(key, 0)
    ]
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise SinkDamaged(
            f"window {marker.plan.window_id} ({marker.ref}) is no longer what was published; "
            f"restore it, or have it written again (on_clear='rewrite' where the sink can):{lines}"
        )


def _lost_since(space: OffsetSpace, before: IngestCounts, now: IngestCounts) -> list[str]:
    """Return problems of a replacement with fewer records than the published window, because
    retention or a disk error has removed some since."""
    problems = [
        f"{key}: the brokers have lost {lost} offsets, {earlier} when the window was written; it "
        f"is left as it is"
        for key, gaps in now.gaps.items()
        if (lost := _length(space, gaps)) > (earlier := _length(space, before.gaps.get(key, ())))
    ]
    if now.corrupt > before.corrupt:
        problems.append(
            f"{now.corrupt} records are corrupt now, {before.corrupt} were when the window was "
            f"written; it is left as it is"
        )
    return problems


def _length(space: OffsetSpace, gaps: Iterable[Sequence[int]]) -> int:
    """Return the number of index entries in gaps."""
    return sum(space.entries(start, end) for start, end in gaps)


def _tiling_problems(plan: WindowPlan, pieces: Mapping[str, list[list[int]]]) -> list[str]:
    planned: dict[str, list[tuple[int, int]]] = {}
    for range_ in plan.reads():
        planned.setdefault(range_.partition.key, []).append((range_.start, range_.end))
    problems = []
    for key in sorted(planned.keys() | pieces.keys()):
        read = _joined((start, end) for start, end in pieces.get(key, []))
        if read != _joined(planned.get(key, [])):
            problems.append(f"{key}: read {read}, planned {planned.get(key, [])}")
    return problems


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge adjacent ranges. Overlapping ones stay separate, and so never equal a plan."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start == end:
            continue
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _raise(plan: WindowPlan, problems: list[str]) -> None:
    if problems:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        raise CountMismatch(f"window {plan.window_id} of topic {plan.topic!r}:{lines}")


def chain_problems(plans: Iterable[WindowPlan]) -> list[str]:
    """Return breaks in a chain of cursor windows: missing numbers, gaps, overlaps.

    `plans` may come in any order; an empty list means that every window begins where the one
    before it ended.
    """
    ordered = sorted(plans, key=lambda plan: plan.seq or 0)
    problems = []
    for earlier, later in pairwise(ordered):
        if (later.seq or 0) != (earlier.seq or 0) + 1:
            problems.append(f"{later.window_id} follows {earlier.window_id}")
        elif not later.continues(earlier.ends):
            problems.append(
                f"{later.window_id} begins at {later.bases}, {earlier.window_id} ends at "
                f"{earlier.ends}"
            )
    return problems
