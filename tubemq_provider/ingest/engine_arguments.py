"""Rules between the arguments that choose and configure an engine.

Arguments without effect on an engine are refused, and so are those that it does not support;
settings that are still templates are checked after rendering. This module opens nothing and imports
no engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tubemq_provider.ingest.options import DEFERRABLE_ENGINES, SPARK_ENGINES, without_effect
from tubemq_provider.ingest.validation import is_template

if TYPE_CHECKING:
    from tubemq_provider.ingest.fields import IngestFields

__all__ = ["REGISTRY_NEEDS_INLINE", "engine_problems"]

REGISTRY_NEEDS_INLINE: Final = (
    "decode: schema_registry needs engine='inline', whose process asks the registry; for others "
    "list the schemas in 'schemas'"
)

_DEPLOY: Final = "spark.submit.deployMode"
_MASTER: Final = "spark.master"
_REMOTE: Final = "spark.remote"
_AUTHENTICATE: Final = "spark.connect.authenticate.token"


def engine_problems(arguments: IngestFields) -> list[str]:
    """Return combinations that conflict, and arguments without effect on the engine."""
    name = arguments.engine if isinstance(arguments.engine, str) else arguments.engine.name
    problems = without_effect(arguments, "engine", name)
    if arguments.deferrable and arguments.engine not in DEFERRABLE_ENGINES:
        problems.append(
            f"deferrable=True needs engine='submit': the work of engine={arguments.engine!r} ends "
            f"with the task's process"
        )
    if arguments.routes is not None and arguments.deferrable:
        problems.append(
            "deferrable=True is not available with routes: what Spark wrote for their tables is "
            "accepted by the try that began them"
        )
    if arguments.routes is not None and arguments.spark_conf.get(_DEPLOY) == "cluster":
        problems.append(
            f"spark_conf: {_DEPLOY}='cluster' is not available with routes: leave the driver on "
            "this machine (client)"
        )
    if arguments.engine != "inline" and _names_registry(arguments.decode):
        problems.append(REGISTRY_NEEDS_INLINE)
    return [*problems, *_of_direct_write(arguments), *_of_spark(arguments)]


def _names_registry(decode: object) -> bool:
    if not isinstance(decode, dict):
        return False
    return bool(decode.get("schema_registry")) or _names_registry(decode.get("then"))


def _of_direct_write(arguments: IngestFields) -> list[str]:
    changed = "transform" if arguments.transform else "sql" if arguments.sql else ""
    engines_with_frames = (*SPARK_ENGINES, "auto")
    if changed and arguments.engine not in engines_with_frames:
        engines = " or ".join(map(repr, engines_with_frames))
        return [f"{changed} needs engine={engines}, and has no effect with {arguments.engine!r}"]
    problems = []
    if arguments.transform and arguments.sql:
        problems.append("give either transform or sql")
    if arguments.engine == "inline" or arguments.direct_write != "off":
        return problems
    if arguments.target_file_bytes is not None:
        problems.append("target_file_bytes has no effect with direct_write='off'")
    if arguments.partition_by:
        problems.append("partition_by needs the direct write: unavailable with direct_write='off'")
    if arguments.corrupt_records == "quarantine":
        problems.append("corrupt_records='quarantine' needs the direct write: direct_write='off'")
    if arguments.max_files is not None:
        problems.append("max_files needs the direct write: unavailable with direct_write='off'")
    return problems


def _of_spark(arguments: IngestFields) -> Iterator[str]:
    conf = arguments.spark_conf
    mode = conf.get(_DEPLOY, "client")
    if arguments.engine == "connect":
        yield from _of_connect(arguments)
        return
    if _REMOTE in conf:
        yield f"spark_conf: {_REMOTE} has no effect; engine='connect' uses a server"
    if arguments.engine == "submit":
        yield from (f"spark_conf: {each}" for each in _of_deploying(arguments))
    elif mode != "client" and not is_template(mode) and arguments.engine != "inline":
        yield (
            f"spark_conf: {_DEPLOY}={mode!r}: drivers run in the task (client), executors "
            f"on the cluster; engine='submit' has cluster mode, on YARN"
        )
    if arguments.spark_conn_id and _MASTER in conf:
        yield f"spark_conf: {_MASTER} is set by spark_conn_id; give one of them"


def _of_connect(arguments: IngestFields) -> Iterator[str]:
    conf = arguments.spark_conf
    remote = conf.get(_REMOTE, "")
    if bool(remote) == bool(arguments.spark_conn_id):
        yield (
            f"engine='connect' needs the address of a server: either spark_conf={{'{_REMOTE}': "
            f"'sc://host:port'}} or spark_conn_id, a connection of type spark_connect"
        )
    if remote and not is_template(remote) and not remote.startswith("sc://"):
        yield f"spark_conf: {_REMOTE}={remote!r} does not begin with sc://"
    if _AUTHENTICATE in conf or ";token=" in remote.replace("/;", ";"):
        yield "spark_conf: a token is a secret: make it the password of spark_conn_id"
    if _MASTER in conf:
        yield f"spark_conf: {_MASTER} is the server's, and has no effect with engine='connect'"
    if arguments.direct_write == "off":
        yield "direct_write='off' is not available with engine='connect'"


def _of_deploying(arguments: IngestFields) -> list[str]:
    from tubemq_provider.engines.cluster_mode import deploy_problems, ignored_settings

    conf = arguments.spark_conf
    unread = ignored_settings({key: "" for key in conf if not is_template(key)})
    if is_template(conf.get(_DEPLOY)):
        return unread
    master: str | None = conf.get(_MASTER, "local")
    if arguments.spark_conn_id or is_template(master):
        master = None
    return [*unread, *deploy_problems(master, conf, ship_package=arguments.ship_package)]
