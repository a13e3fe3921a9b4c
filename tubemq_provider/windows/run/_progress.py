"""State of one run between its steps: the position it has proven, its plan, its marker.

Private to this package. Decisions that need several of these facts are pure functions here, as are
the texts of refusals, so that the steps stay a list of actions. This module must not do I/O.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from shlex import quote

from tubemq_provider.windows.cursor import Cursor, Position, continue_command, epoch_command
from tubemq_provider.windows.errors import (
    IdentityMismatch,
    MarkerConflict,
    SinkHistoryLost,
    WindowNotReady,
)
from tubemq_provider.windows.plan import (
    WindowKind,
    WindowPlan,
    WindowScope,
    cursor_window_id,
    cursor_window_of,
)
from tubemq_provider.windows.planning.claims import ClaimBook
from tubemq_provider.windows.planning.read_limits import Throughput, entries_by_log
from tubemq_provider.windows.protocols import IngestCounts, Marker, Staging

__all__ = [
    "RECOVERED_LIMIT",
    "RunProgress",
    "appended_before",
    "changed_without_command",
    "claim_stranded",
    "claimed_windows_lost",
    "claims_outdated",
    "cursor_numbers",
    "epoch_unclear",
    "history_lost",
    "is_cursor",
    "other_ranges",
    "rebuild_advice",
    "refuse_edited",
    "same_window",
    "taken_back",
    "time_windows_lost",
    "windows_lost",
]

RECOVERED_LIMIT = 256
"""Most window ids listed under `recovered`. It bounds the document of a group whose events were
all purged."""


@dataclass
class RunProgress:
    """Facts of one run, in the order in which its steps learn them.

    - `position`: end of the published cursor windows, as far as this run has proven it.
    - `announced`: seq of the newest commit event with a position; 0 if there is none.
    - `proven`: next starts by seq, for every point of the chain that this run has read.
    - `replacing`: marker of the window that this run rewrites.
    - `began`, `ended`: times when this try began to read and had published.
    - `past`: epochs of the group that have ended.
    - `absent`: partitions that no broker offers now, with the reason.
    - `unannounced`: neither a cursor nor an event of the group exists.
    - `begun`: this run resolved the group's first position, or the anchors of its logs, and only
      its commit event stores them.
    - `marker`: the sink's marker of `plan`; set once the window is known to be published.
    - `missing`: intervals next to a time window that no published window covers.
    - `noted`: claimed windows of ended runs that this run found published.
    - `seen`: markers of published windows that this run has read, by id.
    - `listed`: numbers of all cursor windows in the sink, if the run has listed them.
    - `unwritten`: id of the window after the position, if the sink had no marker of it.
    """

    position: Position | None = None
    announced: int = 0
    proven: dict[int, Mapping[str, int]] = field(default_factory=dict)
    cursor_missing: bool = False
    plan: WindowPlan | None = None
    staging: Staging | None = None
    counts: IngestCounts | None = None
    marker: Marker | None = None
    replayed: bool = False
    replacing: Marker | None = None
    began: datetime | None = None
    ended: datetime | None = None
    past: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    unannounced: bool = False
    begun: bool = False
    missing: tuple[tuple[datetime, datetime], ...] = ()
    noted: list[str] = field(default_factory=list)
    seen: dict[str, Marker] = field(default_factory=dict)
    listed: set[int] | None = None
    unwritten: str | None = None
    warnings: list[str] = field(default_factory=list)

    def miss(self, absent: Mapping[str, str]) -> None:
        """Record partitions that are left to later runs, each with the reason, and warn."""
        self.absent = absent
        if absent:
            lines = "".join(f"\n  - partition {key}: {reason}" for key, reason in absent.items())
            self.warnings.append(
                f"the window is without these partitions; they keep their place and are read as "
                f"soon as their broker is back:{lines}"
            )

    def reach(self, position: Position) -> None:
        """Set the position: all windows up to it are published."""
        self.position = position
        self.proven[position.seq] = position.next

    def recognise(self, cursor: Cursor, marker: Marker | None) -> None:
        """Accept a cursor that is behind the newest event, if it is an earlier end of the chain.

        Raises `MarkerConflict` if it is not: a user set the cursor, and a later window was accepted
        since. Continuing after that window would discard what the user asked for.
        """
        if marker is not None and marker.plan.ends != cursor.position.next:
            raise MarkerConflict(
                f"the cursor was set by hand after window {cursor.seq}, but windows up to "
                f"{self.announced} were accepted since; set the offsets again, or remove the "
                f"cursor to continue after window {self.announced}"
            )
        self.proven[cursor.seq] = cursor.position.next

    def follow(self, plan: WindowPlan, seq: int) -> None:
        """Step over the published window `seq`. Raises `MarkerConflict` if it does not begin where
        the position ends; the first window may begin anywhere."""
        position = self.position
        if position is not None and position.seq > 0 and not plan.continues(position.next):
            raise MarkerConflict(
                f"the sink holds window {plan.window_id} beginning at {plan.bases}, "
                f"but windows up to {position.seq} end at {dict(position.next)}; offsets were set "
                f"by hand, or data was moved: {_way_on(plan, position)}"
            )
        self.reach(Position(seq, plan.ends, plan.anchors))

    def usable(self, plan: WindowPlan) -> bool:
        """Return True if a stored cursor plan may be used without a query to the sink: it begins at
        the position, or counts as published already (then the marker check decides)."""
        position, seq = self.position, plan.seq
        if position is None or seq is None:
            return True
        return seq <= position.seq or (seq == position.seq + 1 and plan.continues(position.next))

    def arrive(self) -> None:
        """Advance the position over the plan's published window, if that is the next one."""
        plan, position = self.plan, self.position
        if plan is None or position is None or plan.seq != position.seq + 1:
            return
        self.follow(plan, plan.seq)

    def may_advance(self, cursor: Cursor | None) -> bool:
        """Return True if the cursor may move to the position.

        It moves only forward, and only from a point that this run has proven to be on the same
        chain: the plan's start (the usual case), or the end of an earlier window.
        """
        plan, position = self.plan, self.position
        if position is None or plan is None or position.seq < (plan.seq or 0):
            return False
        if cursor is None:
            return True
        proven = self.proven.get(cursor.seq)
        return cursor.seq < position.seq and proven == cursor.position.next

    def ends(self) -> Mapping[str, int] | None:
        """Return the next offset of each partition after this run; None without a window. A replay
        of an earlier window does not move it back."""
        if self.plan is None:
            return None
        return self.plan.ends if self.position is None else self.position.next

    def pace(self) -> Throughput | None:
        """Return the throughput of this run; None if it published nothing or read nothing."""
        if self.plan is None or self.began is None or self.ended is None or not self.plan.entries:
            return None
        took_ms = int((self.ended - self.began).total_seconds() * 1000)
        # Most of the read may have happened before this run.
        elsewhere = 0 if self.counts is None else self.counts.took_ms or 0
        entries = entries_by_log(self.plan.space, self.plan.ranges)
        return Throughput(sum(entries.values()), max(1, took_ms, elsewhere))

    def recovered(self, scope_hash: str) -> tuple[str, ...]:
        """Return ids of published windows without a commit event, without this run's own: the
        newest ones, at most `RECOVERED_LIMIT`."""
        position = self.position
        if position is None:
            return ()
        own = self.plan.window_id if self.plan else None
        first = max(self.announced, position.seq - RECOVERED_LIMIT)
        ids = (cursor_window_id(seq, scope_hash) for seq in range(first + 1, position.seq + 1))
        return tuple(window_id for window_id in (*self.noted, *ids) if window_id != own)


