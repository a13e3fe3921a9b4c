"""Value objects for arguments that belong together: policies, the engine, a resolver.

A value object stands for several arguments of an ingest and is expanded before validation, so each
rule exists once, in `arguments`. Airflow renders templates inside of value objects by their
`template_fields`, in place; a caller that renders one copies it first. Value objects validate
nothing themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields
from datetime import timedelta
from typing import Any, ClassVar, Final

__all__ = [
    "VALUES",
    "Auto",
    "History",
    "IngestPolicies",
    "MessageTime",
    "Spark",
    "SparkConnect",
    "SparkSubmit",
    "StoreTime",
    "Timeline",
    "Value",
    "expand_values",
    "members",
]


class Value:
    """Base of the value objects.

    `names` maps members to arguments with another name; `fixed` are arguments that the object
    implies.
    """

    names: ClassVar[Mapping[str, str]] = {}
    fixed: ClassVar[Mapping[str, str]] = {}

    @property
    def template_fields(self) -> tuple[str, ...]:
        """All members, which may be templates."""
        return tuple(field.name for field in fields(self))  # type: ignore[arg-type]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that this object stands for."""
        return {
            **self.fixed,
            **{self.names.get(name, name): getattr(self, name) for name in self.template_fields},
        }


@dataclass
class IngestPolicies(Value):
    """Policies of a window for unexpected conditions; the defaults fail.

    Each is an option of `IngestArguments`, which describes it.
    """

    gap_policy: str = "fail"
    on_offset_regression: str = "fail"
    new_partition_position: str = "earliest"
    corrupt_records: str = "fail"
    quarantine_topic: str | None = None
    on_clear: str = "verify"
    on_other_scope: str = "fail"
    on_missing_interval: str = "warn"
    max_run_window: timedelta | float | str | None = None


@dataclass(repr=False)
class _OnSpark(Value):
    """Common members of the engines on Spark."""

    conf: Mapping[str, str] | None = None
    direct_write: str = "auto"
    conn_id: str | None = None

    def __repr__(self) -> str:
        """Return text with the names of settings only.

        Airflow shows an object in a rendered argument by its `repr`, and a setting may be a secret.
        """
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.conf is not None:
            shown["conf"] = _names_of(self.conf)
        text = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({text})"


@dataclass(repr=False)
class Spark(_OnSpark):
    """Engine ``session``: Spark in the task's process, in a new session configured by `conf`.

    ``spark.master`` defaults to ``local[2]``. `direct_write`: tasks write files themselves.
    `conn_id`: an Airflow connection of type ``spark``, with the master. `ship_package`: executors
    get this package as a zip.
    """

    ship_package: bool = False

    names: ClassVar[Mapping[str, str]] = {"conf": "spark_conf", "conn_id": "spark_conn_id"}
    fixed: ClassVar[Mapping[str, str]] = {"engine": "session"}


@dataclass(repr=False)
class Auto(_OnSpark):
    """Engine ``auto``: inline for small windows, else `Spark` with these options."""

    ship_package: bool = False

    names: ClassVar[Mapping[str, str]] = {"conf": "spark_conf", "conn_id": "spark_conn_id"}
    fixed: ClassVar[Mapping[str, str]] = {"engine": "auto"}


@dataclass(repr=False)
class SparkSubmit(_OnSpark):
    """Engine ``submit``: `spark-submit` as a separate process, which outlives the task.

    `work_dir` is where applications keep the state that the next try resumes; `ship_package`: nodes
    get this package as a zip.
    """

    work_dir: str | None = None
    ship_package: bool = False

    names: ClassVar[Mapping[str, str]] = {
        "conf": "spark_conf",
        "conn_id": "spark_conn_id",
        "work_dir": "spark_work_dir",
    }
    fixed: ClassVar[Mapping[str, str]] = {"engine": "submit"}


@dataclass(repr=False)
class SparkConnect(_OnSpark):
    """Engine ``connect``: a session on a server of Spark Connect.

    The server is at `remote` (``sc://host:port``), or in `conn_id`, a connection of type
    ``spark_connect``, which may have a token. `conf` are settings of the session; `ship_package`:
    server and executors get this package as a zip.
    """

    ship_package: bool = False
    remote: InitVar[str | None] = field(default=None, kw_only=True)

    names: ClassVar[Mapping[str, str]] = {"conf": "spark_conf", "conn_id": "spark_conn_id"}
    fixed: ClassVar[Mapping[str, str]] = {"engine": "connect"}

    def __post_init__(self, remote: str | None) -> None:
        if remote is not None:
            self.conf = {**(self.conf or {}), "spark.remote": remote}


@dataclass
class Timeline(Value):
    """Resolver by arrival, from the samples of `TubeMQSampleEndsOperator`."""

    late_allowance: timedelta | float | str | None = None

    fixed: ClassVar[Mapping[str, str]] = {"resolver": "timeline"}


@dataclass
class History(Value):
    """Resolver by arrival, from the brokers' records about `group`, by default the look-up
    group."""

    group: str | None = None
    late_allowance: timedelta | float | str | None = None

    names: ClassVar[Mapping[str, str]] = {"group": "history_group"}
    fixed: ClassVar[Mapping[str, str]] = {"resolver": "history"}


@dataclass
class MessageTime(Value):
    """Resolver by the producers' minutes in `zone`, by default UTC."""

    zone: str | None = None
    late_allowance: timedelta | float | str | None = None

    names: ClassVar[Mapping[str, str]] = {"zone": "message_zone"}
    fixed: ClassVar[Mapping[str, str]] = {"resolver": "message_time"}


@dataclass
class StoreTime(Value):
    """Resolver by the brokers' own time of storing, where a source has it.

    `late_allowance`: how long past an instant every broker's clock must be before a boundary there
    is final; two seconds at least.
    """

    late_allowance: timedelta | float | str | None = None

    fixed: ClassVar[Mapping[str, str]] = {"resolver": "store_time"}


VALUES: Final[Mapping[str, tuple[type[Value], ...]]] = {
    "policies": (IngestPolicies,),
    "engine": (Spark, SparkConnect, SparkSubmit, Auto),
    "resolver": (Timeline, History, MessageTime, StoreTime),
}
"""Arguments that accept value objects, and their classes."""


def expand_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return `arguments` with value objects expanded."""
    expanded = {
        name: current for name, current in arguments.items() if not isinstance(current, Value)
    }
    for value in arguments.values():
        if isinstance(value, Value):
            expanded |= value.arguments()
    return expanded


def _names_of(conf: object) -> object:
    """Return the part of Spark's settings that may be shown."""
    return dict.fromkeys(conf, "***") if isinstance(conf, Mapping) else "***"


def members(kind: type[Value]) -> frozenset[str]:
    """Return the arguments that value objects of a class stand for."""
    return frozenset(kind().arguments())
