"""`TubeMQSparkIngestOperator`: one window of a topic into a sink, exactly once.

Turns arguments and a task's context into a `WindowRun` and runs it: what a window is, what is
retried and what wins is decided there. Nothing happens in `__init__` but checking literals and
naming assets, since Airflow parses Dag files all the time.
"""

from __future__ import annotations

import json
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowProviderDeprecationWarning
from airflow.sdk.exceptions import AirflowSkipException

from tubemq_client import errors
from tubemq_provider.arguments import check_literals, is_mapped, is_template, parse
from tubemq_provider.assets import offsets_asset, sink_asset
from tubemq_provider.hooks.failures import fatal_errors_fail_the_task
from tubemq_provider.hooks.lineage import window_lineage
from tubemq_provider.hooks.metrics import count_window
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.ingest.arguments import (
    IngestArguments,
    begins_at_end,
    place_problems,
    says_latest,
)
from tubemq_provider.ingest.narrate import Narrator
from tubemq_provider.links import (
    TubeMQOffsetsLink,
    TubeMQSinkLink,
    TubeMQSparkLink,
    TubeMQTopicLink,
)
from tubemq_provider.offsets.choose import TaskStore, store_for
from tubemq_provider.operators.announce import announce, bounded
from tubemq_provider.operators.intervals import refuse_interval, run_interval
from tubemq_provider.operators.job import SourceHook, open_job
from tubemq_provider.operators.output import OutputArguments
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from airflow.sdk import Context

    from tubemq_provider.ingest.job import IngestJob
    from tubemq_provider.windows.protocols import StepObserver
    from tubemq_provider.windows.run.result import WindowResult

__all__ = ["TubeMQSparkIngestOperator"]

_STATIC = dict.fromkeys(
    ("topic", "group", "cluster"),
    "it names the offsets asset, which Airflow must know before a run",
)


_ABOVE_INIT = 5
"""Frames from a warning to the Dag's author: two of ours, `__init__`, Airflow's around it."""