def same_window(mine: WindowPlan, marker: Marker) -> WindowPlan:
    """Return the marker's plan, which replaces `mine` because its window is published.

    Raises `MarkerConflict` if it has other ranges and does not begin where `mine` does, unless it
    is the first window of the chain.
    """
    published = marker.plan
    if published.hash == mine.hash or _begin_alike(published, mine) or mine.seq == 1:
        return published
    way_out = "" if mine.seq else ". Clear this task: it then takes the window that is in the sink"
    raise MarkerConflict(
        f"window {mine.window_id} is in the sink ({marker.ref}) with other ranges: it begins at "
        f"{published.bases}, this plan begins at {mine.bases}; one of the two was planned from "
        f"offsets that were changed since{way_out}"
    )


def _begin_alike(one: WindowPlan, other: WindowPlan) -> bool:
    """Return True if two plans begin at the same offsets. For standalone windows, a partition that
    only one of them has makes no difference if its range there is empty."""
    mine, yours = one.bases, other.bases
    if mine == yours or one.seq is not None:
        return mine == yours
    only = mine.keys() ^ yours.keys()
    return all(
        plan.ranges[key][0] == plan.ranges[key][1]
        for plan in (one, other)
        for key in only & plan.ranges.keys()
    ) and all(mine[key] == yours[key] for key in mine.keys() & yours.keys())


