"""What can be said about an asset's arguments when its definition is loaded, before any run.

The same mistakes that Airflow's operator refuses when a Dag is parsed: names that TubeMQ cannot
have, places that mean something else on each machine, words that mean nothing. Opens nothing and
asks no cluster; a topic that does not exist shows in the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tubemq_client.config import FilterItem, GroupName, TopicName
from tubemq_client.errors import ConfigError
from tubemq_provider.sinks.factory import spec_problems
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.policies import parse_offsets

__all__ = ["problems_of"]

_WORDS = ("earliest", "stable", "latest")


def problems_of(
    topic: str,
    group: str,
    sink: object,
    filters: Iterable[str],
    initial_position: str | Mapping[str, Any] | None,
    max_entries: int | None,
) -> list[str]:
    """Every problem of the arguments by themselves, each beginning with the argument's name."""
    problems = [
        *_judged("topic", TopicName, topic),
        *_judged("group", GroupName, group),
        *(bad for item in filters for bad in _judged("filters", FilterItem, item)),
        *(f"sink: {bad}" for bad in _place_problems(sink)),
        *_position_problems(initial_position, topic),
    ]
    if max_entries is not None and max_entries < 1:
        problems.append(f"max_entries: {max_entries} is not >= 1")
    return problems


def _judged(name: str, kind: Any, value: object) -> list[str]:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as exc:
        return [f"{name}: {item['msg'].removeprefix('Value error, ')}" for item in exc.errors()]
    return []


def _place_problems(sink: object) -> list[str]:
    return spec_problems(fspath(sink)) if isinstance(sink, str | PathLike) else []


def _position_problems(given: str | Mapping[str, Any] | None, topic: str) -> list[str]:
    if given is None or given in _WORDS:
        return []
    if not isinstance(given, Mapping):
        return [f"initial_position: {given!r} is neither 'earliest' nor 'stable' nor offsets"]
    try:
        parse_offsets(given, topic, subject="initial_position", space=SPACE)
    except ConfigError as exc:
        return [f"initial_position: {problem}" for problem in exc.problems]
    return []
