"""Arguments that belong together, as one value: policies, the engine, a way to time.

A value stands for several arguments of an ingest and is taken apart before anything is judged, so
each rule stands once, in `arguments`. Airflow fills in templates inside of values by their
`template_fields`, in place; a caller that renders one copies it first. Values judge nothing
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields
from datetime import timedelta
from typing import Any, ClassVar

from tubemq_client.errors import ConfigError

__all__ = [
    "History",
    "IngestPolicies",
    "MessageTime",
    "Spark",
    "SparkConnect",
    "SparkSubmit",
    "Timeline",
    "Value",
    "members",
    "taken_apart",
]


class Value:
    """Base of such values. `names` maps members to arguments where they differ; `fixed` are
    arguments that the value implies."""

    names: ClassVar[Mapping[str, str]] = {}
    fixed: ClassVar[Mapping[str, str]] = {}

    @property
    def template_fields(self) -> tuple[str, ...]:
        """All members may be templates."""
        return tuple(field.name for field in fields(self))  # type: ignore[arg-type]

    def arguments(self) -> dict[str, Any]:
        """The arguments that this value stands for."""
        return {
            **self.fixed,
            **{self.names.get(name, name): getattr(self, name) for name in self.template_fields},
        }


@dataclass
class IngestPolicies(Value):
    """What a window does when something is not as it should be; each is an argument of
    `TubeMQSparkIngestOperator`, which says what it means. The defaults fail."""

    gap_policy: str = "fail"
    on_offset_regression: str = "fail"
    new_partition_position: str = "earliest"
    corrupt_records: str = "fail"
    on_clear: str = "verify"
    on_other_scope: str = "fail"
    on_missing_interval: str = "warn"
    max_run_window: timedelta | float | str | None = None


@dataclass(repr=False)
class _OnSpark(Value):
    """What the engines on Spark have in common."""

    conf: Mapping[str, str] | None = None
    direct_write: str = "auto"
    conn_id: str | None = None

    def __repr__(self) -> str:
        """Settings by name only: Airflow shows a value of a rendered argument by its `repr`, and a
        setting may be a secret."""
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.conf is not None:
            shown["conf"] = _names_of(self.conf)
        told = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({told})"


@dataclass(repr=False)
class Spark(_OnSpark):
    """The engine ``session``: Spark in the task's process, with the configuration of a new session
    (``spark.master`` defaults to ``local[2]``). `direct_write`: tasks write files themselves.
    `conn_id`: an Airflow connection of type ``spark``, with the master. `ship_package`: executors
    get this package as a zip."""

    ship_package: bool = False

    names: ClassVar[Mapping[str, str]] = {"conf": "spark_conf", "conn_id": "spark_conn_id"}
    fixed: ClassVar[Mapping[str, str]] = {"engine": "session"}


@dataclass(repr=False)
class SparkSubmit(_OnSpark):
    """The engine ``submit``: `spark-submit` as a process of its own, which outlives the task.
    `work_dir` is where applications keep what the next try takes up; `ship_package`: nodes get this
    package as a zip."""

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
    """The engine ``connect``: a session on the server of Spark Connect at `remote`
    (``sc://host:port``), or of `conn_id`, a connection of type ``spark_connect``, which may have a
    token. `conf` are settings of the session; `ship_package`: server and executors get this package
    as a zip."""

    ship_package: bool = False
    remote: InitVar[str | None] = field(default=None, kw_only=True)

    names: ClassVar[Mapping[str, str]] = {"conf": "spark_conf", "conn_id": "spark_conn_id"}
    fixed: ClassVar[Mapping[str, str]] = {"engine": "connect"}

    def __post_init__(self, remote: str | None) -> None:
        if remote is not None:
            self.conf = {**(self.conf or {}), "spark.remote": remote}


@dataclass
class Timeline(Value):
    """Arrival, by the samples of `TubeMQSampleEndsOperator`."""

    late_allowance: timedelta | float | str | None = None

    fixed: ClassVar[Mapping[str, str]] = {"resolver": "timeline"}


@dataclass
class History(Value):
    """Arrival, by what brokers record of `group`: by default the look-up group of the ingest."""

    group: str | None = None
    late_allowance: timedelta | float | str | None = None

    names: ClassVar[Mapping[str, str]] = {"group": "history_group"}
    fixed: ClassVar[Mapping[str, str]] = {"resolver": "history"}


@dataclass
class MessageTime(Value):
    """The producers' minutes, which are of `zone`: UTC by default."""

    zone: str | None = None
    late_allowance: timedelta | float | str | None = None

    names: ClassVar[Mapping[str, str]] = {"zone": "message_zone"}
    fixed: ClassVar[Mapping[str, str]] = {"resolver": "message_time"}


def taken_apart(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`arguments` with values replaced by what they stand for. An argument and a value's member of
    the same name are one thing: which of them is no default counts. Raises `ConfigError` if both
    are, and differ."""
    found = {name: given for name, given in arguments.items() if not isinstance(given, Value)}
    problems: list[str] = []
    for holder, value in arguments.items():
        if not isinstance(value, Value):
            continue
        defaults = type(value)().arguments()
        for name, member in value.arguments().items():
            given = found.get(name, defaults[name])
            if member in (defaults[name], given):
                found[name] = given
            elif given == defaults[name]:
                found[name] = member
            else:
                kind = f"{holder}={type(value).__name__}(…)"
                shown, other = (_shown(name, found) for found in (given, member))
                problems.append(f"{name}: {shown}, but {other} in {kind}; give it once")
    if problems:
        raise ConfigError(problems, subject="arguments")
    return found


def _names_of(conf: object) -> object:
    """What may be shown of Spark's settings."""
    return dict.fromkeys(conf, "***") if isinstance(conf, Mapping) else "***"


def _shown(name: str, value: object) -> str:
    return repr(_names_of(value) if name == "spark_conf" else value)


def members(kind: type[Value]) -> frozenset[str]:
    """The arguments that values of a kind stand for."""
    return frozenset(kind().arguments())
