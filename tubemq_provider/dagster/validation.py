"""What an asset is told, as the arguments of an ingest: judged when its definition is loaded.

The same mistakes that Airflow's operators refuse when a Dag is parsed: names that TubeMQ cannot
have, places that mean something else on each machine, words that mean nothing, what has no effect.
Opens nothing and asks no cluster; a topic that does not exist shows in the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, Final

import dagster as dg

from tubemq_client.errors import ConfigError
from tubemq_provider.ingest.arguments import IngestArguments, begins_at_end
from tubemq_provider.ingest.validation import parse
from tubemq_provider.ingest.values import IngestPolicies, members
from tubemq_provider.windows.policies import Policies

__all__ = ["UNNAMED", "asset_arguments", "is_argument"]

UNNAMED: Final = "unnamed"
"""The cluster of an asset that leaves it to the resource."""

_OURS: Final = {
    "mode": "partitions_def and starting_offsets say it",
    "start": "partitions_def says it",
    "end": "partitions_def says it",
    "granularity": "partitions_def says it",
    "max_run_window": "partitions_def says which windows there are",
    "path": "sink says it",
    "sink_conn_id": "pass storage_options, catalog_properties or a Sink",
    "spark_conn_id": "spark_conf says it",
    "offset_store": "progress is in the resource's offsets_dir; claims=True keeps claims there",
    "skip_if_empty": "there is nothing to skip",
    "emit_replayed": "each run is told of",
    "deferrable": "a run waits in its own process",
}
"""Arguments that Airflow's operators have, and what says the same here."""

_POLICIES: Final = tuple(sorted(members(IngestPolicies) & {*Policies.__dataclass_fields__}))


class _Placed(IngestArguments):
    """Arguments beside a sink that is an object already, and judged itself."""

    def _sink_problems(self) -> list[str]:
        return []


def is_argument(name: str) -> bool:
    """Whether an option is one of an ingest, and not one of `dagster.asset`."""
    return name in IngestArguments.model_fields


def asset_arguments(
    name: str,
    sink: object,
    partitions_def: object,
    policies: Policies | None,
    given: Mapping[str, Any],
    *,
    claims: bool = False,
) -> IngestArguments:
    """The arguments of the asset `name`, whose runs claim windows if `claims`. Raises `ConfigError`
    with every problem; None is what was not given."""
    problems = [f"{word} has no effect: {_OURS[word]}" for word in given if word in _OURS]
    problems += [
        f"{word}: {value!r} names nothing, and what was asked for is not taken for left out"
        for word, value in given.items()
        if isinstance(value, str) and value.strip() in ("", "None") and word != "epoch"
    ]
    chosen = {word: value for word, value in given.items() if word not in _OURS}
    if policies is not None:
        named = [word for word in _POLICIES if word in chosen]
        problems += [f"{word}: give it in policies, or without them" for word in named]
        chosen |= {word: getattr(policies, word).value for word in _POLICIES}
    problems += _settle_mode(chosen, partitions_def)
    if chosen["mode"] == "cursor" and not claims and begins_at_end(chosen):
        problems.append(
            "initial_position 'stable' needs claims=True: Dagster lets runs overlap, and two first "
            "ones would each begin at an end of their own"
        )
    chosen = {"engine": "inline", "cluster": UNNAMED, **chosen}
    written = isinstance(sink, str | PathLike)
    try:
        found = parse(
            IngestArguments if written else _Placed,
            {**chosen, "sink": fspath(sink)} if isinstance(sink, str | PathLike) else chosen,
        )
    except ConfigError as exc:
        problems += exc.problems
    if problems:
        raise ConfigError(problems, subject=f"asset {name!r}")
    return found


def _settle_mode(chosen: dict[str, Any], partitions_def: object) -> list[str]:
    """Windows of a cursor, of time or of explicit offsets, as is told by what is given; problems of
    what does not go together."""
    problems = []
    timed = partitions_def is not None
    explicit = "starting_offsets" in chosen or "ending_offsets" in chosen
    if timed and not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        problems.append("partitions_def must be partitions of time (hourly, daily, …)")
    if timed and explicit:
        problems.append("starting_offsets and ending_offsets have no effect with partitions_def")
    if "boundaries" in chosen and not timed:
        problems.append("boundaries need partitions_def")
        del chosen["boundaries"]
    if timed and "boundaries" not in chosen:
        chosen.setdefault("resolver", "timeline")
    chosen["mode"] = "time" if timed or explicit else "cursor"
    return problems
