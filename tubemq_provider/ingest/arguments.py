"""Arguments of an ingest as one model: the only place where they are validated.

Field rules first, then cross-field rules; every problem is listed at once. An option without effect
is refused rather than ignored. Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import PurePath
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field

from tubemq_client import errors
from tubemq_client.config import GroupName
from tubemq_provider.ingest.engine_arguments import EngineArguments, engine_problems
from tubemq_provider.ingest.sink_rules import SinkArguments, sink_problems
from tubemq_provider.ingest.validation import (
    ClusterAlias,
    GivenOffsets,
    SourceFilter,
    SourceGroup,
    SourceTopic,
    TaskArguments,
    blank_is_none,
    from_json,
    is_template,
    offsets_for_topic,
    with_zone,
)
from tubemq_provider.offsets.registry import StoreName
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks.parquet import local_root
from tubemq_provider.windows.canonical import in_utc
from tubemq_provider.windows.policies import end_word, words_in
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

__all__ = [
    "IngestArguments",
    "InitialPosition",
    "begins_at_end",
    "names_with_latest",
    "sink_template_problems",
]

Mode = Literal["cursor", "time"]
Resolver = Literal["boundaries", "timeline", "history", "message_time", "store_time", "explicit"]

_CURSOR_ONLY = {
    "initial_position": None,
    "max_records": None,
    "max_bytes": None,
    "max_duration": None,
    "on_offset_regression": "fail",
    "epoch_seen": None,
    "commit_to_broker": False,
}
_TIME_ONLY = (
    "start",
    "end",
    "granularity",
    "max_run_window",
    "resolver",
    "boundaries",
    "late_allowance",
    "history_group",
    "message_zone",
    "starting_offsets",
    "ending_offsets",
)
_OF_EVERY_KIND = ("boundaries", "timeline", "explicit")
"""Resolvers of every kind of source."""
_OF_TIME = ("boundaries", "timeline", "history", "message_time", "store_time")
_OF_RESOLVER = {
    "boundaries": ("boundaries",),
    "late_allowance": ("timeline", "history", "message_time", "store_time"),
    "history_group": ("history",),
    "message_zone": ("message_time",),
    "start": _OF_TIME,
    "end": _OF_TIME,
    "granularity": _OF_TIME,
    "max_run_window": _OF_TIME,
    "starting_offsets": ("explicit",),
    "ending_offsets": ("explicit",),
}
"""Arguments that apply to some resolvers only."""
_WITH_ENDS = (
    "initial_position",
    "new_partition_position",
    "starting_offsets",
    "ending_offsets",
)
"""Arguments that may contain a keyword for the stable end."""


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
    if isinstance(value, (str, dict)) and (problems := DecodeSpec.judge(value)):
        raise ValueError("; ".join(problems))
    return value


Decode = Annotated[str | dict[str, Any] | None, BeforeValidator(_decode)]
"""Argument of `rows.DecodeSpec`; its files are read with the window."""


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


class IngestArguments(TaskArguments):
    """Arguments of an ingest, in Airflow's operators and Dagster's assets; see docs/airflow.md."""

    source: str = FIRST_SOURCE
    topic: SourceTopic
    group: SourceGroup
    path: Annotated[str | None, AfterValidator(_of_path)] = None
    sink: str | None = None
    sink_conn_id: Annotated[str | None, BeforeValidator(blank_is_none)] = None
    exactly_once: bool = True
    staging_root: Directory = None
    verify: Literal["facts", "footers"] = "facts"
    partition_by: Columns = ()
    max_partitions: Count = Field(None, ge=1)
    schema_evolution: Literal["refuse", "add_columns"] = "refuse"
    cluster: ClusterAlias
    mode: Mode = "cursor"
    engine: Literal["session", "inline", "auto", "submit", "connect"] = "session"
    spark_conf: SparkConf = Field(default_factory=dict, repr=False)
    spark_conn_id: Annotated[str | None, BeforeValidator(blank_is_none)] = None
    spark_work_dir: Directory = None
    ship_package: bool = False
    direct_write: Literal["auto", "on", "off"] = "auto"
    target_file_bytes: Count = Field(None, ge=1)
    compression: Literal["snappy", "zstd", "gzip", "lz4", "none"] | None = None
    decode: Decode = None
    transform: Annotated[str | None, AfterValidator(_dotted)] = None
    sql: Annotated[str | None, BeforeValidator(blank_is_none)] = None
    filters: Filters = ()
    epoch: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,64}$")] | None = None
    epoch_seen: Annotated[str, Field(pattern=r"^c-[0-9]+-[0-9a-f]{10}$")] | None = None

    start: Instant = None
    end: Instant = None
    granularity: Length = None
    max_run_window: Length = None
    resolver: Resolver | None = None
    boundaries: GivenBoundaries | None = None
    late_allowance: Duration = None
    history_group: Annotated[GroupName | None, BeforeValidator(blank_is_none)] = None
    message_zone: Annotated[
        str | None, BeforeValidator(blank_is_none), AfterValidator(_known_zone)
    ] = None
    starting_offsets: GivenOffsets | None = None
    ending_offsets: GivenOffsets | None = None

    initial_position: InitialPosition = None
    max_records: Count = Field(None, ge=1)
    max_bytes: Count = Field(None, ge=1)
    max_duration: Duration = None
    on_offset_regression: Literal["fail", "reset_to_end", "reset_to_start"] = "fail"

    new_partition_position: Annotated[Literal["earliest", "stable"], BeforeValidator(end_word)] = (
        "earliest"
    )
    gap_policy: Literal["fail", "skip"] = "fail"
    corrupt_records: Literal["fail", "drop", "quarantine"] = "fail"
    on_clear: Literal["verify", "rewrite"] = "verify"
    on_other_scope: Literal["fail", "start_anew"] = "fail"
    on_missing_interval: Literal["warn", "fail"] = "warn"
    commit_to_broker: bool = False
    offset_store: StoreName = "asset_state"
    skip_if_empty: bool = False
    emit_replayed: bool = False
    deferrable: bool | None = None

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """Return combinations that conflict, and arguments without effect."""
        problems = [*self._of_mode(), *self._of_window()]
        if self.offset_store == "events" and self.mode == "time" and self.by == "timeline":
            problems.append("resolver='timeline' needs asset state; offset_store='events' has none")
        if self.offset_store == "events" and self.mode == "cursor" and self.on_clear == "rewrite":
            problems.append(
                "on_clear='rewrite' has no effect with mode='cursor' and offset_store='events', "
                "which forgets what window a task had"
            )
        if not unknown & {"path", "sink"}:
            problems += self._sink_problems()
        if not unknown & {"starting_offsets", "ending_offsets"}:
            problems += self._of_resolver()
        problems += engine_problems(
            EngineArguments(*(getattr(self, name) for name in EngineArguments._fields))
        )
        if self.epoch_seen and not self.epoch:
            problems.append("epoch_seen has no effect without epoch, the name of a new one")
        if "topic" not in unknown:
            problems += self._of_offsets()
            if self.by == "explicit" and not unknown & {"starting_offsets", "ending_offsets"}:
                problems += self._of_ranges()
        return problems

    @property
    def destination(self) -> str:
        """Address of the sink, for `sink_for`."""
        return self.sink or self.path or ""

    @property
    def sink_options(self) -> dict[str, Any]:
        """Options of the sink besides its address, for `sink_for`.

        Options left at their default are omitted, so that sinks without such an option need not
        accept it.
        """
        always = {name: getattr(self, name) for name in ("exactly_once", "staging_root")}
        others = ("verify", "partition_by", "max_partitions", "schema_evolution")
        chosen = self.model_dump(include={*others}, exclude_defaults=True)
        return {**always, **chosen}

    def offsets(self, name: str) -> dict[str, int | str]:
        """Return the offsets by partition key of the argument `name`, with or without the topic.

        Raises `ValueError` with every problem, each beginning with the name.
        """
        offsets = getattr(self, name) or {}
        return offsets_for_topic(offsets, self.topic, name, allow_keywords=True, source=self.source)

    def _sink_problems(self) -> list[str]:
        spec = self.destination
        if (self.path is None) == (self.sink is None):
            return ["give either path or sink"]
        if is_template(spec):
            return []
        return sink_problems(
            spec, SinkArguments(*(getattr(self, name) for name in SinkArguments._fields))
        )

    @property
    def by(self) -> Resolver:
        """Resolver of a time window: the named one, or the one that the other arguments imply."""
        if self.resolver:
            return self.resolver
        return "explicit" if self.starting_offsets or self.ending_offsets else "boundaries"

    def _of_offsets(self) -> list[str]:
        problems = []
        for name in ("starting_offsets", "ending_offsets", "initial_position"):
            value = getattr(self, name)
            if isinstance(value, dict) and not is_template(value):
                try:
                    self.offsets(name)
                except ValueError as exc:
                    problems.append(str(exc))
        return problems

    def _of_ranges(self) -> list[str]:
        """Check that both sides of explicit offsets name the same partitions, in order."""
        sides = (self.starting_offsets, self.ending_offsets)
        if not all(sides) or any(is_template(side) for side in sides):
            return []
        try:
            start, end = (self.offsets(name) for name in ("starting_offsets", "ending_offsets"))
        except ValueError:
            return []  # listed as a problem of one side
        problems = [f"starting_offsets: {key} is missing" for key in sorted(end.keys() - start)]
        problems += [f"ending_offsets: {key} is missing" for key in sorted(start.keys() - end)]
        for key in sorted(start.keys() & end):
            first, last = start[key], end[key]
            if isinstance(first, int) and isinstance(last, int) and first > last:
                problems.append(f"starting_offsets: {key}: {first} is beyond its end {last}")
        return problems

    def _of_mode(self) -> list[str]:
        if self.mode == "cursor":
            without_effect = [name for name in _TIME_ONLY if getattr(self, name) is not None]
            if self.on_missing_interval != "warn":
                without_effect.append("on_missing_interval")
            return [
                f"{name} has no effect with mode='cursor'; use mode='time'"
                for name in without_effect
            ]
        return [
            f"{name} has no effect with mode='time'"
            for name, default in _CURSOR_ONLY.items()
            if getattr(self, name) != default
        ]

    def _of_resolver(self) -> list[str]:
        if self.mode != "time":
            return []
        problems = [
            f"{name} has no effect with resolver={self.by!r}"
            for name, resolvers in _OF_RESOLVER.items()
            if getattr(self, name) is not None and self.by not in resolvers
        ]
        own = space_of(self.source).resolvers
        if own is not None and self.by not in (*_OF_EVERY_KIND, *own):
            problems.append(
                f"resolver={self.by!r} is not available for {self.source}; choose one of "
                f"{', '.join((*_OF_EVERY_KIND, *own))}"
            )
        if self.by == "explicit":
            if self.new_partition_position != "earliest":
                problems.append("new_partition_position has no effect with resolver='explicit'")
            missing = [n for n in ("starting_offsets", "ending_offsets") if not getattr(self, n)]
            problems = [f"{name} is needed by resolver='explicit'" for name in missing] + problems
        if self.by == "boundaries" and self.boundaries is None:
            problems.append(
                "boundaries is needed by resolver='boundaries': a mapping, or where its file is"
            )
        return problems

    def _of_window(self) -> list[str]:
        if (self.start is None) != (self.end is None):
            return ["give both start and end, or neither"]
        if self.start and self.end and self.start >= self.end:
            return [f"start {_text(self.start)} is not before end {_text(self.end)}"]
        return [
            f"{name} {value} is less than {least}"
            if name == "max_duration"
            else f"{name} {value} is {'negative' if value else 'zero'}"
            for name, value, least in (
                ("granularity", self.granularity, timedelta(microseconds=1)),
                ("max_run_window", self.max_run_window, timedelta(microseconds=1)),
                ("late_allowance", self.late_allowance, timedelta(0)),
                ("max_duration", self.max_duration, timedelta(seconds=1)),
            )
            if value is not None and value < least
        ]


_INEXACT = ("timeline", "history", "message_time", "store_time")
_SAME_FOR_ALL_RUNS = {"var", "conn", "dag", "task"}


def sink_template_problems(arguments: Mapping[str, Any]) -> list[str]:
    """Return problems of a templated sink in `arguments` before rendering.

    Boundaries that are fixed in a sink are shared only by windows in the same sink.
    """
    name = "sink" if arguments.get("sink") else "path"
    varies = _varying(arguments.get(name))
    resolver = arguments.get("resolver")
    if arguments.get("mode") != "time" or resolver not in _INEXACT or not varies:
        return []
    problem = (
        f"{name}: {varies} gives each run another sink, and resolver={resolver!r} fixes the "
        f"boundaries that neighbours share in the sink: records between two windows would be "
        f"lost or stored twice. Use one sink (its windows are separate), or "
        f"resolver='boundaries'"
    )
    return [problem]


def _varying(spec: object) -> str | None:
    """Return the names in a template that give runs of one Dag different sinks."""
    if not isinstance(spec, str) or not is_template(spec):
        return None
    jinja: Any = import_module("jinja2")
    meta: Any = import_module("jinja2.meta")
    try:
        names = meta.find_undeclared_variables(jinja.Environment(autoescape=True).parse(spec))
    except jinja.TemplateSyntaxError:
        return None  # Airflow reports it when it renders the template
    return ", ".join(sorted(names - _SAME_FOR_ALL_RUNS)) or None


def begins_at_end(arguments: Mapping[str, Any]) -> bool:
    """Return True if unchecked `arguments` let any partition begin at the stable end."""
    return not {"stable", "latest"}.isdisjoint(
        words_in(_lenient(arguments.get("initial_position")))
    )


def names_with_latest(arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of unchecked `arguments` that use ``latest`` for the stable end."""
    return [name for name in _WITH_ENDS if "latest" in words_in(_lenient(arguments.get(name)))]


def _lenient(value: object) -> object:
    try:
        return from_json(value)
    except ValueError:
        return None


def _text(instant: datetime) -> str:
    return instant.isoformat()
