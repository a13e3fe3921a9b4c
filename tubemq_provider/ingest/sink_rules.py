"""Arguments that a kind of sink supports, checked by its address before anything is opened.

Each message names the argument without effect, or that the sink cannot honour, and an alternative.
This module must not know how a sink works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError
from tubemq_provider.ingest.options import FILE_SINKS, is_changed, problems_of_sink
from tubemq_provider.sinks.factory import (
    accepted_options,
    missing_extra,
    needless_connection,
    sink_word,
    spec_problems,
)
from tubemq_provider.windows.partitioning import partition_problems

if TYPE_CHECKING:
    from tubemq_provider.ingest.fields import IngestFields

__all__ = ["problems_of_object", "sink_problems"]

_REWRITING = ("s3", "gs", "az", "postgresql", "sqlite", "oracle", "mssql")


def sink_problems(spec: str, arguments: IngestFields) -> list[str]:
    """Return the arguments that the sink at `spec` does not support."""
    problems = [
        f"sink: {problem}" for problem in spec_problems(spec, exactly_once=arguments.exactly_once)
    ]
    if not problems and (missing := missing_extra(spec)):
        problems.append(f"sink: {missing}")
    word = sink_word(spec)
    try:
        accepted = accepted_options(word)
    except ConfigError:
        return problems  # a plug-in that cannot be used, as the problems say
    problems += [
        f"partition_by: {problem}"
        for problem in partition_problems(
            arguments.partition_by, arguments.max_partitions, folders=word in FILE_SINKS
        )
    ]
    problems += problems_of_sink(arguments, word, accepted)
    if arguments.sink_conn_id and (needless := needless_connection(spec)):
        problems.append(needless)
    if arguments.on_clear == "rewrite":
        problems += _no_rewrite(word)
    if (
        arguments.corrupt_records == "quarantine"
        and word not in FILE_SINKS
        and ("quarantine" not in accepted)
    ):
        problems.append(
            "corrupt_records='quarantine' needs a sink of files (a Parquet directory or an "
            f"object store), which keeps them beside the window; {word} has no such place"
        )
    return problems


def problems_of_object(arguments: IngestFields) -> list[str]:
    """Return the arguments without effect on a sink that is passed as an object."""
    late = ("sink_conn_id", "staging_root", "partition_by", "max_partitions", "schema_evolution")
    return [
        f"{name} has no effect on a sink that is an object: give it where the sink is made"
        for name in (*late, "verify")
        if is_changed(arguments, name)
    ]


def _no_rewrite(word: str) -> list[str]:
    """Return the reason why a sink cannot replace a window in one step."""
    if word in _REWRITING or "rewrite" in accepted_options(word):
        return []
    reasons = {
        "parquet": "a Parquet directory cannot replace a window in one step",
        "append": "appended files have no marker that says what to replace",
        "delta": "files of a window may have been compacted with others",
        "iceberg": "files of a window may have been compacted with others",
    }
    hint = "use an object store or a database, or delete the window and its marker by hand"
    reason = reasons.get(word, f"{word} cannot replace a window in one step")
    return [f"on_clear='rewrite': {reason}; {hint}"]
