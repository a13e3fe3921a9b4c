"""Fields of an ingest: each option with its type, its bounds, its description and where it acts.

This is the one table of options: signatures, template fields, parameter lists, the checks of
options without effect, Dagster's options and the reference come from it. Rules between options are
in `arguments`, `engine_arguments` and `sink_rules`. Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, ValidationInfo

from tubemq_client import errors
from tubemq_client.config import GroupName
from tubemq_provider.extensions import Kind, is_known, plugin_of
from tubemq_provider.files.mounts import local_root
from tubemq_provider.ingest.options import (
    FILE_SINKS,
    FOLLOWING_SINKS,
    SPARK_ENGINES,
    TABLE_SINKS,
    Option,
)
from tubemq_provider.ingest.validation import (
    ClusterAlias,
    ConsumerConfig,
    GivenOffsets,
    SourceFilter,
    SourceGroup,
    SourceTopic,
    TaskArguments,
    blank_is_none,
    from_json,
    is_template,
    with_zone,
)
from tubemq_provider.rows.spec import DecodeSpec, function_spec
from tubemq_provider.windows.canonical import in_utc
from tubemq_provider.windows.planning.instants import TimeResolver
from tubemq_provider.windows.policies import end_word
from tubemq_provider.windows.protocols import Engine, Sink
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

Mode = Literal["cursor", "time"]
Resolver = Any
"""Word of a resolver, or the resolver itself."""

_OF_TIME = ("boundaries", "timeline", "history", "message_time", "store_time")
_WITH_SPARK = (*SPARK_ENGINES, "auto")
"""Engines that may run in Spark."""
_WITH_APPLY = ("inline", *_WITH_SPARK)


def _a_length(value: object) -> object:
    """Refuse text that looks like a duration but is none, with the accepted forms."""
    value = blank_is_none(value)
    if isinstance(value, str) and re.search(r"\d\s*[a-z]{2,}", value):
        raise ValueError(f"{value!r} is no length; give a timedelta, seconds, or PT10M")
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]+(\.[0-9]+)?\s*", value):
        return float(value)  # seconds, as a template gives them
    return value


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else in_utc(value)


Instant = Annotated[
    AwareDatetime | None,
    BeforeValidator(with_zone),
    BeforeValidator(blank_is_none),
    AfterValidator(_utc),
]
"""Instant with a zone, stored in UTC, from any type of datetime."""

SparkConf = Annotated[dict[str, str], BeforeValidator(lambda value: value or {})]
Duration = Annotated[timedelta | None, BeforeValidator(_a_length)]
"""Timedelta, seconds, or ISO 8601 such as ``PT1H``."""


def _no_calendar(value: object) -> object:
    """Refuse months and years of ISO 8601, which pydantic reads as 30 and 365 days."""
    if isinstance(value, str) and re.match(r"[+-]?P[^T]*[YM]", value.strip(), re.IGNORECASE):
        raise ValueError(
            f"{value!r}: months and years have no length; leave it out with a "
            f"CronPartitionTimetable, which says where partitions end, or give start and end"
        )
    return _a_length(value)


Length = Annotated[timedelta | None, BeforeValidator(_no_calendar)]
"""`Duration` without calendar units."""


def _known_zone(name: str | None) -> str | None:
    try:
        ZoneInfo(name or "UTC")
    except (ValueError, OSError, ZoneInfoNotFoundError) as exc:
        raise ValueError(f"{name!r} is not a time zone such as 'Europe/Berlin'") from exc
    return name


def _of_path(path: str | None) -> str | None:
    """Return the path if it means the same on each worker: it is the sink's identity."""
    if path is None:
        return None
    if "://" not in path and not PurePath(path).is_absolute():
        raise ValueError(f"{path!r} is relative; give an absolute path, or file://")
    try:
        local_root(path)
    except errors.ConfigError as exc:
        raise ValueError(f"{'; '.join(exc.problems)}; pass the URL as sink=") from None
    return path


def _rooted(path: str | None) -> str | None:
    if path is not None and not is_template(path) and not PurePath(path).is_absolute():
        raise ValueError(f"{path!r} is relative; give an absolute path")
    return path


Directory = Annotated[str | None, BeforeValidator(blank_is_none), AfterValidator(_rooted)]


