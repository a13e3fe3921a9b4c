"""Arguments of an asset as those of an ingest, checked when its definition is loaded.

Refuses the same mistakes as Airflow's operators when a Dag is parsed: invalid names, paths that
differ between machines, unknown keywords, arguments without effect. Opens nothing and queries no
cluster; a missing topic shows in the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any, Final

import dagster as dg

from tubemq_client.errors import ConfigError
from tubemq_provider.ingest.arguments import OPTIONS, IngestArguments, begins_at_end
from tubemq_provider.ingest.validation import parse
from tubemq_provider.windows.policies import Policies

UNNAMED: Final = "unnamed"
"""Cluster of an asset that leaves it to the resource."""

_EQUIVALENTS: Final = {
    "mode": "partitions_def and starting_offsets define it",
    **{name: option.dagster for name, option in OPTIONS.items() if option.dagster},
}
"""Arguments of Airflow's operators, and their equivalent here."""


class _Placed(IngestArguments):
    """Arguments beside a sink object, which is already validated."""

    def _sink_problems(self) -> list[str]:
        return []


def is_argument(name: str) -> bool:
    """Return True if an option is one of an ingest, and not of `dagster.asset`."""
    return name in IngestArguments.model_fields


def refuse_unknown(name: str, options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for options that neither an ingest nor `dagster.asset` has."""
    known = {*inspect.signature(dg.asset).parameters, *IngestArguments.model_fields}
    known -= {"compute_fn", "kwargs"}
    problems = [
        f"{option}: unknown option" + "".join(f"; did you mean {near}?" for near in near_words)
        for option in sorted(options.keys() - known)
        for near_words in [get_close_matches(option, known, n=1)]
    ]
    if problems:
        raise ConfigError(problems, subject=f"asset {name!r}")


def asset_arguments(
    name: str,
    sink: object,
    partitions_def: object,
    policies: Policies | None,
    given: Mapping[str, Any],
    *,
    claims: bool = False,
) -> IngestArguments:
    """Return the arguments of the asset `name`, whose runs claim windows if `claims`.

    Raises `ConfigError` with every problem; None means not set.
    """
    problems = [
        f"{word} has no effect: {_EQUIVALENTS[word]}" for word in given if word in _EQUIVALENTS
    ]
    problems += [
        f"{word}: {value!r} names nothing, and is not treated as a missing argument"
        for word, value in given.items()
        if isinstance(value, str) and value.strip() in ("", "None") and word != "epoch"
    ]
    chosen = {word: value for word, value in given.items() if word not in _EQUIVALENTS}
    if policies is not None:
        values = asdict(policies)
        problems += [
            f"{word}: give it in policies, or without them"
            for word in sorted(values.keys() & chosen)
        ]
        chosen |= values
    problems += _infer_mode(chosen, partitions_def)
    if chosen["mode"] == "cursor" and not claims and begins_at_end(chosen):
        problems.append(
            "initial_position 'stable' needs claims=True: Dagster lets runs overlap, and two first "
            "ones would each begin at a different end"
        )
    chosen = {"cluster": UNNAMED, **chosen}
    written = isinstance(sink, str | PathLike)
    try:
        arguments = parse(
            IngestArguments if written else _Placed,
            {**chosen, "sink": fspath(sink)} if isinstance(sink, str | PathLike) else chosen,
        )
    except ConfigError as exc:
        problems += exc.problems
    if problems:
        raise ConfigError(problems, subject=f"asset {name!r}")
    return arguments


def _infer_mode(chosen: dict[str, Any], partitions_def: object) -> list[str]:
    """Infer windows of a cursor, of time or of explicit offsets; return conflicts."""
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