class TubeMQSparkIngestOperator(OutputArguments):
    """Write one window of `topic` into a sink: each record once, retried or not.

    The window is frozen before anything is read; a retry, a clear and a backfill that meets the
    same window deliver the same records, and find them written if they are. Progress lives on the
    offsets asset ``tubemq:<cluster>/<topic>/<group>``, which becomes inlet and outlet of the task;
    the sink's own asset becomes an outlet where its address is known when the Dag is parsed.

    What a template may fill in is every argument but `topic`, `group`, `cluster`, `mode`,
    `offset_store` and the switches; a template anywhere else is refused when the Dag is parsed.

    :param topic: topic to read. Names an asset, so no template; so do `group` and `cluster`.
    :param group: whose progress this is. One group serves one sink and one set of filters.
    :param path: directory of a Parquet sink, absolute or ``file://``; short for `sink`.
        Not another one for each run where the resolver is inexact: boundaries live in the sink.
    :param sink: where the records go, as `tubemq_provider.sinks.factory.sink_for` takes it:
        ``/lake/orders``, ``s3://lake/orders``, ``delta:/lake/orders``,
        ``iceberg:<catalog>/sales.orders``, ``postgresql://host/db?table=orders``,
        ``append:/lake/orders``. Without credentials: it is shown in the UI.
    :param sink_conn_id: Airflow connection with the credentials of `sink`, read in the running
        task. A database's login and password (its host, if set, must be the sink's); an object
        store's key and secret as login and password, endpoint and region in the extra; an Iceberg
        catalog's properties in the extra.
    :param exactly_once: False only, and always, for ``append:…``, which promises no more than
        at-least-once.
    :param staging_root: where engines write before the sink takes the files; Spark on several
        machines needs one that all share.
    :param tubemq_conn_id: the connection.
    :param cluster: the connection's cluster alias; needed where that is not the connection id.
    :param mode: ``cursor``: from where the group's last window ended to the stable end; one task at
        a time (``max_active_tis_per_dag=1``). ``time``: a window of time or of explicit offsets;
        windows are independent, and so can be backfilled.
    :param start: first instant of a time window, RFC 3339 or datetime. Default: what the
        run says, in this order: ``{"tubemq_window": {"start": …, "end": …}}`` in its conf or
        params, its data interval, its partition date with `granularity`.
    :param end: first instant after it.
    :param granularity: length of the window of a partitioned run: timedelta, seconds or ``PT1H``;
        less than a day. Not needed with `CronPartitionTimetable`, whose partitions end where the
        next begins, also days and months.
    :param resolver: how a time window gets its offsets. ``boundaries`` (default) looks instants up
        in `boundaries`; ``timeline`` in the samples of `TubeMQSampleEndsOperator`; ``history`` in
        what the brokers record of themselves; ``message_time`` looks for the producers' times;
        ``explicit`` takes `starting_offsets` and `ending_offsets`.
    :param boundaries: ``{"2026-01-01T00:00:00Z": {"<topic>": {"1:0": 2800}}}``, or path or URL of
        such a JSON file.
    :param late_allowance: how long after an instant records may still come in that belong before
        it: timedelta, seconds or ``PT5M``. For ``timeline``, ``history`` and ``message_time``.
    :param history_group: group whose records ``history`` reads: one that has, or had, a position on
        the topic. Default: the look-up group of `group`.
    :param message_zone: time zone of the producers' minutes, for ``message_time``. Default: UTC.
    :param starting_offsets: ``{"<topic>": {"1:0": 2800, "1:1": "earliest"}}`` or JSON.
    :param ending_offsets: the same with ``stable``, the end that a broker crash cannot take back.
    :param engine: ``session``: Spark in the task's process. ``inline``: no JVM; for small windows.
        ``auto``: inline for windows of up to two million index entries, or without pyspark, else
        Spark.
    :param spark_conf: Spark configuration of a new session; ``spark.master`` defaults to
        ``local[2]``.
    :param landing: ``auto`` (as ``on``): Spark tasks write the files themselves. ``off``: records
        go through Spark's own writer, which costs more.
    :param target_file_bytes: size of data files; default is a file per partition (``inline``) or
        task (``session``). A file takes several small partitions, a large one is cut.
    :param filters: stream ids to read; none means all.
    :param epoch: name of the life of the topic that the group follows. Default: the present one, as
        ``airflow tubemq offsets epoch`` began it, at first "". A name that was not used before
        begins a new life: windows of their own, from the beginning of the logs. For topics that
        were made anew.
    :param epoch_seen: with a new `epoch`: the last window that the failed run knew, as its error
        says. What the group has published since, and the log still has, is not read again.
    :param initial_position: where a group without progress begins: ``earliest``, ``stable``
        (the end) or offsets. Cursor mode; there is no default, a first run without it fails.
    :param max_records: a cursor window has no more records than this. Counted in index entries, one
        per record: with filters, or other partitions in the store, it has fewer. The least of the
        caps counts; the result's `has_more` says that one did.
    :param max_bytes: a cursor window has about so many bytes of bodies: an estimate from a sample
        of its first records, no bound.
    :param max_duration: a cursor window takes about so long to read and publish: an estimate from
        the pace of the last one (10 000 index entries a second before the first), no bound, and
        never less than a thousand entries. timedelta, seconds or ``PT10M``.
    :param gap_policy: retention took part of the window: ``fail`` or ``skip`` (recorded).
    :param on_offset_regression: a log ends before the position: ``fail``, ``reset_to_end`` or
        ``reset_to_start``. Cursor mode.
    :param new_partition_position: where a partition begins that appeared since: ``earliest`` or
        ``stable``.
    :param corrupt_records: a record fails its checksum: ``fail``, ``drop`` (counted), or
        ``quarantine``: counted, and kept as it came in a file beside the window (sinks of files).
    :param on_clear: what a cleared task does that finds its window written: ``verify`` counts the
        rows in the sink again and leaves it; ``rewrite`` reads the same offsets again and replaces
        the window in one step (object stores and databases).
    :param on_other_scope: a group without windows meets some of its topic in the sink that were
        written under another group, cluster alias or mode, or with other filters: ``fail``, as it
        would store all records again; ``start_anew`` begins beside them. Also asked of windows of
        time or explicit offsets beside the cursor of the same group.
    :param commit_to_broker: also show where the group goes on as its offsets at the brokers, for
        TubeMQ's own dashboards; best effort.
    :param offset_store: where progress is kept: ``asset_state``; ``ledger``, if the deployment has
        it, where cursor windows of a group may run side by side; ``events``.

    :param skip_if_empty: a run that finds nothing to read is skipped instead of a success, and so
        is what comes after it. A window of time that is empty is then written, and shows in the
        sink's coverage, without a commit event. Not the run that resolves where a group begins:
        nothing else would remember it.
    :param emit_replayed: also tell the sink's asset of a window that an earlier success told of.

    Events of the sink's asset: one for each window with records, with ``extra["tubemq"]``: topic,
    group, window_id, interval, ranges, records, bytes, place; none for an empty window.

    XCom: the result as a mapping: window_id, hash, ranges, records, total, empty, replayed,
    has_more, position, recovered, gaps, sink_ref, warnings … Beyond 200 partitions `ranges`,
    `records` and the offsets of `position` are left out (`bounded` is then True): the sink's marker
    has them.
    """

    template_fields: Sequence[str] = (
        "path",
        "sink",
        "staging_root",
        "start",
        "end",
        "boundaries",
        "starting_offsets",
        "ending_offsets",
        "initial_position",
        "filters",
        "spark_conf",
        "max_records",
        "max_bytes",
        "max_duration",
        "target_file_bytes",
        "granularity",
        "resolver",
        "late_allowance",
        "history_group",
        "message_zone",
        "gap_policy",
        "on_offset_regression",
        "new_partition_position",
        "corrupt_records",
        "on_clear",
        "on_other_scope",
        "engine",
        "landing",
        "tubemq_conn_id",
        "sink_conn_id",
    )
    template_fields_renderers = {"spark_conf": "json"}  # noqa: RUF012 - Airflow's declaration
    ui_color = "#bfe0d4"
    tubemq_conn_id: str
    topic: str
    group: str
    cluster: str
    mode: str
    offset_store: str
    source: str = FIRST_SOURCE
    operator_extra_links = (
        TubeMQOffsetsLink(),
        TubeMQSinkLink(),
        TubeMQTopicLink(),
        TubeMQSparkLink(),
    )
    admin_url: str | None = None
    result: WindowResult | None = None
    _job: IngestJob | None = None
    _killed: bool = False
    _warned: bool = False

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        tubemq_conn_id: str = TubeMQHook.default_conn_name,
        cluster: str | None = None,
        mode: str = "cursor",
        start: datetime | str | None = None,
        end: datetime | str | None = None,
        granularity: timedelta | float | str | None = None,
        resolver: str | None = None,
        boundaries: Mapping[str, Any] | str | None = None,
        late_allowance: timedelta | float | str | None = None,
        history_group: str | None = None,
        message_zone: str | None = None,
        starting_offsets: Mapping[str, Any] | str | None = None,
        ending_offsets: Mapping[str, Any] | str | None = None,
        filters: Sequence[str] = (),
        epoch: str | None = None,
        epoch_seen: str | None = None,
        initial_position: Mapping[str, Any] | str | None = None,
        max_records: int | str | None = None,
        max_bytes: int | str | None = None,
        max_duration: timedelta | float | str | None = None,
        gap_policy: str = "fail",
        on_offset_regression: str = "fail",
        new_partition_position: str = "earliest",
        corrupt_records: str = "fail",
        on_clear: str = "verify",
        on_other_scope: str = "fail",
        offset_store: str = "asset_state",
        **kwargs: Any,
    ) -> None:
        cluster = cluster or tubemq_conn_id
        given = {n: value for n, value in locals().items() if n in IngestArguments.model_fields}
        super().__init__(**kwargs)
        self._settle({**given, "tubemq_conn_id": tubemq_conn_id}, kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Take the window through all eight steps; see `WindowRun` for what a crash leaves."""
        failing = fatal_errors_fail_the_task(self.log, look_further=self._where_to_look())
        with failing, ExitStack() as stack:
            arguments, store, job = self._opened(context, stack)
            self._prepare(context, store, job)
            narrator = job.narrator(self.log)
            result = job.run(
                store,
                attempt=str(context["ti"].id),
                serialised=self._serialised,
                observer=self.observer(context, narrator),
                cleared=getattr(context.get("dag_run"), "clear_number", 0) > 0,
            )
        narrator.done(result)
        self.result = result
        count_window(result, arguments.cluster)
        self._report(result, context)
        announce(
            context,
            sink_asset(arguments.destination),
            self.offsets_asset,
            result,
            emit_replayed=arguments.emit_replayed,
        )
        if arguments.skip_if_empty and result.empty and not (result.recovered or result.begun):
            raise AirflowSkipException("there was nothing to read")
        return bounded(result.to_document())

    def _opened(
        self, context: Context, stack: ExitStack
    ) -> tuple[IngestArguments, TaskStore, IngestJob]:
        """The job of this try, on what the rendered arguments name; `stack` closes it."""
        self._warn_of_latest()
        arguments = parse(IngestArguments, self._arguments())
        hook = self._hook()
        hook.expect_cluster(arguments.cluster)
        self.admin_url = hook.admin_url
        store = self._store(context)
        if arguments.mode == "cursor":
            refuse_interval(context, planned=lambda: store.load_task_plan() is not None)
        interval = run_interval(context, arguments.granularity)
        job = self._job = open_job(arguments, hook, interval, stack, timeline=store.load_timeline)
        if self._killed:
            # The signal came before there was a job to cancel.
            job.cancel()
        return arguments, store, job

    def _hook(self) -> SourceHook:
        """What reads the connection."""
        return TubeMQHook(self.tubemq_conn_id)

    def _prepare(self, context: Context, store: TaskStore, job: IngestJob) -> None:
        """Before the run begins; for operators that read the window by other means."""

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002
        """The topic as input, the sink's data as output with rows and bytes; None without the
        provider for OpenLineage."""
        return window_lineage(self.cluster, self.topic, self.sink or self.path or "", self.result)

    def _where_to_look(self) -> str:
        """What an error's text ends with."""
        return (
            f"topic {self.topic!r}, group {self.group!r}; look further with: airflow tubemq check "
            f"--conn-id {self.tubemq_conn_id}"
        )

    def on_kill(self) -> None:
        """Make the job stop soon, also one that has yet to begin; returns within seconds."""
        self._killed = True
        if self._job is not None:
            self._job.cancel()

    def observer(self, context: Context, narrator: Narrator) -> StepObserver:  # noqa: ARG002
        """What is told about the run's steps; a subclass may add its own."""
        return narrator

    def _settle(self, given: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
        """Judge the arguments and name the assets; `chosen` is what Airflow was given."""
        defaults = chosen.get("default_args") or {}
        self._serialise(given["mode"], given["offset_store"], {**defaults, **chosen})
        self._keep(given)
        self.offsets_asset = offsets_asset(self.cluster, self.topic, self.group, self.source)
        self._declare_assets(self.sink or self.path or "")

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Keep the arguments as attributes, which Airflow renders, and judge what is literal."""
        for name, value in given.items():
            setattr(self, name, value)
        unsafe = place_problems(self._arguments())
        if not is_mapped(self) and not self._serialised and begins_at_end(given):
            unsafe.append(
                "initial_position 'stable' needs max_active_tis_per_dag=1: runs would race"
            )
        fixed = IngestArguments.model_fields.keys() - set(self.template_fields)
        static = dict.fromkeys(fixed, "as it decides how the task is set up") | _STATIC
        check_literals(IngestArguments, self._arguments(), static=static, problems=unsafe)
        self._warn_of_latest()

    def _warn_of_latest(self) -> None:
        """Once per task: ``latest`` is the end in memory elsewhere, and here meant the stable one.
        What templates say is only known when they are rendered."""
        if self._warned or not (names := says_latest(self._arguments())):
            return
        self._warned = True
        warnings.warn(
            f"{', '.join(names)}: 'latest' is an old word for the stable end here; write 'stable', "
            f"which means the same",
            AirflowProviderDeprecationWarning,
            stacklevel=_ABOVE_INIT,
        )

    @property
    def _serialised(self) -> bool:
        """Whether two first runs cannot resolve ``stable`` differently."""
        return self.max_active_tis_per_dag == 1 or self.offset_store == "ledger"

    def _serialise(self, mode: str, offset_store: str, chosen: Mapping[str, Any]) -> None:
        """One cursor window at a time, unless the author has chosen otherwise, or runs may claim
        windows side by side."""
        if offset_store == "ledger":
            return
        if not is_mapped(self) and mode == "cursor" and "max_active_tis_per_dag" not in chosen:
            self.max_active_tis_per_dag = 1

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in IngestArguments.model_fields}

    def _declare_assets(self, spec: str) -> None:
        """The offsets asset becomes inlet and outlet, the sink's asset an outlet."""
        if is_mapped(self):
            return
        outlets = [self.offsets_asset]
        if not is_template(spec):
            outlets.append(sink_asset(spec))
        self.inlets = [*self.inlets, *(a for a in [self.offsets_asset] if a not in self.inlets)]
        self.outlets = [*self.outlets, *(a for a in outlets if a not in self.outlets)]

    def _store(self, context: Context) -> TaskStore:
        if self.offsets_asset not in self.inlets or self.offsets_asset not in self.outlets:
            # A mapped task, for which only its author can declare them.
            cap = ", and max_active_tis_per_dag=1" if self.mode == "cursor" else ""
            kind = "" if self.source == FIRST_SOURCE else f", {self.source!r}"
            raise errors.ConfigError(
                "the offsets asset must be inlet and outlet of the task: pass inlets=[a], "
                f"outlets=[a]{cap} to .partial(), where a = tubemq_provider.assets.offsets_asset("
                f"{self.cluster!r}, {self.topic!r}, {self.group!r}{kind})",
                subject="assets",
            )
        return store_for(self.offset_store, context, self.offsets_asset)

    def _report(self, result: WindowResult, context: Context) -> None:
        """One structured line, for logs that are searched later."""
        run = context["dag_run"]
        line = {
            "records": result.total,
            "window_id": result.window_id,
            "empty": result.empty,
            "replayed": result.replayed,
            "recovered": list(result.recovered),
            "try_number": context["ti"].try_number,
            "clear_number": getattr(run, "clear_number", 0),
            "store": self.offset_store,
            "engine": result.engine,
            "hash": result.hash,
        }
        for warning in result.warnings:
            self.log.warning("%s", warning)
        self.log.info("window done: %s", json.dumps(line))
