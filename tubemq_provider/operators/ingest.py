"""The ingest operators: one window of a topic into a sink, exactly once.

`TubeMQCursorIngestOperator` reads the next window, `TubeMQWindowIngestOperator` a window of time or
of offsets. They differ only in their arguments; `execute` is in `base`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubemq_provider.operators.base import (
    COMMON_TEMPLATE_FIELDS,
    IngestOperator,
    ingest_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from tubemq_provider.ingest.values import IngestPolicies, Value

__all__ = [
    "TubeMQCursorIngestOperator",
    "TubeMQWindowIngestOperator",
]


class TubeMQCursorIngestOperator(IngestOperator):
    """Write the next window of `topic` into a sink: from where the group's last one ended to the
    stable end; each record once, retried or not.

    One task at a time (``max_active_tis_per_dag=1``), or side by side with
    ``offset_store="ledger"``. See `IngestOperator` for what a window is.

    :param initial_position: where a group without progress begins: ``earliest``, ``stable``
        (the end) or offsets. There is no default, a first run without it fails.
    :param max_records: a window has no more records than this. Counted in index entries, one per
        record: with filters, or other partitions in the store, it has fewer. The least of the caps
        counts; the result's `has_more` says that one did.
    :param max_bytes: a window has about this many bytes of bodies: an estimate from a sample of its
        first records, no bound.
    :param max_duration: a window takes about so long to read and publish: an estimate from the pace
        of the last one (10 000 index entries a second before the first), no bound, and never less
        than a thousand entries. timedelta, seconds or ``PT10M``.
    :param decode: typed columns instead of bodies: ``{"format": "json", "schema": "id bigint"}``,
        ``"tdmsg"``, a dotted path … What does not decode follows `corrupt_records`.
    :param transform: dotted path of a function from DataFrame to DataFrame; it keeps the column
        ``partition``. Engines on Spark.
    :param sql: the same as a query, in which the window is the table ``records``. As a template,
        text with the ending ``.sql`` is a file of the Dag bundle.
    :param policies: `IngestPolicies(gap_policy=…, …)`: what is done when something is not as it
        should be. By default it fails.
    :param commit_to_broker: also commit the next offsets of the group at the brokers, where the
        source's own tools show them; best effort.
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
        given = ingest_arguments(locals())
        super().__init__(**kwargs)
        self._set_arguments(given, kwargs)


class TubeMQWindowIngestOperator(IngestOperator):
    """Write one window of `topic`, of time or of explicit offsets, into a sink: each record once,
    retried or not.

    Windows are independent, and so can be backfilled. See `IngestOperator` for what a window is.

    :param start: first instant, RFC 3339 or datetime. Default: what the run says: a
        ``tubemq_window`` in its conf or params, if `policies` allow one with `max_run_window`, its
        data interval, its partition date.
    :param end: first instant after it.
    :param granularity: length of the window of a partitioned run: timedelta, seconds or ``PT1H``;
        less than a day. Not needed with `CronPartitionTimetable`, whose partitions end where the
        next begins, also days and months.
    :param resolver: how a window of time gets its offsets. ``boundaries`` (default) looks instants
        up in `boundaries`; ``timeline`` in the samples of `TubeMQSampleEndsOperator`; ``history``
        in what the brokers record of themselves; ``message_time`` looks for the producers' times;
        ``explicit`` takes `starting_offsets` and `ending_offsets`. Or a value with options:
        `Timeline(late_allowance=…)`, `History(group=…)`, `MessageTime(zone=…)`.
    :param boundaries: ``{"2026-01-01T00:00:00Z": {"<topic>": {"1:0": 2800}}}``, or path or URL of
        such a JSON file.
    :param starting_offsets: ``{"<topic>": {"1:0": 2800, "1:1": "earliest"}}`` or JSON.
    :param ending_offsets: the same with ``stable``, the end that a broker crash cannot take back.
    :param decode: typed columns instead of bodies: ``{"format": "json", "schema": "id bigint"}``,
        ``"tdmsg"``, a dotted path … What does not decode follows `corrupt_records`.
    :param transform: dotted path of a function from DataFrame to DataFrame; it keeps the column
        ``partition``. Engines on Spark.
    :param sql: the same as a query, in which the window is the table ``records``. As a template,
        text with the ending ``.sql`` is a file of the Dag bundle.
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
        given = ingest_arguments(locals())
        super().__init__(**kwargs)
        self._set_arguments(given, kwargs)
