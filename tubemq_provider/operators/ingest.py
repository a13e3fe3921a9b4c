"""The ingest operators: one window of a topic into a sink, exactly once.

`TubeMQCursorIngestOperator` reads the next window, `TubeMQWindowIngestOperator` a window of time or
of offsets; `TubeMQSparkIngestOperator`, the older name, takes `mode` and is either. They differ
only in their arguments; `execute` is in `base`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.values import IngestPolicies, Value
from tubemq_provider.operators.base import COMMON_TEMPLATE_FIELDS, IngestOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

__all__ = [
    "TubeMQCursorIngestOperator",
    "TubeMQSparkIngestOperator",
    "TubeMQWindowIngestOperator",
]


class TubeMQCursorIngestOperator(IngestOperator):
    """Write the next window of `topic` into a sink: from where the group's last one ended to the
    stable end; each record once, retried or not.

    One task at a time (``max_active_tis_per_dag=1``), or side by side with
    ``offset_store="ledger"``. See `TubeMQSparkIngestOperator` for what a window is.

    :param initial_position: where a group without progress begins: ``earliest``, ``stable``
        (the end) or offsets. There is no default, a first run without it fails.
    :param max_records: a window has no more records than this, counted in index entries.
    :param max_bytes: a window has about this many bytes of bodies: an estimate, no bound.
    :param max_duration: a window takes about so long to read and publish: an estimate, no bound.
    :param decode: typed columns instead of bodies, as ``{"format": "json", "schema": "id bigint"}``
        says them; what does not decode follows `corrupt_records`.
    :param transform: dotted path of a function from DataFrame to DataFrame. Engines on Spark.
    :param sql: the same as a query, in which the window is the table ``records``.
    :param policies: `IngestPolicies(gap_policy=…, …)`: what is done when something is not as it
        should be. By default it fails.
    :param commit_to_broker: also show where the group goes on as its offsets at the brokers.
    """

    template_fields: Sequence[str] = (
        *COMMON_TEMPLATE_FIELDS,
        "initial_position",
        "max_records",
        "max_bytes",
        "max_duration",
        "decode",
        "transform",
        "sql",
        "policies",
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - Airflow's
    mode = "cursor"

    def __init__(
        self,
        *,
        initial_position: Mapping[str, Any] | str | None = None,
        max_records: int | str | None = None,
        max_bytes: int | str | None = None,
        max_duration: timedelta | float | str | None = None,
        decode: Mapping[str, Any] | str | None = None,
        transform: str | None = None,
        sql: str | None = None,
        policies: IngestPolicies | None = None,
        commit_to_broker: bool = False,
        **kwargs: Any,
    ) -> None:
        given = _given(locals())
        super().__init__(**kwargs)
        self._set_arguments(given, kwargs)


class TubeMQWindowIngestOperator(IngestOperator):
    """Write one window of `topic`, of time or of explicit offsets, into a sink: each record once,
    retried or not.

    Windows are independent, and so can be backfilled. See `TubeMQSparkIngestOperator` for what a
    window is.

    :param start: first instant, RFC 3339 or datetime. Default: what the run says: a
        ``tubemq_window`` in its conf or params, if `policies` allow one with `max_run_window`, its
        data interval, its partition date.
    :param end: first instant after it.
    :param granularity: length of the window of a partitioned run: timedelta, seconds or ``PT1H``.
    :param resolver: how a window of time gets its offsets: ``boundaries`` (default), ``timeline``,
        ``history``, ``message_time``, or a value with what it takes: `Timeline(late_allowance=…)`,
        `History(group=…)`, `MessageTime(zone=…)`.
    :param boundaries: ``{"2026-01-01T00:00:00Z": {"<topic>": {"1:0": 2800}}}``, or path or URL of
        such a JSON file.
    :param starting_offsets: ``{"<topic>": {"1:0": 2800, "1:1": "earliest"}}`` or JSON.
    :param ending_offsets: the same with ``stable``, the end that a broker crash cannot take back.
    :param decode: typed columns instead of bodies, as ``{"format": "json", "schema": "id bigint"}``
        says them; what does not decode follows `corrupt_records`.
    :param transform: dotted path of a function from DataFrame to DataFrame. Engines on Spark.
    :param sql: the same as a query, in which the window is the table ``records``.
    :param policies: `IngestPolicies(gap_policy=…, …)`: what is done when something is not as it
        should be. By default it fails.
    """

    template_fields: Sequence[str] = (
        *COMMON_TEMPLATE_FIELDS,
        "start",
        "end",
        "granularity",
        "resolver",
        "boundaries",
        "starting_offsets",
        "ending_offsets",
        "decode",
        "transform",
        "sql",
        "policies",
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - Airflow's
    mode = "time"

    def __init__(
        self,
        *,
        start: datetime | str | None = None,
        end: datetime | str | None = None,
        granularity: timedelta | float | str | None = None,
        resolver: str | Value | None = None,
        boundaries: Mapping[str, Any] | str | None = None,
        starting_offsets: Mapping[str, Any] | str | None = None,
        ending_offsets: Mapping[str, Any] | str | None = None,
        decode: Mapping[str, Any] | str | None = None,
        transform: str | None = None,
        sql: str | None = None,
        policies: IngestPolicies | None = None,
        **kwargs: Any,
    ) -> None:
        given = _given(locals())
        super().__init__(**kwargs)
        self._set_arguments(given, kwargs)


class TubeMQSparkIngestOperator(IngestOperator):
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
    :param staging_root: a directory where engines write before the sink takes the files; all
        machines of a Spark cluster must share it. By default files are written where they stay, in
        the object store or the table.
    :param partition_by: what files are apart by: columns of records, or decoded ones, and
        ``day(…)`` and ``hour(…)`` of instants, in UTC: ``["country", "day(msg_time)"]``. Folders in
        directories and object stores, partition columns of Delta, partition specs of Iceberg.
    :param max_partitions: the most of them that one task may make of a window, 1000 unless said
        otherwise; more fail it.
    :param schema_evolution: a window has columns that the Delta or Iceberg table has not:
        ``refuse``, or ``add_columns`` in the commit that brings their first values.
    :param verify: how files are checked before they are published: ``facts``: what the tasks that
        wrote them say must tile the plan and agree with names and sizes in the storage;
        ``footers``: the footer of every file is read besides. Sinks of files and tables.
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
    :param max_run_window: greatest length of a window that a user who triggers a run may choose:
        with ``tubemq_window`` in its conf or params, or as its data interval. It begins and ends
        where intervals of the Dag's timetable do, or, where that has none, at multiples of
        `granularity`. Default: none may be chosen. No template.
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
        ``submit``: Spark in a process of `spark-submit`, which a retry takes up again. ``connect``:
        a session on a server of Spark Connect. ``auto``: inline for windows of up to two million
        index entries, or without pyspark, else ``session``.
    :param spark_conf: Spark configuration of a new session; ``spark.master`` defaults to
        ``local[2]``. Airflow stores and shows it as it stands in the Dag, secrets included; of
        ``engine=Spark(conf=…)`` it shows names only.
    :param spark_conn_id: Airflow connection of type ``spark``: the master, and settings in its
        extra; with ``engine="connect"`` of type ``spark_connect``: the server, and its token.
    :param spark_work_dir: with ``engine="submit"``: a directory of the workers' user where
        applications keep what the next try takes up. Default: in the user's cache directory.
    :param ship_package: nodes of a cluster get this package as a zip.
    :param direct_write: ``auto`` (as ``on``): Spark tasks write the files themselves. ``off``:
        records go through Spark's own writer, which costs more.
    :param target_file_bytes: size of data files; default is a file per partition (``inline``) or
        task (``session``). A file takes several small partitions, a large one is cut.
    :param compression: of data files, with ``engine="inline"``: ``snappy`` (default), ``zstd``,
        ``gzip``, ``lz4`` or ``none``.
    :param decode: typed columns instead of bodies: ``{"format": "json", "schema": "id bigint"}``,
        ``"tdmsg"``, a dotted path … What does not decode follows `corrupt_records`.
    :param transform: dotted path of a function from DataFrame to DataFrame; it keeps the column
        ``partition``. Engines on Spark.
    :param sql: the same as a query, in which the window is the table ``records``. As a template,
        text with the ending ``.sql`` is a file of the Dag bundle.
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
    :param max_bytes: a cursor window has about this many bytes of bodies: an estimate from a sample
        of its first records, no bound.
    :param max_duration: a cursor window takes about so long to read and publish: an estimate from
        the pace of the last one (10 000 index entries a second before the first), no bound, and
        never less than a thousand entries. timedelta, seconds or ``PT10M``.
    :param gap_policy: retention took part of the window: ``fail`` or ``skip`` (recorded).
    :param on_offset_regression: a log ends before the position: ``fail``, ``reset_to_end`` or
        ``reset_to_start``. Cursor mode.
    :param new_partition_position: where a partition begins that appeared since: ``earliest`` or
        ``stable``.
    :param corrupt_records: a record fails its checksum, or does not decode: ``fail``, ``drop``
        (counted), or ``quarantine``: counted, and kept as it came in a file beside the window
        (sinks of files).
    :param on_clear: what a cleared task does that finds its window written: ``verify`` counts the
        rows in the sink again and leaves it; ``rewrite`` reads the same offsets again and replaces
        the window in one step (object stores and databases).
    :param on_other_scope: a group without windows meets some of its topic in the sink that were
        written under another group, cluster alias or mode, or with other filters: ``fail``, as it
        would store all records again; ``start_anew`` begins beside them. Also asked of windows of
        time or explicit offsets beside the cursor of the same group.
    :param on_missing_interval: between a window of time and its nearest published neighbour lies
        time that no published window has, as after a change of the schedule: ``warn`` (in log,
        result and event) or ``fail``, which a retry cures if a run that is under way brings it.
    :param commit_to_broker: also show where the group goes on as its offsets at the brokers, for
        TubeMQ's own dashboards; best effort.
    :param offset_store: where progress is kept: ``asset_state``; ``ledger``, if the deployment has
        it, where cursor windows of a group may run side by side; ``events``.

    :param skip_if_empty: a run that finds nothing to read is skipped instead of a success, and so
        is what comes after it. A window of time that is empty is then written, and shows in the
        sink's coverage, without a commit event. Not the run that resolves where a group begins,
        or that passes over what retention took or a reset left out: nothing else would tell of it.
    :param emit_replayed: also tell the sink's asset of a window that an earlier success told of.
    :param deferrable: with ``engine="submit"``: wait in the triggerer, without a worker slot, while
        the application runs; `execution_timeout` counts from the begin of the try. Default:
        Airflow's ``[operators] default_deferrable``, which other engines ignore; True is refused
        with them. The worker's machine has to outlive the task, as the application runs there.

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
        "verify",
        "partition_by",
        "max_partitions",
        "schema_evolution",
        "start",
        "end",
        "boundaries",
        "starting_offsets",
        "ending_offsets",
        "initial_position",
        "filters",
        "spark_conf",
        "spark_conn_id",
        "spark_work_dir",
        "max_records",
        "max_bytes",
        "max_duration",
        "target_file_bytes",
        "compression",
        "decode",
        "transform",
        "sql",
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
        "on_missing_interval",
        "engine",
        "direct_write",
        "tubemq_conn_id",
        "sink_conn_id",
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"spark_conf": "json", "sql": "sql"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        mode: str = "cursor",
        start: datetime | str | None = None,
        end: datetime | str | None = None,
        granularity: timedelta | float | str | None = None,
        max_run_window: timedelta | float | str | None = None,
        resolver: str | None = None,
        boundaries: Mapping[str, Any] | str | None = None,
        late_allowance: timedelta | float | str | None = None,
        history_group: str | None = None,
        message_zone: str | None = None,
        starting_offsets: Mapping[str, Any] | str | None = None,
        ending_offsets: Mapping[str, Any] | str | None = None,
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
        on_missing_interval: str = "warn",
        spark_conf: Mapping[str, str] | None = None,
        spark_conn_id: str | None = None,
        spark_work_dir: str | None = None,
        ship_package: bool = False,
        direct_write: str = "auto",
        decode: Mapping[str, Any] | str | None = None,
        transform: str | None = None,
        sql: str | None = None,
        commit_to_broker: bool = False,
        **kwargs: Any,
    ) -> None:
        given = _given(locals())
        super().__init__(**kwargs)
        self.mode = mode
        self._set_arguments(given, kwargs)


def _given(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ingest arguments among the local names of an `__init__`."""
    fields = {*IngestArguments.model_fields, "policies"}
    return {name: value for name, value in names.items() if name in fields}