def history_lost(plan: WindowPlan, seq: int, sink: str) -> SinkHistoryLost:
    """Return the refusal to write a window again that counts as published.

    `sink` is the identity of the sink, which has no marker of it."""
    return SinkHistoryLost(
        f"window {plan.window_id} counts as published (all windows up to {seq} are), but {sink} "
        f"has no marker of it, and writing it again could store its records twice.\n"
        f"  - If the table or directory was moved, renamed, recreated or restored from an older "
        f"copy: bring back the one that has the window, and clear this task again.\n"
        f"  - If the window was removed on purpose (retention, a recreated table): leave this "
        f"task as it is. New runs continue after window {seq}.\n"
        f"  - If its records are missing and needed (look for them first): write these "
        f"offsets again as an explicit window, {_as_explicit(plan, plan.ranges)}"
    )


def taken_back(plan: WindowPlan, sink: str) -> SinkHistoryLost:
    """Return the refusal to count a window as written that the sink knows, and whose records are
    not in its present state."""
    return SinkHistoryLost(
        f"window {plan.window_id} was published, and {sink} has gone back to a state without its "
        f"records (a RESTORE, a rollback, a table that was dropped). Nothing was read.\n"
        f"  - Bring back the state that has the window, and clear this task again.\n"
        f"  - Or write its offsets as an explicit window, {_as_explicit(plan, plan.ranges)}"
    )


def _as_explicit(plan: WindowPlan, ranges: Mapping[str, tuple[int, ...]]) -> str:
    """Return how to write `ranges` of a lost window as an explicit one."""
    start, end = (
        json.dumps({plan.topic: {key: pair[side] for key, pair in ranges.items()}})
        for side in (0, 1)
    )
    return (
        f"by the window operator of this source with the same connection, group and sink, "
        f"starting_offsets={start}, ending_offsets={end} and "
        f"policies=IngestPolicies(on_other_scope='start_anew')"
    )


def windows_lost(
    scope: WindowScope,
    position: Position,
    lost: Sequence[str],
    newest: Marker | None,
    begin: Mapping[str, int] | None,
    sink: str,
    *,
    empty: bool,
) -> SinkHistoryLost:
    """Return the refusal to continue after windows that count as published but are not in the sink.

    `newest` is the marker of the group's newest window in the sink; `begin` the offsets after it,
    if it is later than the lost ones. `empty`: the sink has no window of another scope, so that an
    epoch from the beginning of the topic repeats none of an earlier epoch."""
    newest_id = newest.plan.window_id if newest else "none of the group"
    text = (
        f"group {scope.group!r} has its position after window {', '.join(lost)}, which counts as "
        f"published, and {sink} has it no more; its newest window is {newest_id}. Nothing was "
        f"read.\n"
        f"  - If the sink was restored from an older copy, is not mounted, or another one is at "
        f"its place: bring back the one that has the window, and run the task again.\n"
    )
    if newest is not None and begin is not None:
        return SinkHistoryLost(
            f"{text}  - If progress is older than the sink (a restored metadata database), or "
            f"older windows were removed on purpose: continue after {newest_id}: "
            f"{continue_command(newest.plan, begin)}"
        )
    command = f"airflow tubemq offsets set {quote(scope.asset)} --offsets"
    if newest is not None:
        again = f"{command} '{json.dumps(dict(newest.plan.ends))}'"
    elif empty:
        # Should windows come back meanwhile, the epoch begins after them.
        again = epoch_command(scope, cursor_window_id(0, scope.scope_hash))
    else:
        again = f"{epoch_command(scope)} --begin '<where its first window began>'"
    return SinkHistoryLost(
        f"{text}  - If windows were removed on purpose (retention, a bucket that was emptied), "
        f"continue without them: {command} '{json.dumps(dict(position.next))}'\n"
        f"  - To read again what is lost, as far as the topic has it: {again}\n"
        f"With offset_store='events' offsets are set by TubeMQOffsetsOperator(action='set', "
        f"to=<these offsets>, offset_store='events'); in Dagster begin an epoch at them with the "
        f"upkeep job."
    )


