"""Protection against a new scope that would store records which another scope has stored.

Windows of two scopes never share an id, so the markers of one do not protect the other. A renamed
connection, another alias of the cluster or other filters create a new scope: its first window would
begin again, in a sink that has the records already. So before a scope's first window the sink is
searched for others: one listing, and a marker per scope found. Later windows cost nothing.

Decides by ids and markers alone and must not import airflow, pyspark or pyarrow. Windows that a
sink cannot list are not found: see docs/sinks.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tubemq_provider.windows.errors import OtherScopeFound
from tubemq_provider.windows.plan import WindowKind, WindowPlan, WindowScope
from tubemq_provider.windows.planning.published import MarkedWindows

__all__ = [
    "EXPLICIT_LOOKS",
    "one_of_each_scope",
    "refuse_other_scopes",
    "refuse_stored",
    "scope_in",
]

EXPLICIT_LOOKS: Final = 8
"""Most markers of explicit windows that are read, since their ids do not name the scope."""


def refuse_other_scopes(sink: MarkedWindows, scope: WindowScope, *, cursor: bool) -> Iterator[str]:
    """Raise `OtherScopeFound` if `sink` has windows of the same topic that may hold the same
    records, and none of `scope` itself.

    For the first window of a `cursor`, time and explicit windows of the same scope count as others
    too. Yields after every action, for a window run."""
    ids = list(sink.window_ids())
    yield "scopes listed"
    own = (
        _cursor_windows(ids, scope.scope_hash)
        if cursor
        else any(id_.endswith(scope.scope_hash) and _of(id_, scope) for id_ in ids)
    )
    if own:
        return
    looks = one_of_each_scope(ids)
    others: list[WindowPlan] = []
    accepted_before = False
    for window_id in looks:
        marker = sink.marker(window_id)
        yield "marker of other scope read"
        if marker is None:
            continue
        if marker.plan.scope_hash == scope.scope_hash and not cursor:
            return
        accepted_before = accepted_before or _is_earlier_epoch(marker.plan, scope)
        if _may_share_records(marker.plan, scope):
            others.append(marker.plan)
    if accepted_before:
        # An earlier epoch of the group has windows here: the user accepted the others then.
        others = [plan for plan in others if plan.scope_hash == scope.scope_hash]
    if others:
        raise OtherScopeFound(_refusal(sink, scope, others[0]), scope, others[0])


def refuse_stored(
    sink: MarkedWindows, scope: WindowScope, plan: WindowPlan, compared: set[str]
) -> Iterator[str]:
    """Raise `OtherScopeFound` if the standalone `plan` would store records that another window of
    the same scope stores.

    A cursor stores, or will store, everything from the start of its first window. Explicit windows
    are compared by their ranges, and so are time windows if `plan` is explicit (boundaries keep
    time windows disjoint). Windows in `compared` are skipped, and compared ones added to it. Yields
    like `refuse_other_scopes`."""
    if not plan.entries:
        return
    ids = list(sink.window_ids())
    yield "windows of the scope listed"
    cursor = _cursor_windows(ids, scope.scope_hash)
    looks = [cursor[min(cursor)]] if cursor else []
    looks += [id_ for id_ in ids if id_.startswith("x-")]
    if plan.kind is WindowKind.EXPLICIT:
        looks += [id_ for id_ in ids if id_.startswith("t-") and _of(id_, scope)]
    for window_id in looks:
        if window_id in compared or window_id == plan.window_id:
            continue
        marker = sink.marker(window_id)
        compared.add(window_id)
        yield "window of the scope read"
        if marker is not None and marker.plan.scope_hash == scope.scope_hash:
            _refuse_shared(scope, plan, marker.plan)


def _refuse_shared(scope: WindowScope, plan: WindowPlan, other: WindowPlan) -> None:
    if other.kind is WindowKind.CURSOR:
        begins = other.bases
        both = [
            key
            for key, (start, end) in plan.ranges.items()
            if start < end and end > begins.get(key, 0)
        ]
        text = _beside(scope, plan, other, both)
    else:
        shared = {
            key: [low, high]
            for key, (start, end) in plan.ranges.items()
            if (low := max(start, other.ranges.get(key, (0, 0))[0]))
            < (high := min(end, other.ranges.get(key, (0, 0))[1]))
        }
        both = list(shared)
        text = (
            f"window {plan.window_id} would store records again that window {other.window_id} of "
            f"the same group has stored: offsets {shared}. Give offsets that no window has, or "
            f"take another group and another sink; on_other_scope='start_anew' stores them beside"
        )
    if both:
        raise OtherScopeFound(text, scope, other)


def _of(window_id: str, scope: WindowScope) -> bool:
    return scope_in(window_id) == scope.scope_hash


def _cursor_windows(window_ids: Iterable[str], scope_hash: str) -> dict[int, str]:
    by_number = {}
    for window_id in (name for name in window_ids if name.startswith("c-")):
        number, _, own = window_id.removeprefix("c-").partition("-")
        if own == scope_hash and number.isdecimal():
            by_number[int(number)] = window_id
    return by_number


def _beside(scope: WindowScope, plan: WindowPlan, first: WindowPlan, keys: list[str]) -> str:
    begins = {key: first.bases.get(key, 0) for key in keys}
    return (
        f"window {plan.window_id} would store records of partitions {', '.join(keys)} that the "
        f"cursor of group {scope.group!r} stores in the same sink: its windows hold, or will hold, "
        f"everything from {begins} on. One group in one sink is one history: nothing is to be "
        f"backfilled there. Older records can be taken up to these offsets; for another copy take "
        f"another group and another sink; on_other_scope='start_anew' stores them beside"
    )


def one_of_each_scope(window_ids: Iterable[str]) -> list[str]:
    """Return some explicit windows, then one window of every scope that ids name."""
    by_scope: dict[str, str] = {}
    explicit: list[str] = []
    for window_id in window_ids:
        scope_hash = scope_in(window_id)
        if scope_hash is not None:
            by_scope.setdefault(scope_hash, window_id)
        elif window_id.startswith("x-"):
            explicit.append(window_id)
    return [*sorted(explicit)[:EXPLICIT_LOOKS], *sorted(by_scope.values())]


def scope_in(window_id: str) -> str | None:
    """Return the scope hash in the id of a cursor or time window; None for another id."""
    kind, _, rest = window_id.partition("-")
    return rest.rpartition("-")[2] if kind in {"c", "t"} and "-" in rest else None


def _may_share_records(plan: WindowPlan, scope: WindowScope) -> bool:
    """Return True if the windows of a plan and of a scope may have records in common.

    They have none if the filters are disjoint, or if they are of different epochs of one group.
    Epochs of different groups are not comparable."""
    if plan.topic != scope.topic or (_same_group(plan, scope) and plan.epoch != scope.epoch):
        return False
    apart = plan.filters and scope.filters and not set(plan.filters) & set(scope.filters)
    return not apart


def _same_group(plan: WindowPlan, scope: WindowScope) -> bool:
    return (plan.cluster, plan.topic, plan.group) == (scope.cluster, scope.topic, scope.group)


def _is_earlier_epoch(plan: WindowPlan, scope: WindowScope) -> bool:
    """Return True if a window is of another epoch of `scope`."""
    return _same_group(plan, scope) and plan.epoch != scope.epoch and plan.filters == scope.filters


def _refusal(sink: MarkedWindows, scope: WindowScope, other: WindowPlan) -> str:
    differences, hints = [], []
    if other.cluster != scope.cluster:
        differences.append(f"cluster {other.cluster!r} (this run: {scope.cluster!r})")
        hints.append(
            f"if it is the same cluster under a new name, set cluster={other.cluster!r} in the "
            f"connection and the task to continue there"
        )
    if other.group != scope.group:
        differences.append(f"group {other.group!r} (this run: {scope.group!r})")
        hints.append(
            f"if the group was renamed, name it group={other.group!r} as before; another group "
            f"takes another sink"
        )
    if other.epoch != scope.epoch:
        differences.append(f"epoch {other.epoch!r} (this run: {scope.epoch!r})")
    if other.filters != scope.filters:
        differences.append(f"filters {list(other.filters)} (this run: {list(scope.filters)})")
        hints.append("for other filters take another group, or another sink")
    if other.scope_hash == scope.scope_hash:
        differences.append("not of its cursor")
        hints.append(
            "continue in mode='time', or let the cursor begin where those windows end "
            "(initial_position as offsets, with on_other_scope='start_anew')"
        )
    if not differences:
        differences.append("another name of this sink")
        hints.append("name the sink as before (a moved directory by a link at its old path)")
    return (
        f"sink {sink.identity} has windows of topic {scope.topic!r} "
        f"under another scope: {', '.join(differences)}; {other.window_id} is one of them. This "
        f"scope has none, and its first window could store their records again. To choose: "
        f"{'; '.join(hints)}; to begin anew beside them, set on_other_scope='start_anew'"
    )
