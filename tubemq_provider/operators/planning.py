"""`TubeMQPlanWindowOperator` and `TubeMQCommitWindowOperator`: your own tasks between two of ours.

The first freezes which offsets the next window is, the second notes that it is done and moves the
progress. What is between reads exactly those offsets, by its own means: Spark, pandas, another
service. If it fails, or the Dag run dies, the next one is given the same window: so set
``max_active_runs=1``, or ``offset_store="ledger"``, with which each run has its own until it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider._airflow import AirflowSkipException, DownstreamTasksSkipped
from tubemq_provider.assets import sink_asset, without
from tubemq_provider.hooks.failures import fatal_errors_fail_the_task
from tubemq_provider.hooks.metrics import count_window
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.operators.announce import announce
from tubemq_provider.operators.consume import TAKEN, TubeMQWindowOperator
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.spaces import space_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tubemq_provider.ingest.job import IngestJob
    from tubemq_provider.offsets.registry import TaskStore
    from tubemq_provider.windows.run.result import WindowResult

__all__ = ["TubeMQCommitWindowOperator", "TubeMQPlanWindowOperator"]

_SHOWN: Final = 1_000
"""XCom has the ranges of at most this many partitions; more do not fit."""

_RUN_ANYWAY: Final = ("all_done", "always", "none_failed")
"""Trigger rules of tasks that a skipped task keeps from nothing."""


class TubeMQPlanWindowOperator(TubeMQWindowOperator):
    """Freeze the next window of `group`, and say which offsets it is.

    Arguments are those of `TubeMQWindowOperator`. With nothing to read the task is skipped, and
    what comes after it; likewise if the window is done already. `skip_if_empty=False` makes it a
    success with ``window_id`` None. Where the group begins is remembered also then. A window
    without entries, as `gap_policy` and `on_offset_regression` leave them, is finished here, and
    the one behind it is planned; one of time that is empty is finished, and then nothing is left.
    Where there is nothing behind one that tells of lost records or a reset, the task is a success,
    as an event must say so, and what comes after it is skipped.

    XCom: ``{"window_id", "hash", "topic", "group", "start", "end", "entries", "partitions",
    "ranges": {"1:0": [0, 2800]}, "starting_offsets", "ending_offsets"}``: ranges are half open,
    `entries` an upper bound on records; the last two are what the Spark source takes under these
    names. Above 1 000 partitions the task fails: let `TubeMQConsumeOperator` or
    ``@task.tubemq_window`` read such a window.
    """

    ui_color = "#e6e0f2"

    def __init__(self, *, skip_if_empty: bool = True, **kwargs: Any) -> None:
        super().__init__(skip_if_empty=skip_if_empty, **kwargs)
        if self.offset_store == "events":
            raise ConfigError(
                "offset_store='events' keeps no plan between two tasks; use asset_state or ledger",
                subject="arguments",
            )

    def execute(self, context: Context) -> dict[str, Any]:
        """Take the steps that read nothing."""
        failing = fatal_errors_fail_the_task(self.log, about=self._whereabouts())
        with failing, ExitStack() as stack:
            arguments, store, job = self._opened(context, stack)
            narrator = job.narrator(self.log)
            plan, marker, finished = job.plan(
                store,
                attempt=str(context["ti"].id),
                serialised=self._serialised,
                observer=self.observer(context, narrator),
            )
            document = _document(plan)
        self._tell(context, arguments, finished)
        if arguments.skip_if_empty and (plan is None or not plan.entries or marker is not None):
            why = (
                "there is nothing to read"
                if plan is None or not plan.entries
                else f"window {plan.window_id} is done already"
            )
            told = any(result.has_news for result in finished)
            if told and context["ti"].map_index in (None, -1):
                # Airflow drops the events of a skipped task.
                self.log.info("%s: what comes after this task is skipped", why)
                skip: Any = DownstreamTasksSkipped
                raise skip(tasks=_not_to_run(context))
            raise AirflowSkipException(why)
        self.log.info("window %s: at most %s records", document["window_id"], document["entries"])
        return document

    def _tell(
        self, context: Context, arguments: IngestArguments, finished: Sequence[WindowResult]
    ) -> None:
        """Of the planned window nothing is accepted yet: the task that commits has its events. This
        one has those of windows without entries, which it has finished."""
        task: Any = context["ti"].task
        sink = sink_asset(arguments.destination)
        if not finished:
            for ours in (self.offsets_asset, sink):
                task.outlets = without(task.outlets, ours)
            return
        for result in finished:
            count_window(result, arguments.cluster, space_of(self.source))
            self._report(result, context)
        # The first one knows what runs that died have left.
        replayed = arguments.emit_replayed
        announce(context, sink, self.offsets_asset, finished[0], emit_replayed=replayed)

    def committed(
        self, *, records: Any, task_id: str = "commit", **kwargs: Any
    ) -> TubeMQCommitWindowOperator:
        """The task that commits this one's windows, with the same arguments; see
        `TubeMQCommitWindowOperator` for `records`."""
        left_out = (TAKEN - {"sink"}) | {"skip_if_empty", "source"}
        same = {n: getattr(self, n) for n in IngestArguments.model_fields if n not in left_out}
        same["tubemq_conn_id"] = self.tubemq_conn_id
        return TubeMQCommitWindowOperator(
            task_id=task_id, plan=self.output, records=records, **{**same, **kwargs}
        )


class TubeMQCommitWindowOperator(TubeMQWindowOperator):
    """Note that a planned window is done, and move the progress of `group`.

    :param plan: XCom of the planning task: ``plan_task.output``.
    :param records: how many records were read of each partition, ``{"1:0": 100}``, as the tasks
        between have counted them; held against the plan. Partitions left out had none.
    :param size: bytes of their bodies, for events and metrics.

    The other arguments must be those of the planning task; its method `committed` copies them.
    Committed again, after a retry or a clear, the window is found done. Counts of another window
    than the one that comes next fail the task.

    XCom and events: as those of the ingest task.
    """

    template_fields: Sequence[str] = (
        *TubeMQWindowOperator.template_fields,
        "plan",
        "records",
        "size",
    )
    own_data = frozenset({"plan", "records"})
    ui_color = "#d9ecd0"

    def __init__(
        self,
        *,
        plan: Mapping[str, Any] | Any,
        records: Mapping[str, int] | Any,
        size: int | str = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.records = records
        self.size = size

    def _opened(
        self, context: Context, stack: ExitStack
    ) -> tuple[IngestArguments, TaskStore, IngestJob]:
        """A planned window of time has its interval, whatever the timetable says by now."""
        planned = self.plan if isinstance(self.plan, Mapping) else {}
        if self.mode == "time" and planned.get("start"):
            # Of arguments too, which were judged when the window was planned.
            self.start, self.end = planned["start"], planned["end"]
        return super()._opened(context, stack)

    def _prepare(self, context: Context, store: TaskStore, job: IngestJob) -> None:  # noqa: ARG002
        """Give this task the plan of the other, as if a try of its own had made it."""
        wanted: Any = self.plan
        if not isinstance(wanted, Mapping) or not wanted.get("window_id"):
            raise ConfigError(
                f"plan is {wanted!r}, not the XCom of a TubeMQPlanWindowOperator that has found "
                f"something to read",
                subject="arguments",
            )
        if not isinstance(self.records, Mapping):
            raise ConfigError(
                f"records is {self.records!r}, not counts by partition such as {{'1:0': 100}}",
                subject="arguments",
            )
        kept = _kept(store, job, str(wanted["window_id"]), str(wanted["hash"]))
        if kept is not None:
            store.store_task_plan(kept.to_document())
        job.take_counts(str(wanted["hash"]), dict(self.records), int(self.size))


def _not_to_run(context: Context) -> list[str]:
    """The tasks behind this one, but those that would run behind a skipped one too."""
    task: Any = context["ti"].task
    return sorted(
        behind.task_id
        for behind in task.downstream_list
        if not behind.is_teardown and behind.trigger_rule not in _RUN_ANYWAY
    )


def _kept(store: TaskStore, job: IngestJob, window_id: str, plan_hash: str) -> WindowPlan | None:
    """The plan of that hash as an earlier try, the task that made it or the sink has it. None where
    it is a claim: the run knows those."""
    for load in (store.load_task_plan, lambda: store.load_plan(window_id)):
        document = load()
        if document is not None:
            plan = WindowPlan.from_document(document, where="plan")
            if plan.hash == plan_hash:
                return plan
    plan_there = job.written(window_id)
    return plan_there if plan_there is not None and plan_there.hash == plan_hash else None


def _document(plan: WindowPlan | None) -> dict[str, Any]:
    """What tasks between are given. Raises `ConfigError` if it is too large for XCom."""
    if plan is None:
        return {"window_id": None, "hash": None, "entries": 0, "partitions": 0, "ranges": {}}
    if len(plan.ranges) > _SHOWN:
        raise ConfigError(
            f"window {plan.window_id} has {len(plan.ranges)} partitions; the ranges of more than "
            f"{_SHOWN} do not fit into XCom: read it with TubeMQConsumeOperator or "
            f"@task.tubemq_window",
            subject="plan",
        )
    start, end = plan.time or (None, None)
    return {
        "window_id": plan.window_id,
        "hash": plan.hash,
        "topic": plan.topic,
        "group": plan.group,
        "start": start,
        "end": end,
        "entries": plan.entries,
        "partitions": len(plan.ranges),
        "ranges": {key: list(range_) for key, range_ in plan.ranges.items()},
        "starting_offsets": {plan.topic: {key: at for key, (at, _) in plan.ranges.items()}},
        "ending_offsets": {plan.topic: {key: at for key, (_, at) in plan.ranges.items()}},
    }