def claimed_windows_lost(
    scope: WindowScope, book: ClaimBook, lost: Sequence[str], begin: Mapping[str, int], sink: str
) -> SinkHistoryLost:
    """Return the refusal to continue with claims while published windows are not in the sink.

    The position cannot be set where windows are claimed, so the text advises an epoch and names the
    ranges that it leaves out."""
    plans = [*book.done.values(), *(claim.plan for claim in book.pending.values())]
    ranges = {
        plan.window_id: {key: list(pair) for key, pair in plan.ranges.items()}
        for plan in sorted(plans, key=lambda plan: plan.seq or 0)
        if plan.window_id in lost or plan.window_id in book.pending
    }
    rest = f" ({json.dumps(ranges)} are known)" if ranges else ""
    return SinkHistoryLost(
        f"windows {', '.join(lost)} of group {scope.group!r} count as published, but {sink} no "
        f"longer has them. Nothing was read.\n"
        f"  - If the sink was restored from an older copy, is not mounted, or another one is at "
        f"its place: bring back the one that has the windows, and run the task again.\n"
        f"  - If they were removed on purpose, continue after all windows that are published or "
        f"claimed: {epoch_command(scope)} --begin '{json.dumps(dict(begin))}'. What is missing "
        f"before that, claimed windows among it, is in no window then{rest}: write it as an "
        f"explicit window with on_other_scope='start_anew'"
    )


def claims_outdated(
    scope: WindowScope, book: ClaimBook, unknown: Sequence[str], sink: str
) -> SinkHistoryLost:
    """Return the refusal to continue with claims that are older than windows in the sink."""
    others = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return SinkHistoryLost(
        f"the claims of group {scope.group!r} know windows up to {book.frontier.seq}, but {sink} "
        f"has {unknown[-1]}{others}, which does not follow from them: the claims are older than "
        f"the sink (a restored database), or were planned while it was missing. Nothing was read. "
        f"{rebuild_advice(scope)}"
    )


def rebuild_advice(scope: WindowScope) -> str:
    """Return advice for claims that are older than the published windows."""
    return (
        f"Rebuild a ledger with: airflow tubemq offsets rebuild {quote(scope.asset)} --sink "
        f"<the task's sink>. Of claims in a directory, remove claims.json while no run of the "
        f"group is active: the next run follows the sink's windows, and plans again what was "
        f"claimed and never written"
    )


def time_windows_lost(scope: WindowScope, accepted: str, sink: str) -> SinkHistoryLost:
    """Return the refusal to write a time window into a sink that has lost its group's windows."""
    return SinkHistoryLost(
        f"window {accepted} of group {scope.group!r} was accepted, and {sink} has neither it nor "
        f"another window of the group. Nothing was read.\n"
        f"  - If the sink was restored from an older copy, is not mounted, or another one is at "
        f"its place: bring back the one that has the windows, and run the task again.\n"
        f"  - If all windows were removed on purpose: clear the tasks whose windows are to be "
        f"written again, or begin an epoch: {epoch_command(scope)} --begin <offsets>"
    )


def other_ranges(
    plan: WindowPlan, accepted: Mapping[str, tuple[int, ...]], sink: str
) -> SinkHistoryLost:
    """Return the refusal to write other offsets under the id of an accepted window that the sink
    has lost."""
    return SinkHistoryLost(
        f"window {plan.window_id} was accepted with offsets {dict(accepted)}, {sink} no longer has "
        f"it, and its boundaries now resolve to {dict(plan.ranges)}: the windows next to it would "
        f"share records with it, or leave some out.\n"
        f"  - Bring back the copy of the sink that has the window, and run the task again.\n"
        f"  - Or write its offsets as an explicit window, {_as_explicit(plan, accepted)}"
    )


def changed_without_command(
    scope: WindowScope, position: Position, marker: Marker
) -> MarkerConflict:
    """Return the refusal of a position that no command has set, and that is not the end of its
    window."""
    asset = quote(scope.asset)
    command = f"airflow tubemq offsets set {asset} --offsets"
    return MarkerConflict(
        f"group {scope.group!r} is at {dict(position.next)} after window "
        f"{marker.plan.window_id}, which ends at {marker.plan.ends} in the sink ({marker.ref}): "
        f"the cursor was edited, or sink and progress are copies of different times. To continue "
        f"at the end of that window: {command} '{json.dumps(dict(marker.plan.ends))}'. To continue "
        f"at the cursor: {command} '{json.dumps(dict(position.next))}'"
    )


def appended_before(plan: WindowPlan, kind: str) -> SinkHistoryLost:
    """Return the refusal to append a window again for a cleared task."""
    return SinkHistoryLost(
        f"the task was cleared, and the {kind} sink cannot tell whether window {plan.window_id} "
        f"was appended before; its records could be there twice. If they are not there, or are to "
        f"come twice, start a new run for the same interval or offsets instead of clearing this one"
    )


