"""`TubeMQOffsetsOperator`: show, set or mirror a group's progress in a Dag.

Does as a task what ``airflow tubemq offsets`` does by hand: with the Dag's history, its permissions
and a log entry for each change. Only a task that declares the group's offsets asset can change its
progress, so Airflow shows on the asset which tasks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from airflow.sdk import BaseOperator
from pydantic import BeforeValidator, Field

from tubemq_client.errors import ConfigError, NetworkError
from tubemq_provider._airflow import AirflowFailException
from tubemq_provider.assets import declared, offsets_asset, without
from tubemq_provider.hooks.by_kind import hook_class
from tubemq_provider.hooks.failures import ErrorContext, fatal_errors_fail_the_task
from tubemq_provider.hooks.metrics import gauge_group
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.arguments import InitialPosition
from tubemq_provider.links import TubeMQOffsetsLink, TubeMQTopicLink
from tubemq_provider.offsets.position_reset import moved, moved_event, named_offsets, standing
from tubemq_provider.offsets.registry import (
    StoreName,
    TaskStore,
    refuse_other_store,
    store_for,
)
from tubemq_provider.operators.clear_detection import most_tries, run_clears
from tubemq_provider.rendered import RefusesEmptyRendering
from tubemq_provider.task_arguments import (
    ClusterAlias,
    SourceGroup,
    SourceTopic,
    TaskArguments,
    blank_is_none,
    check_literals,
    is_mapped,
    offsets_for_topic,
    parse,
)
from tubemq_provider.windows.cursor import is_by_hand, newer_position
from tubemq_provider.windows.lag import lag_between
from tubemq_provider.windows.plan import named_group
from tubemq_provider.windows.planning.retention import away_of
from tubemq_provider.windows.protocols import ClaimStore, Document
from tubemq_provider.windows.spaces import FIRST_SOURCE, OffsetSpace, space_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tubemq_provider.windows.spaces import Ends


__all__ = ["TubeMQOffsetsOperator"]

Action = Literal["show", "set", "mirror"]

_MOVED: Final = "tubemq_moved"
"""Task state: the change that this task was about to make, by which a retry detects it."""


class OffsetsArguments(TaskArguments):
    """Arguments of `TubeMQOffsetsOperator`."""

    source: str = FIRST_SOURCE
    topic: SourceTopic
    group: SourceGroup
    cluster: ClusterAlias
    action: Action = "show"
    to: InitialPosition = None
    fail_above: Annotated[int | None, BeforeValidator(blank_is_none)] = Field(None, ge=0)
    dry_run: bool = False
    offset_store: StoreName = "asset_state"

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """Return what an action lacks, and arguments without effect on it."""
        if unknown & {"action", "to", "source"}:
            return []
        if self.action == "mirror" and self.source != FIRST_SOURCE:
            way = (
                "commit_to_broker=True of the ingest task commits at brokers, where its source does"
            )
            return [f"action='mirror' is not available for {self.source}; {way}"]
        if (self.action == "set") != (self.to is not None):
            needs = "needs to=" if self.action == "set" else "takes no to="
            return [f"action={self.action!r} {needs}'earliest', 'stable' or offsets"]
        if self.dry_run and self.action == "show":
            return ["dry_run has no effect with action='show'"]
        if (self.action, self.offset_store) == ("set", "events") and self.fail_above is not None:
            return ["fail_above: with offset_store='events' a task that fails has moved nothing"]
        return []


class TubeMQOffsetsOperator(RefusesEmptyRendering, BaseOperator):
    """Show, set or mirror the progress of `group` on `topic`.

    ``show`` reports position and lag. ``set`` moves the position: the next window begins there, and
    records between are read again, or skipped. Running tasks keep the plan they have, so stop them
    first. ``mirror`` commits the position as the group's offsets at the brokers, for TubeMQ's own
    dashboards.

    :param topic: topic of the group. Names an asset, so no template; so do `group` and `cluster`.
    :param group: group that the progress belongs to.
    :param action: ``show``, ``set`` or ``mirror``.
    :param to: for ``set``: ``earliest``, ``stable`` (the end on the brokers' disks) or offsets of
        every partition, ``{"1:0": 2800}``, also as JSON.
    :param fail_above: fail the task, after the action, if the lag is more than this many index
        entries: an alert for Airflow's callbacks and notifiers.
    :param dry_run: report the change without making it.
    :param offset_store: where the ingest tasks keep progress, as in their argument; ``set`` refuses
        another one, where it would have no effect. With ``events`` the event of this task moves
        the group, so only once the task has succeeded.
    :param tubemq_conn_id: the connection.
    :param cluster: the connection's cluster alias; needed where that is not the connection id.
    :param source: kind of the topic, built in or a plug-in's.

    A mapped task needs ``inlets=[a], outlets=[a]`` in its ``.partial()``.

    The task emits an event of the offsets asset only if it has moved the group. A retry detects
    that
    an earlier try has moved it, and fails if another task has moved it since; a cleared task moves
    it again.

    Of a broker that does not answer only the partitions are affected: ``show`` and ``mirror`` leave
    them out, of the lag too, and log a warning; so does ``mirror`` with partitions that the topic
    no longer has. ``set`` needs every broker.

    XCom: ``{"asset", "action", "before", "after", "lag", "changed", "away"}``; offsets by
    partition, left out beyond 1 000 partitions.
    """

    template_fields: Sequence[str] = ("action", "to", "fail_above", "tubemq_conn_id")
    template_fields_renderers = {"to": "json"}  # noqa: RUF012 - Airflow's declaration
    ui_color = "#e6e0f2"
    operator_extra_links = (TubeMQOffsetsLink(), TubeMQTopicLink())
    admin_url: str | None = None

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        action: str = "show",
        to: Mapping[str, Any] | str | None = None,
        fail_above: int | str | None = None,
        dry_run: bool = False,
        offset_store: str = "asset_state",
        tubemq_conn_id: str = TubeMQHook.default_conn_name,
        cluster: str | None = None,
        source: str = FIRST_SOURCE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        space_of(source)
        self.source = source
        self.topic, self.group, self.cluster = topic, group, cluster or tubemq_conn_id
        self.action = action
        self.to = to
        self.fail_above = fail_above
        self.dry_run_only = dry_run
        self.offset_store = offset_store
        self.tubemq_conn_id = tubemq_conn_id
        names = ("source", "topic", "group", "cluster")
        static = dict.fromkeys(names, "it names the offsets asset")
        static |= dict.fromkeys(("dry_run", "offset_store"), "it decides how the task is set up")
        check_literals(OffsetsArguments, self._arguments(), static=static, task=self)
        self.offsets_asset = offsets_asset(self.cluster, topic, group, source)
        if not is_mapped(self):
            asset = [self.offsets_asset]
            self.inlets = [*self.inlets, *(a for a in asset if not declared(a, self.inlets))]
            self.outlets = [*self.outlets, *(a for a in asset if not declared(a, self.outlets))]

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the action and report position and lag."""
        named = named_group(self.source, self.cluster, self.topic, self.group)
        show = f"airflow tubemq offsets show {named}"
        about = ErrorContext(self.tubemq_conn_id, self.topic, self.group, show)
        with fatal_errors_fail_the_task(self.log, about=about):
            arguments = parse(OffsetsArguments, self._arguments())
            hook = self._hook()
            hook.expect_cluster(arguments.cluster)
            self.admin_url = hook.admin_url
            store = store_for(arguments.offset_store, context, self.offsets_asset)
            # Keywords in `to` resolve only with every broker; showing works without some.
            every = arguments.action == "set"
            look = hook.ends if every and self.source == FIRST_SOURCE else hook.reachable_ends
            ends = look(arguments.topic, arguments.group, stable=True)
            unavailable = dict(away_of(ends))
            if every and unavailable:
                raise NetworkError(f"not all brokers answer: {'; '.join(unavailable.values())}")
            if arguments.action == "set":
                before, after, by_hand = self._set(context, arguments, store, ends)
            else:
                before = after = _position(store)
                by_hand = True
            if arguments.action == "mirror" and not arguments.dry_run and before:
                refused = hook.mirror_group_offsets(
                    arguments.topic,
                    arguments.group,
                    self._by_partition({k: v for k, v in before.items() if k not in unavailable}),
                )
                unavailable |= {partition.key: reason for partition, reason in refused.items()}
        for key, reason in unavailable.items():
            self.log.warning("partition %s is left out: %s", key, reason)
        report = self._judged(arguments, before, after, ends, unavailable)
        if arguments.offset_store == "events" and not (by_hand or arguments.dry_run):
            # With this store, only the event keeps that the position was set by hand.
            report["changed"] = True
        if not report["changed"]:
            # Only a change emits an event; an alert task would emit one every minute.
            task: Any = context["ti"].task
            task.outlets = without(task.outlets, self.offsets_asset)
        return report

    def _judged(
        self,
        arguments: OffsetsArguments,
        before: Mapping[str, int],
        after: Mapping[str, int],
        ends: Mapping[Any, Ends],
        unavailable: Iterable[str],
    ) -> dict[str, Any]:
        """Return the report. Raises `AirflowFailException` if the lag is beyond the limit."""
        lag = lag_between(ends, self._by_partition(after), self._space).total
        self.log.info("%s of %s: %s -> %s", self.action, self.offsets_asset.name, before, after)
        gauge_group(arguments.cluster, arguments.topic, arguments.group, lag=lag)
        if arguments.fail_above is not None and lag > arguments.fail_above:
            raise AirflowFailException(
                f"group {arguments.group!r} is {lag} index entries behind on topic "
                f"{arguments.topic!r}; the limit is {arguments.fail_above}"
            )
        return {
            "asset": self.offsets_asset.name,
            "action": arguments.action,
            "before": _shown(before),
            "after": _shown(after),
            "lag": lag,
            "changed": after != before and not arguments.dry_run,
            "away": list(unavailable),
        }

    def _hook(self) -> Any:
        kind: Any = hook_class(self.source)
        return kind(self.tubemq_conn_id)

    def _arguments(self) -> dict[str, Any]:
        values = {name: getattr(self, name, None) for name in OffsetsArguments.model_fields}
        return {**values, "dry_run": self.dry_run_only}

    @property
    def _space(self) -> OffsetSpace:
        return space_of(self.source)

    def _by_partition(self, position: Mapping[str, int]) -> dict[Any, int]:
        return {self._space.partition(self.topic, key): at for key, at in position.items()}

    def _set(
        self,
        context: Context,
        arguments: OffsetsArguments,
        store: TaskStore,
        ends: Mapping[Any, Ends],
    ) -> tuple[dict[str, int], dict[str, int], bool]:
        """Return the position before and after, and if the one before was set by hand."""
        refuse_other_store(arguments.offset_store, context, self.offsets_asset)
        stored, event = store.load_cursor(), store.newest_position()
        cursor = standing(stored, event, self.offsets_asset.name, self._space)
        before = dict(cursor.get("next", {}))
        note = _Note.of(context, wanted=not arguments.dry_run)
        if note.tells_of(cursor, store.writer):
            self.log.info("an earlier try has moved the group already")
            self._emit_event(store, cursor, event)
            return dict(note.before), before, False
        resolved = _resolved(arguments, ends, before)
        offsets = named_offsets(resolved, before, self._space, subject="to")

        def change(stored_now: Document | None) -> Document:
            base, now = stored_now or cursor, datetime.now(UTC)
            document = moved(base, event, offsets, by=store.writer, now=now)
            note.keep(document, _shown(before))
            return document

        document = change(None)
        if not arguments.dry_run:
            if isinstance(store, ClaimStore):
                document = store.change_cursor(change) or document
            else:
                store.store_cursor(document)
            self._emit_event(store, document, event)
        return before, dict(document["next"]), is_by_hand(cursor)

    @staticmethod
    def _emit_event(store: TaskStore, cursor: Document, event: Document | None) -> None:
        if (moved_to := moved_event(cursor, event)) is not None:
            store.emit(moved_to)


class _Note:
    """Task state with the change that a try is about to make, by which a retry detects it.

    A cleared task makes the change again.
    """

    def __init__(self, state: Any, clears: Mapping[str, int | None]) -> None:
        self._state = state
        self._clears = clears
        noted: Mapping[str, Any] = (state.get(_MOVED) if state is not None else None) or {}
        # Earlier releases stored no number of tries.
        same = all(noted.get(name, n) == n for name, n in clears.items())
        self._found = noted if same else {}

    @classmethod
    def of(cls, context: Context, *, wanted: bool) -> _Note:
        """Return the note of an earlier try; without effect unless `wanted` and Airflow keeps
        task state."""
        clears = {"cleared": run_clears(context), "tries": most_tries(context)}
        return cls(context.get("task_state_store") if wanted else None, clears)

    @property
    def before(self) -> Mapping[str, int]:
        """The position before the change."""
        before: Mapping[str, int] = self._found["before"]
        return before

    def tells_of(self, cursor: Document, writer: str) -> bool:
        """Return True if the noted change led to `cursor`. Raises `ConfigError` as `_is_made`."""
        return bool(self._found) and _is_made(self._found, cursor, writer)

    def keep(self, document: Document, before: Mapping[str, int]) -> None:
        """Note that `document` is about to be stored."""
        if self._state is not None:
            about = {"rev": document["rev"], "updated": document["updated"]}
            self._state.set(_MOVED, {**about, **self._clears, "before": dict(before)})


def _is_made(note: Mapping[str, Any], cursor: Document, writer: str) -> bool:
    """Return True if `cursor` is the result of the change in `note`.

    Raises `ConfigError` if the group has moved since: it is unknown whether the change was made
    before that, and making it again would undo the others' progress.
    """
    rev = int(cursor.get("rev", 0))
    if rev == note["rev"] - 1:
        return False
    if (rev, cursor.get("updated"), cursor.get("by")) == (note["rev"], note["updated"], writer):
        return True
    raise ConfigError(
        f"an earlier try of this task was about to move the group, or has, and then "
        f"{cursor.get('by')} moved it; see where it stands, and clear this task to move it again",
        subject="set",
    )


def _position(store: TaskStore) -> dict[str, int]:
    newest = newer_position(store.load_cursor(), store.newest_position())
    return dict((newest or {}).get("next", {}))


def _resolved(
    arguments: OffsetsArguments,
    ends: Mapping[Any, Ends],
    current: Mapping[str, int],
) -> dict[str, Any]:
    """Return offsets for keywords; partitions that no broker offers keep theirs."""
    by_key = {partition.key: ends_there for partition, ends_there in ends.items()}
    target = arguments.to or {}
    named = (
        dict.fromkeys({**current, **by_key}, target)
        if isinstance(target, str)
        else offsets_for_topic(
            target, arguments.topic, "to", allow_keywords=True, source=arguments.source
        )
    )
    offsets: dict[str, Any] = {}
    for key, value in named.items():
        end = by_key.get(key)
        if not isinstance(value, str):
            offsets[key] = value
        elif end is not None:
            offsets[key] = end.min_offset if value == "earliest" else end.max_offset
        elif key in current:
            offsets[key] = current[key]
    return offsets


def _shown(position: Mapping[str, int]) -> dict[str, int]:
    return dict(position) if len(position) <= 1_000 else {}
