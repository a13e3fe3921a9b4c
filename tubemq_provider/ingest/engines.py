"""Build the engine that executes a plan, from checked arguments.

An engine is imported on demand, with its dependencies. This module must not decide what is read.
"""

from __future__ import annotations

from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.extensions import call
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks.routed import RoutedSink

if TYPE_CHECKING:
    from tubemq_provider.engines.spark_engine import EngineShape
    from tubemq_provider.ingest.arguments import IngestArguments
    from tubemq_provider.sources.base import Source
    from tubemq_provider.windows.policies import Policies
    from tubemq_provider.windows.protocols import Engine, Sink

__all__ = [
    "make_auto",
    "make_connect",
    "make_engine",
    "make_inline",
    "make_session",
    "make_submit",
]

_LOCAL_SPARK: Final = "local[2]"
_BAR: Final = {"spark.ui.showConsoleProgress": "false"}
"""A progress bar fills a log with carriage returns."""


def make_engine(
    arguments: IngestArguments,
    source: Source,
    policies: Policies,
    stack: ExitStack,
    sink: Sink | None = None,
) -> Engine:
    """Return the engine of `arguments`; `stack` stops what it starts. That of a sink with routes
    stages in the sink's tables.

    Raises `errors.ConfigError` for one that cannot read such a source, and `MissingExtraError`.
    """
    if isinstance(sink, RoutedSink) and arguments.engine == "inline":
        from tubemq_provider.engines.routed import RoutedEngine

        return RoutedEngine.for_source(
            source,
            sink,
            policies=policies,
            target_file_bytes=arguments.target_file_bytes,
            compression=arguments.compression or "snappy",
        )
    engine: Engine | str = arguments.engine
    if not isinstance(engine, str):
        return engine
    made: Engine = call("engine", engine, arguments, source, policies, stack)
    if isinstance(sink, RoutedSink):
        made = made.into(sink)
    return made


def make_inline(
    arguments: IngestArguments,
    source: Source,
    policies: Policies,
    stack: ExitStack,  # noqa: ARG001 - starts nothing
) -> Engine:
    """Return the engine without Spark."""
    from tubemq_provider.engines.inline import FILE_BYTES, InlineEngine

    return InlineEngine.for_source(
        source,
        policies=policies,
        target_file_bytes=arguments.target_file_bytes or FILE_BYTES,
        compression=arguments.compression or "snappy",
        decode=_decoding(arguments),
        following=arguments.following,
    )


def _decoding(arguments: IngestArguments) -> DecodeSpec | None:
    return arguments.decoding


def make_session(
    arguments: IngestArguments, source: Source, policies: Policies, stack: ExitStack
) -> Engine:
    """Return Spark in the task's process."""
    _refuse_unless_in_spark(arguments, source)
    _require_pyspark(arguments.engine)
    from tubemq_provider.engines.cluster_mode import DEPLOY_MODE, is_cluster
    from tubemq_provider.engines.session import SessionEngine

    conf = _spark_conf(arguments)
    if is_cluster(conf):
        raise ConfigError(
            f"{DEPLOY_MODE}='cluster': this engine's driver runs in the task; engine='submit' has "
            f"cluster mode, on YARN",
            subject="engine",
        )
    engine = SessionEngine(
        source.settings(),
        master=conf.pop("spark.master", _LOCAL_SPARK),
        conf=conf,
        ship_package=arguments.ship_package,
        **_shape(arguments, source, policies),
    )
    stack.callback(engine.stop)
    return engine


def make_submit(
    arguments: IngestArguments, source: Source, policies: Policies, stack: ExitStack
) -> Engine:
    """Return Spark in a process of `spark-submit`."""
    _refuse_unless_in_spark(arguments, source)
    from tubemq_provider.engines.submit import SubmitEngine

    conf = _spark_conf(arguments)
    decode, following = _decoding(arguments), arguments.following
    shape = {
        **_plain_shape(arguments, source, policies),
        "decode": None if decode is None else decode.to_json(),
        "following": None if following is None else following.to_json(),
        "transform": arguments.transform,
        "sql": arguments.sql,
    }
    work_dir = arguments.spark_work_dir
    engine = SubmitEngine(
        source.settings(),
        master=conf.pop("spark.master", _LOCAL_SPARK),
        conf=conf,
        shape={name: value for name, value in shape.items() if value is not None},
        work_dir=None if work_dir is None else Path(work_dir),
        ship_package=arguments.ship_package,
    )
    stack.push(engine.leave)
    return engine


def make_connect(
    arguments: IngestArguments, source: Source, policies: Policies, stack: ExitStack
) -> Engine:
    """Return Spark on a server of Spark Connect."""
    _refuse_unless_in_spark(arguments, source)
    _require_pyspark(arguments.engine)
    from tubemq_provider.engines.connect import ConnectEngine

    conf = dict(arguments.spark_conf)
    engine = ConnectEngine(
        source.settings(),
        remote=conf.pop("spark.remote"),
        token=conf.pop("spark.connect.authenticate.token", None),
        conf=conf,
        ship_package=arguments.ship_package,
        **_shape(arguments, source, policies),
    )
    stack.callback(engine.stop)
    return engine


def _plain_shape(arguments: IngestArguments, source: Source, policies: Policies) -> EngineShape:
    """Return the options of all engines on Spark, as JSON values."""
    return {
        "kind": source.space.source,
        "gap_policy": policies.gap_policy.value,
        "corrupt_records": policies.corrupt_records.value,
        "direct_write": arguments.direct_write,
        "target_file_bytes": arguments.target_file_bytes,
    }


def _shape(arguments: IngestArguments, source: Source, policies: Policies) -> EngineShape:
    """Return the options of engines with a session in this process."""
    from tubemq_provider.engines.transforms import sql_transform

    return {
        **_plain_shape(arguments, source, policies),
        "decode": _decoding(arguments),
        "following": arguments.following,
        "transform": sql_transform(arguments.sql) if arguments.sql else arguments.transform,
    }


def _spark_conf(arguments: IngestArguments) -> dict[str, str]:
    return {**_BAR, **arguments.spark_conf}


def _refuse_unless_in_spark(arguments: IngestArguments, source: Source) -> None:
    if not _in_spark(source):
        raise ConfigError(
            f"engine={arguments.engine!r} has no Spark source for {source.space.source!r}; use "
            f"engine='inline'",
            subject="engine",
        )


def _require_pyspark(engine: str) -> None:
    """Raise `errors.MissingExtraError` without pyspark, without importing it."""
    try:
        missing = find_spec("pyspark") is None
    except (ImportError, ValueError):
        missing = True
    if missing:
        extra = "connect" if engine == "connect" else "spark"
        error = require_extra(extra, ImportError(name="pyspark"))
        raise type(error)(f"engine={engine!r}: {error}; or use engine='inline'")


def _in_spark(source: Source) -> bool:
    """Return True if a Spark format reads such a source."""
    from tubemq_provider.spark.formats import format_module

    return format_module(source.space.source) is not None


def make_auto(
    arguments: IngestArguments, source: Source, policies: Policies, stack: ExitStack
) -> Engine:
    """Return the engine that chooses by the size of a window, or Spark's where only it can."""
    if arguments.transform or arguments.sql:
        return make_session(arguments, source, policies, stack)
    if not _in_spark(source):
        return make_inline(arguments, source, policies, stack)
    from tubemq_provider.engines.auto import AutoEngine

    return AutoEngine(
        lambda: make_inline(arguments, source, policies, stack),
        lambda: make_session(arguments, source, policies, stack),
    )
