"""`TubeMQPlanWindowOperator` and `TubeMQCommitWindowOperator`: your own tasks between two of ours.

The first freezes the offsets of the next window, the second records that it is done and advances
the position. The tasks between read exactly those offsets, by their own means: Spark, pandas,
another service. If they fail, or the Dag run dies, the next run gets the same window: so set
``max_active_runs=1``, or ``offset_store="ledger"``, with which each run has a separate window until
it ends.
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
from tubemq_provider.ingest.arguments import WRITING, IngestArguments
from tubemq_provider.operators.announce import announce
from tubemq_provider.operators.consume import TubeMQWindowOperator
from tubemq_provider.windows.spaces import space_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tubemq_provider.ingest.job import IngestJob, Planned
    from tubemq_provider.offsets.registry import TaskStore
    from tubemq_provider.windows.run.result import WindowResult

__all__ = ["TubeMQCommitWindowOperator", "TubeMQPlanWindowOperator"]

_SHOWN: Final = 1_000
"""XCom has the ranges of at most this many partitions; more do not fit."""

_RUN_ANYWAY: Final = ("all_done", "always", "none_failed")
"""Trigger rules of tasks that also run behind a skipped one."""


class TubeMQPlanWindowOperator(TubeMQWindowOperator):
    """Freeze the next window of `group`, and return its offsets.

    Arguments are those of `TubeMQWindowOperator`. If there is nothing to read, or the window is
    done
    already, the task and its downstream tasks are skipped; with `skip_if_empty=False` it succeeds
    with ``window_id`` None. The initial position is stored in both cases. A window without entries,
    which `gap_policy` and `on_offset_regression` can leave, is finished here and the next one is
    planned; an empty window of time is finished, and there is nothing left. If a window that
    reports lost records or a reset is the last one, the task succeeds, so that its event is
    emitted, and downstream tasks are skipped.

    XCom: ``{"window_id", "hash", "topic", "group", "start", "end", "entries", "partitions",
    "ranges": {"1:0": [0, 2800]}, "starting_offsets", "ending_offsets"}``: ranges are half open,
    `entries` an upper bound on records; the last two are options of the Spark source. Above
    1 000 partitions the task fails: use `TubeMQConsumeOperator` or
    ``@task.tubemq_window`` for such a window.
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
        """Run the steps that read nothing: load, plan and check."""
        failing = fatal_errors_fail_the_task(self.log, about=self._error_context())
        with failing, ExitStack() as stack:
            arguments, store, job = self._open_job(context, stack)
            progress_logger = job.progress_logger(self.log)
            planned = job.plan(
                store,
                attempt=str(context["ti"].id),
                serialised=self._serialised,
                observer=self.observer(context, progress_logger),
            )
            document = _document(planned)
        plan, marker, finished = planned
        self._emit_events(context, arguments, finished)
        if arguments.skip_if_empty and (plan is None or not plan.entries or marker is not None):
            why = (
                "there is nothing to read"
                if plan is None or not plan.entries
                else f"window {plan.window_id} is done already"
            )
            has_news = any(result.has_news for result in finished)
            if has_news and context["ti"].map_index in (None, -1):
                # Airflow drops the events of a skipped task, so only downstream tasks are skipped.
                self.log.info("%s: downstream tasks are skipped", why)
                skip: Any = DownstreamTasksSkipped
                raise skip(tasks=_not_to_run(context))
            raise AirflowSkipException(why)
        self.log.info("window %s: at most %s records", document["window_id"], document["entries"])
        return document

    def _emit_events(
        self, context: Context, arguments: IngestArguments, finished: Sequence[WindowResult]
    ) -> None:
        """Emit the events of windows without entries, which this task has finished.

        The planned window is not accepted yet: the task that commits it emits its events.
        """
        task: Any = context["ti"].task
        sink = sink_asset(arguments.destination)
        if not finished:
            for asset in (self.offsets_asset, sink):
                task.outlets = without(task.outlets, asset)
            return
        for result in finished:
            count_window(result, arguments.cluster, space_of(self.source))
            self._report(result, context)
        # Only the first result has the windows recovered from dead runs.
        replayed = arguments.emit_replayed
        announce(context, sink, self.offsets_asset, finished[0], emit_replayed=replayed)

    def committed(
        self, *, records: Any, task_id: str = "commit", **kwargs: Any
    ) -> TubeMQCommitWindowOperator:
        """Return the task that commits this one's windows, with the same arguments.

        See `TubeMQCommitWindowOperator` for `records`.
        """
        excluded = (WRITING - {"sink"}) | {"skip_if_empty", "source"}
        names = {*IngestArguments.model_fields, "policies", "tubemq_conn_id"} - excluded
        same = {name: getattr(self, name) for name in sorted(names) if hasattr(self, name)}
        return TubeMQCommitWindowOperator(
            task_id=task_id, plan=self.output, records=records, **{**same, **kwargs}
        )


class TubeMQCommitWindowOperator(TubeMQWindowOperator):
    """Record that a planned window is done, and advance the position of `group`.

    :param plan: XCom of the planning task: ``plan_task.output``.
    :param records: how many records were read of each partition, ``{"1:0": 100}``, as the tasks
        between have counted them; checked against the plan. Missing partitions had none.
    :param size: total bytes of their bodies, for events and metrics.

    The other arguments must be those of the planning task; its method `committed` copies them.
    A retry or clear after the commit finds the window done. Counts of another window than the next
    one fail the task.

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

    def _open_job(
        self, context: Context, stack: ExitStack
    ) -> tuple[IngestArguments, TaskStore, IngestJob]:
        """Use the interval of the plan, even if the timetable was edited since."""
        planned = self.plan if isinstance(self.plan, Mapping) else {}
        if self.mode == "time" and planned.get("start"):
            self.start, self.end = planned["start"], planned["end"]
        return super()._open_job(context, stack)

    def _prepare(self, context: Context, store: TaskStore, job: IngestJob) -> None:  # noqa: ARG002
        """Store the plan of the planning task, as if an earlier try of this task had made it."""
        plan: Any = self.plan
        if not isinstance(plan, Mapping) or not plan.get("window_id"):
            raise ConfigError(
                f"plan is {plan!r}, not the XCom of a TubeMQPlanWindowOperator that has found "
                f"something to read",
                subject="arguments",
            )
        if not isinstance(self.records, Mapping):
            raise ConfigError(
                f"records is {self.records!r}, not counts by partition such as {{'1:0': 100}}",
                subject="arguments",
            )
        job.use_counts(store, plan, dict(self.records), int(self.size))


def _not_to_run(context: Context) -> list[str]:
    """Return the downstream tasks, except those that would run behind a skipped task too."""
    task: Any = context["ti"].task
    return sorted(
        behind.task_id
        for behind in task.downstream_list
        if not behind.is_teardown and behind.trigger_rule not in _RUN_ANYWAY
    )


def _document(planned: Planned) -> dict[str, Any]:
    """Return the XCom for the tasks between. Raises `ConfigError` if it is too large."""
    plan = planned.plan
    if plan is not None and len(plan.ranges) > _SHOWN:
        raise ConfigError(
            f"window {plan.window_id} has {len(plan.ranges)} partitions; the ranges of more than "
            f"{_SHOWN} do not fit into XCom: read it with TubeMQConsumeOperator or "
            f"@task.tubemq_window",
            subject="plan",
        )
    return planned.document()