def _decode(value: object) -> object:
    value = blank_is_none(value)
    if callable(value):
        value = function_spec(value)
    if isinstance(value, (str, dict)) and (problems := DecodeSpec.judge(value)):
        raise ValueError("; ".join(problems))
    return value


Decode = Annotated[str | dict[str, Any] | None, BeforeValidator(_decode)]
"""Argument of `rows.DecodeSpec`; its files are read with the window."""


Routes = Annotated[str | dict[str, Any] | None, BeforeValidator(blank_is_none)]
"""Argument of `ingest.routes.parse_routes`; its file is read with the window."""


def _dotted(path: str | None) -> str | None:
    path = (path or "").strip() or None
    if path and not all(part.isidentifier() for part in path.split(".")):
        raise ValueError(f"{path!r} is not the dotted path of a function")
    if path and "." not in path:
        raise ValueError(f"{path!r} names no module; write 'package.module.function'")
    return path


Count = Annotated[int | None, BeforeValidator(blank_is_none)]

GivenBoundaries = Annotated[dict[str, Any] | str, BeforeValidator(from_json)]
"""Mapping (or its JSON), or path or URL of one, validated by `windows.boundaries`."""


def _position(value: object) -> object:
    value = from_json(value)
    if value in (None, "earliest", "stable", "latest") or (isinstance(value, dict) and value):
        return end_word(value)
    raise ValueError(f"{value!r} is neither 'earliest' nor 'stable' nor offsets by partition")


InitialPosition = Annotated[str | dict[str, Any] | None, BeforeValidator(_position)]


def _one_or_more(value: object) -> object:
    value = from_json(blank_is_none(value))
    return (value,) if isinstance(value, str) else value or ()


Filters = Annotated[tuple[SourceFilter, ...], BeforeValidator(_one_or_more), Field(max_length=500)]
"""Stream ids, or tags: a list, its JSON, or a single one."""


Columns = Annotated[tuple[str, ...], BeforeValidator(_one_or_more), Field(max_length=16)]
"""Columns to partition files by: a list, its JSON, or a single one."""


def _word_or(kind: Kind, base: type[Any]) -> Callable[[Any, ValidationInfo], Any]:
    """Return a validator of a plug-in's word, or of an object of the class `base`."""

    def judge(value: Any, info: ValidationInfo) -> Any:
        if value is None or isinstance(value, base):
            return value
        if not isinstance(value, str):
            plain = isinstance(value, int | float | list | dict | bytes)
            found = repr(value) if plain else f"an object of {type(value).__name__}"
            raise ValueError(f"{found} is neither a word nor an object of {base.__name__}")  # noqa: TRY004 - pydantic collects ValueErrors
        if kind == "resolver" and value in _resolvers_of((info.data or {}).get("source")):
            return value
        if not is_template(value) and not is_known(kind, value):
            _refuse_unknown(kind, value)
        return value

    return judge


def _resolvers_of(source: str | None) -> tuple[str, ...]:
    return space_of(source).resolvers or () if source else ()


def _refuse_unknown(kind: Kind, word: str) -> None:
    try:
        plugin_of(kind, word)
    except errors.ConfigError as exc:
        raise ValueError("; ".join(exc.problems)) from None


def _address_or_sink(value: object) -> object:
    if value is None or isinstance(value, str | Sink):
        return value
    raise ValueError(f"{type(value).__name__} is neither the address of a sink nor a Sink")


def _store(value: object) -> object:
    """Check the word of an offset store, or a factory of one."""
    if isinstance(value, str):
        if not is_known("offset_store", value):
            _refuse_unknown("offset_store", value)
    elif not callable(value):
        raise ValueError(  # noqa: TRY004 - pydantic collects ValueErrors
            f"{value!r} is neither a word nor a function of context and asset that makes a store"
        )
    return value