def topic_unavailable(scope: WindowScope) -> WindowNotReady:
    """Return the error for a topic that the servers do not know but the group has read."""
    return WindowNotReady(
        f"no broker of topic {scope.topic!r} is registered now (or none that lets it be read), and "
        f"group {scope.group!r} has read it before: the window waits for them. Servers forget a "
        f"broker while it restarts; if the topic was deleted, end the task"
    )


def cursor_numbers(window_ids: Iterable[str], scope_hash: str) -> Iterator[int]:
    """Yield the numbers of those ids that are cursor windows of the scope."""
    for window_id in window_ids:
        parsed = cursor_window_of(window_id)
        if parsed is not None and parsed[1] == scope_hash:
            yield parsed[0]


def epoch_unclear(
    scope: WindowScope, newest: str, missing: str, begin: Mapping[str, int]
) -> SinkHistoryLost:
    """Return the refusal of an epoch that was decided before the latest windows of the previous
    epoch were published, of which one is missing."""
    return SinkHistoryLost(
        f"epoch {scope.epoch!r} of group {scope.group!r} was begun on an error that is out of "
        f"date: {newest} was published since, and {missing} before it was not, so that neither the "
        f"logs' beginning nor the end of that window is where the epoch begins. Write what "
        f"{missing} left out before it as an explicit window with on_other_scope='start_anew', and "
        f"begin another one where you want it, e.g. behind that window: {epoch_command(scope)} "
        f"--begin '{json.dumps(dict(begin))}'"
    )


def claim_stranded(
    scope: WindowScope, claim: WindowPlan, lost: Sequence[str], begin: Mapping[str, int]
) -> SinkHistoryLost:
    """Return the refusal to leave behind a claim that can never be written while records of the
    recreated logs may be in no window."""
    ranges = {key: list(claim.ranges[key]) for key in lost}
    return SinkHistoryLost(
        f"window {claim.window_id} was claimed and never written, and its logs were recreated "
        f"since (partitions {', '.join(lost)}). No later window restarted there: the ledger that "
        f"had one is lost. Records of the present logs at its offsets, {ranges}, and before, "
        f"may be in no window: look, and write what is missing as an explicit window with "
        f"on_other_scope='start_anew'. Then continue after the newest one: {epoch_command(scope)} "
        f"--begin '{json.dumps(dict(begin))}'"
    )


def _way_on(plan: WindowPlan, position: Position) -> str:
    """Return advice for a position that is not the beginning of the next published window."""
    if position.next.keys() <= plan.bases.keys():
        asset = quote(plan.scope_in("").asset)
        return (
            f"set the position to the beginning of that window, from where it is followed: airflow "
            f"tubemq offsets set {asset} --offsets '{json.dumps(dict(plan.bases))}'"
        )
    # A set position has to name all partitions of the position before it.
    return (
        f"that window is from before the position had all of its partitions, so none can be set "
        f"that leads to it; continue where the position is, and read again what that window has "
        f"from there: {continue_command(plan, position.next)}"
    )


def refuse_edited(plan: WindowPlan, scope: WindowScope, *, chained: bool) -> None:
    """Raise `IdentityMismatch` if an earlier try of the task has planned `plan` for another sink,
    group, filter set or epoch than `scope` has: it may have published it there.

    For `chained` windows a new epoch is no such edit: error texts advise it, and it begins behind
    what is published."""
    present = replace(scope, epoch=plan.epoch) if chained else scope
    if present.scope_hash == plan.scope_hash:
        return
    differs = [
        f"{name} {was!r}, now {now!r}"
        for name in ("cluster", "topic", "group", "filters", "epoch")
        if (was := getattr(plan, name)) != (now := getattr(present, name))
    ]
    how = f"with {'; '.join(differs)}" if differs else f"for another sink than {scope.sink}"
    way_on = (
        "fail this run and trigger a new one: nothing keeps the new run from storing the same "
        "records in the new place"
        if chained
        else "clear the task: nothing keeps it from storing the same records in the new place"
    )
    raise IdentityMismatch(
        f"an earlier try of this task has planned window {plan.window_id} {how}, and may have "
        f"published it there: its records would be written a second time. Set the task's arguments "
        f"back as they were, and let this run finish; then change them. To leave that window as it "
        f"is and begin with the arguments of now, {way_on}"
    )


def is_cursor(plan: WindowPlan) -> bool:
    """Return True if the plan belongs to the chain of cursor windows."""
    return plan.kind is WindowKind.CURSOR