class IngestFields(TaskArguments, defer_build=True):
    """Arguments of an ingest, in Airflow's operators and Dagster's assets; see docs/airflow.md.

    Only the subclass with the rules is used: a validator for the fields alone is never built.
    """

    source: str = FIRST_SOURCE
    topic: Annotated[
        SourceTopic,
        Option("topic to read. Names an asset, so no template; so do `group` and `cluster`."),
    ]
    group: Annotated[
        SourceGroup,
        Option("group that the progress belongs to; it serves one sink and one set of filters."),
    ]
    path: Annotated[
        str | None,
        AfterValidator(_of_path),
        Option(
            "directory of a Parquet sink, absolute or ``file://``; short for `sink`. Not another "
            "one for each run where the resolver is inexact: boundaries live in the sink.",
            template=True,
            writes=True,
            dagster="sink defines it",
        ),
    ] = None
    sink: Annotated[
        Any,
        BeforeValidator(_address_or_sink),
        Option(
            "where the records go, as `tubemq_provider.sinks.factory.sink_for` takes it: "
            "``/lake/orders``, ``s3://lake/orders``, ``delta:/lake/orders``, "
            "``iceberg:<catalog>/sales.orders``, ``postgresql://host/db?table=orders``, "
            "``append:/lake/orders``. Without credentials: it is shown in the UI.",
            template=True,
            writes=True,
        ),
    ] = None
    sink_conn_id: Annotated[
        str | None,
        BeforeValidator(blank_is_none),
        Option(
            "Airflow connection with the credentials of `sink`, read in the running task. A "
            "database's login and password (its host, if set, must be the sink's); an object "
            "store's key and secret as login and password, endpoint and region in the extra; an "
            "Iceberg catalog's properties in the extra.",
            template=True,
            dagster="pass storage_options, catalog_properties or a Sink",
        ),
    ] = None
    exactly_once: Annotated[
        bool,
        Option(
            "False only, and always, for ``append:…``, which promises no more than at-least-once.",
            writes=True,
        ),
    ] = True
    staging_root: Annotated[
        Directory,
        Option(
            "a directory where engines write before the sink takes the files; all machines of a "
            "Spark cluster must share it. By default files are written where they stay, in the "
            "object store or the table.",
            template=True,
            writes=True,
        ),
    ] = None
    verify: Annotated[
        Literal["facts", "footers"],
        Option(
            "how files are checked before they are published: ``facts``: the reports of the tasks "
            "that wrote them must tile the plan and agree with names and sizes in the storage; "
            "``footers``: the footer of every file is read besides. Sinks of files and tables.",
            template=True,
            sinks=(*FILE_SINKS, *TABLE_SINKS),
            without_sink="verify='footers' has no effect with {sink}: it takes records, and keeps "
            "no files that could be read again",
            writes=True,
        ),
    ] = "facts"
    partition_by: Annotated[
        Columns,
        Option(
            "columns that files are partitioned by, of records or decoded ones, and ``day(…)`` and "
            '``hour(…)`` of instants, in UTC: ``["country", "day(msg_time)"]``. Folders in '
            "directories and object stores, partition columns of Delta, partition specs of "
            "Iceberg.",
            template=True,
            sinks=(*FILE_SINKS, *TABLE_SINKS),
            without_sink="partition_by has no effect with {sink}, which keeps no files of a window",
            writes=True,
        ),
    ] = ()
    max_partitions: Annotated[
        Count,
        Option(
            "most of these partitions that one task may write of a window, 1000 by default; more "
            "fail it.",
            template=True,
            sinks=(*FILE_SINKS, *TABLE_SINKS),
            writes=True,
        ),
    ] = Field(None, ge=1)
    max_files: Annotated[
        Count,
        Option(
            "most data files that a window may write; more fail it before it is published. By "
            "default any number.",
            template=True,
            sinks=(*FILE_SINKS, *TABLE_SINKS),
            without_sink="max_files has no effect with {sink}, which keeps no files of a window",
            writes=True,
        ),
    ] = Field(None, ge=1)
    schema_evolution: Annotated[
        Literal["refuse", "add_columns"],
        Option(
            "a window has columns that the Delta or Iceberg table has not: ``refuse``, or "
            "``add_columns`` in the commit that brings their first values.",
            template=True,
            sinks=TABLE_SINKS,
            without_sink="schema_evolution has no effect with {sink}: it is for Delta and Iceberg "
            "tables; windows of files may differ in columns, and read_windows reads all of them",
            writes=True,
        ),
    ] = "refuse"
    plugin_options: Annotated[
        dict[str, dict[str, Any]],
        BeforeValidator(lambda value: from_json(value) or {}),
        Option(
            'options of plug-ins, by kind: ``{"sink": {…}, "engine": {…}}``, judged by each '
            "plug-in's own model; also of ``offset_store`` and ``resolver``. No secrets.",
            template=True,
            writes=True,
        ),
    ] = Field(default_factory=dict, repr=False)
    consumer_config: Annotated[
        ConsumerConfig,
        Option(
            'options of the client that reads: ``{"deadline_ms": 120_000, "pool_size": 8}``, '
            "timeouts, limits … of `ConsumerConfig`. They win over those in the connection's "
            "extra, and reach Spark's tasks. Addresses, users and TLS belong into the connection.",
            template=True,
        ),
    ] = Field(default_factory=dict, repr=False)
    routes: Annotated[
        Routes,
        Option(
            'many tables from one read: ``{"name": "shop", "by": "stream_id", '
            '"tables": {"orders": {"sink": …, "decode": …}, "log_*": …}}``, its '
            "JSON, or the path of a file with it. `sink` then keeps the windows' markers and the "
            "quarantine. Engines `inline`, `session`, `submit` and `connect`.",
            template=True,
            engines=("inline", *SPARK_ENGINES),
            writes=True,
        ),
    ] = None
    apply: Annotated[
        Literal["append", "upsert", "changes"],
        Option(
            "what a record does to the table: ``append`` adds a row; ``upsert`` replaces the row "
            "of its `key`; ``changes`` inserts, updates and deletes rows as a change record of "
            "`decode` says (debezium, canal, maxwell, ogg). Delta and Iceberg tables, databases. "
            "One process has the rows of a window's keys in memory, at most five million; "
            "`max_records` makes windows smaller.",
            template=True,
            engines=_WITH_APPLY,
            sinks=FOLLOWING_SINKS,
            without_sink="apply has no effect with {sink}, which cannot change rows; use a Delta "
            "or Iceberg table, or a database",
            writes=True,
        ),
    ] = "append"
    key: Annotated[
        Columns,
        Option(
            "with `apply`: the columns that name a row.",
            template=True,
            engines=_WITH_APPLY,
            writes=True,
        ),
    ] = ()
    version: Annotated[
        str | None,
        BeforeValidator(blank_is_none),
        Option(
            "with `apply`: the column that orders the changes of a key, such as "
            "``_source_position``. Needed where a key may come from several partitions; without it "
            "the offsets of its partition are the order.",
            template=True,
            engines=_WITH_APPLY,
            writes=True,
        ),
    ] = None
    soft_delete: Annotated[
        str | None,
        BeforeValidator(blank_is_none),
        Option(
            "with ``apply='changes'``: a boolean column that the table gets; deleted rows stay, "
            "with True in it. Needed, with `version`, to publish windows in any order.",
            template=True,
            engines=_WITH_APPLY,
            writes=True,
        ),
    ] = None
    cluster: Annotated[
        ClusterAlias,
        Option(
            "the connection's cluster alias; needed where that is not the connection id.",
            optional=True,
        ),
    ]
    mode: Mode = "cursor"
    engine: Annotated[
        Any,
        BeforeValidator(_word_or("engine", Engine)),
        Option(
            "``auto``: ``inline`` for windows of up to two million index entries, or without "
            "pyspark; ``session`` for larger ones, and with `transform` or `sql`. ``session``: "
            "Spark in the task's process. ``inline``: no JVM. "
            "``submit``: Spark in a process of `spark-submit`, which a retry takes up again. "
            "``connect``: a session on a server of Spark Connect. Or a value "
            "with options: `Spark(conf=…)`, `SparkSubmit(conf=…)`, `SparkConnect(remote=…)`, "
            "`Auto(conf=…)`.",
            template=True,
            writes=True,
        ),
    ] = "auto"
    spark_conf: Annotated[
        SparkConf,
        Option(
            "Spark configuration of a new session; ``spark.master`` defaults to ``local[2]``.",
            template=True,
            engines=_WITH_SPARK,
            via="engine",
            writes=True,
        ),
    ] = Field(default_factory=dict, repr=False)
    spark_conn_id: Annotated[
        str | None,
        BeforeValidator(blank_is_none),
        Option(
            "Airflow connection of type ``spark``: the master, and settings in its extra; with "
            '``engine="connect"`` of type ``spark_connect``: the server, and its token.',
            template=True,
            engines=_WITH_SPARK,
            via="engine",
            writes=True,
            dagster="spark_conf defines it",
        ),
    ] = None
    spark_work_dir: Annotated[
        Directory,
        Option(
            "a directory of the workers' user where applications keep the state that the next try "
            "resumes. Default: in the user's cache directory.",
            template=True,
            engines=("submit",),
            via="engine",
            writes=True,
        ),
    ] = None
    ship_package: Annotated[
        bool,
        Option(
            "nodes of a cluster get this package as a zip.",
            template=True,
            engines=_WITH_SPARK,
            via="engine",
            writes=True,
        ),
    ] = False
    direct_write: Annotated[
        Literal["auto", "on", "off"],
        Option(
            "``auto`` (as ``on``): Spark tasks write the files themselves. ``off``: records go "
            "through Spark's own writer, which costs more.",
            template=True,
            engines=_WITH_SPARK,
            via="engine",
            writes=True,
        ),
    ] = "auto"
    target_file_bytes: Annotated[
        Count,
        Option(
            "size of data files; default is 128 MiB (``inline``) or a file per task "
            "(``session``). A file takes several small partitions, a large one is cut.",
            template=True,
            writes=True,
        ),
    ] = Field(None, ge=1)
    compression: Annotated[
        Literal["snappy", "zstd", "gzip", "lz4", "none"] | None,
        Option(
            "of data files that ``inline`` writes, also where ``auto`` chooses it: ``snappy`` "
            "(default), ``zstd``, ``gzip``, ``lz4`` or ``none``.",
            template=True,
            engines=("inline", "auto"),
            writes=True,
        ),
    ] = None
    decode: Annotated[
        Decode,
        Option(
            'typed columns instead of bodies: ``{"format": "json", "schema": "id bigint"}``, '
            '``"tdmsg"``, a dotted path … What does not decode follows `corrupt_records`.',
            template=True,
            writes=True,
        ),
    ] = None
    transform: Annotated[
        str | None,
        AfterValidator(_dotted),
        Option(
            "dotted path of a function from DataFrame to DataFrame; it keeps the column "
            "``partition``. Engines on Spark.",
            template=True,
            writes=True,
        ),
    ] = None
    sql: Annotated[
        str | None,
        BeforeValidator(blank_is_none),
        Option(
            "the same as a query, in which the window is the table ``records``. As a template, "
            "text with the ending ``.sql`` is a file of the Dag bundle.",
            template=True,
            writes=True,
        ),
    ] = None
    filters: Annotated[Filters, Option("stream ids to read; none means all.", template=True)] = ()
    epoch: Annotated[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,64}$")] | None,
        Option(
            "name of the epoch that the group follows. Default: the current one, as ``airflow "
            'tubemq offsets epoch`` began it, at first "". A new name begins an epoch: other '
            "windows, from the beginning of the logs. For topics that were recreated."
        ),
    ] = None
    epoch_seen: Annotated[
        Annotated[str, Field(pattern=r"^c-[0-9]+-[0-9a-f]{10}$")] | None,
        Option(
            "with a new `epoch`: the last window that the failed run read, as its error says. What "
            "the group has published since, and the log still has, is not read again.",
            modes=("cursor",),
        ),
    ] = None

    start: Annotated[
        Instant,
        Option(
            "first instant, RFC 3339 or datetime. Default: what the run says: a ``tubemq_window`` "
            "in its conf or params, if `policies` allow one with `max_run_window`, its data "
            "interval, its partition date.",
            template=True,
            modes=("time",),
            resolvers=_OF_TIME,
            dagster="partitions_def defines it",
        ),
    ] = None
    end: Annotated[
        Instant,
        Option(
            "first instant after it.",
            template=True,
            modes=("time",),
            resolvers=_OF_TIME,
            dagster="partitions_def defines it",
        ),
    ] = None
    granularity: Annotated[
        Length,
        Option(
            "length of the window of a partitioned run: timedelta, seconds or ``PT1H``; less than "
            "a day. Not needed with `CronPartitionTimetable`, whose partitions end where the next "
            "begins, also days and months.",
            template=True,
            modes=("time",),
            resolvers=_OF_TIME,
            dagster="partitions_def defines it",
        ),
    ] = None
    max_run_window: Annotated[
        Length,
        Option(
            "greatest length of a window of time that a user who triggers a run may choose: with "
            "``tubemq_window`` in its conf or params, or as its data interval. It begins and ends "
            "where intervals of the Dag's timetable do, or, where that has none, at multiples of "
            "`granularity`. Default: none may be chosen. No template.",
            modes=("time",),
            resolvers=_OF_TIME,
            via="policies",
            dagster="partitions_def defines the windows",
        ),
    ] = None
    resolver: Annotated[
        Resolver,
        BeforeValidator(blank_is_none),
        BeforeValidator(_word_or("resolver", TimeResolver)),
        Option(
            "how a window of time gets its offsets. ``boundaries`` (default) looks instants up in "
            "`boundaries`; ``timeline`` in the samples of `TubeMQSampleEndsOperator`; ``history`` "
            "in what the brokers record of themselves; ``message_time`` looks for the producers' "
            "times; ``store_time``, where a source has it, for the brokers'; ``explicit`` takes "
            "`starting_offsets` and `ending_offsets`. Or a value with options: "
            "`Timeline(late_allowance=…)`, `History(group=…)`, `MessageTime(zone=…)`, "
            "`StoreTime(late_allowance=…)`.",
            template=True,
            modes=("time",),
        ),
    ] = None
    boundaries: Annotated[
        GivenBoundaries | None,
        Option(
            '``{"2026-01-01T00:00:00Z": {"<topic>": {"1:0": 2800}}}``, or path or URL of such a '
            "JSON file.",
            template=True,
            modes=("time",),
            resolvers=("boundaries",),
        ),
    ] = None
    late_allowance: Annotated[
        Duration,
        Option(
            "how long after an instant records may still come in that belong before it: timedelta, "
            "seconds or ``PT5M``.",
            template=True,
            modes=("time",),
            resolvers=("timeline", "history", "message_time", "store_time"),
            via="resolver",
        ),
    ] = None
    history_group: Annotated[
        GroupName | None,
        BeforeValidator(blank_is_none),
        Option(
            "group whose records ``history`` reads: one that has, or had, a position on the topic. "
            "Default: the look-up group of `group`.",
            template=True,
            modes=("time",),
            resolvers=("history",),
            via="resolver",
        ),
    ] = None
    message_zone: Annotated[
        str | None,
        BeforeValidator(blank_is_none),
        AfterValidator(_known_zone),
        Option(
            "time zone of the producers' minutes, for ``message_time``. Default: UTC.",
            template=True,
            modes=("time",),
            resolvers=("message_time",),
            via="resolver",
        ),
    ] = None
    starting_offsets: Annotated[
        GivenOffsets | None,
        Option(
            '``{"<topic>": {"1:0": 2800, "1:1": "earliest"}}`` or JSON.',
            template=True,
            modes=("time",),
            resolvers=("explicit",),
        ),
    ] = None
    ending_offsets: Annotated[
        GivenOffsets | None,
        Option(
            "the same with ``stable``, the end that a broker crash cannot take back.",
            template=True,
            modes=("time",),
            resolvers=("explicit",),
        ),
    ] = None

    initial_position: Annotated[
        InitialPosition,
        Option(
            "where a group without progress begins: ``earliest``, ``stable`` (the end) or offsets. "
            "There is no default, a first run without it fails.",
            template=True,
            modes=("cursor",),
        ),
    ] = None
    max_records: Annotated[
        Count,
        Option(
            "a window has no more records than this. Counted in index entries, one per record: "
            "with filters, or other partitions in the store, it has fewer. The least of the caps "
            "counts; the result's `has_more` says that one did.",
            template=True,
            modes=("cursor",),
        ),
    ] = Field(None, ge=1)
    max_bytes: Annotated[
        Count,
        Option(
            "a window has about this many bytes of bodies: an estimate from a sample of its first "
            "records, no bound.",
            template=True,
            modes=("cursor",),
        ),
    ] = Field(None, ge=1)
    max_duration: Annotated[
        Duration,
        Option(
            "a window takes about so long to read and publish: an estimate from the pace of the "
            "last one (10 000 index entries a second before the first), no bound, and never less "
            "than a thousand entries. timedelta, seconds or ``PT10M``.",
            template=True,
            modes=("cursor",),
        ),
    ] = None
    on_offset_regression: Annotated[
        Literal["fail", "reset_to_end", "reset_to_start"],
        Option(
            "a log ends before the position: ``fail``, ``reset_to_end`` or ``reset_to_start``. "
            "Cursor windows.",
            template=True,
            modes=("cursor",),
            via="policies",
        ),
    ] = "fail"

    new_partition_position: Annotated[
        Literal["earliest", "stable"],
        BeforeValidator(end_word),
        Option(
            "where a partition begins that appeared since: ``earliest`` or ``stable``.",
            template=True,
            via="policies",
        ),
    ] = "earliest"
    gap_policy: Annotated[
        Literal["fail", "skip"],
        Option(
            "retention took part of the window: ``fail`` or ``skip`` (recorded).",
            template=True,
            via="policies",
        ),
    ] = "fail"
    corrupt_records: Annotated[
        Literal["fail", "drop", "quarantine"],
        Option(
            "a record fails its checksum, or does not decode: ``fail``, ``drop`` (counted), or "
            "``quarantine``: counted, and kept as it came in a file beside the window (sinks of "
            "files).",
            template=True,
            via="policies",
        ),
    ] = "fail"
    quarantine_topic: Annotated[
        str | None,
        BeforeValidator(blank_is_none),
        Option(
            "topic of the same cluster that quarantined records are also sent to, each once per "
            "window, with the reason and their origin as attributes. TubeMQ.",
            template=True,
            via="policies",
        ),
    ] = None
    on_clear: Annotated[
        Literal["verify", "rewrite"],
        Option(
            "what a cleared task does that finds its window written: ``verify`` counts the rows in "
            "the sink again and leaves it; ``rewrite`` reads the same offsets again and replaces "
            "the window in one step (object stores and databases).",
            template=True,
            via="policies",
        ),
    ] = "verify"
    on_other_scope: Annotated[
        Literal["fail", "start_anew"],
        Option(
            "a group without windows meets some of its topic in the sink that were written under "
            "another group, cluster alias or mode, or with other filters: ``fail``, as it would "
            "store all records again; ``start_anew`` begins beside them. Also asked of windows of "
            "time or explicit offsets beside the cursor of the same group.",
            template=True,
            via="policies",
        ),
    ] = "fail"
    on_missing_interval: Annotated[
        Literal["warn", "fail"],
        Option(
            "between a window of time and its nearest published neighbour lies time that no "
            "published window has, as after a change of the schedule: ``warn`` (in log, result and "
            "event) or ``fail``, which a retry cures if a run that is under way brings it.",
            template=True,
            modes=("time",),
            via="policies",
        ),
    ] = "warn"
    commit_to_broker: Annotated[
        bool,
        Option(
            "also commit the next offsets of the group at the brokers, where the source's own "
            "tools show them; best effort.",
            modes=("cursor",),
        ),
    ] = False
    offset_store: Annotated[
        Any,
        BeforeValidator(_store),
        Option(
            "where progress is kept: ``asset_state``; ``ledger``, if the deployment has it, where "
            "cursor windows of a group may run side by side; ``events``.",
            dagster="progress is in the resource's offsets_dir or offset_store; claims=True keeps "
            "claims in offsets_dir",
        ),
    ] = "asset_state"
    skip_if_empty: Annotated[
        bool,
        Option(
            "a run that finds nothing to read is skipped instead of a success, and so is what "
            "comes after it. A window of time that is empty is then written, and shows in the "
            "sink's coverage, without a commit event. Not the run that resolves where a group "
            "begins, or that passes over what retention took or a reset left out: nothing else "
            "would tell of it.",
            dagster="there is nothing to skip",
        ),
    ] = False
    emit_replayed: Annotated[
        bool,
        Option(
            "emit an event of the sink's asset again for a window that has had one.",
            dagster="each run is reported",
        ),
    ] = False
    deferrable: Annotated[
        bool | None,
        Option(
            'with ``engine="submit"``: wait in the triggerer, without a worker slot, while the '
            "application runs; `execution_timeout` counts from the begin of the try. Default: "
            "Airflow's ``[operators] default_deferrable``, which other engines ignore; True is "
            "refused with them. The worker's machine has to outlive the task, as the application "
            "runs there.",
            writes=True,
            dagster="a run waits in its own process",
        ),
    ] = None
