"""Routes of an ingest: the mapping that a user writes, checked and turned into a `RouteSet`.

Each problem names the route and the member. What one table would refuse is refused here, before a
record is read. This module must not open a sink.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from pydantic import create_model

from tubemq_client.errors import ConfigError
from tubemq_client.json_text import load_unique_json
from tubemq_provider.ingest.engine_arguments import REGISTRY_NEEDS_INLINE
from tubemq_provider.ingest.following import decoding_of, following_of, following_problems
from tubemq_provider.ingest.options import FILE_SINKS, FOLLOWING_SINKS, TABLE_SINKS
from tubemq_provider.ingest.validation import TaskArguments, validated
from tubemq_provider.rows.routing import is_wild
from tubemq_provider.rows.spec import CHANGES, DecodeSpec
from tubemq_provider.sinks.factory import (
    accepted_options,
    missing_extra,
    sink_word,
    spec_problems,
)
from tubemq_provider.sinks.routed import Route, RouteSet
from tubemq_provider.windows.partitioning import partition_problems

if TYPE_CHECKING:
    from tubemq_provider.ingest.fields import IngestFields

__all__ = ["parse_routes", "routes_problems"]

_MEMBERS: Final = ("name", "by", "format", "unrouted", "on_route_failure", "tables")
_OF_TABLE: Final = (
    *("sink", "sink_conn_id", "decode", "apply", "key", "version", "soft_delete"),
    *("partition_by", "max_partitions", "schema_evolution"),
)
_ELSEWHERE: Final = (
    *("decode", "apply", "key", "version", "soft_delete", "partition_by", "schema_evolution"),
    *("transform", "sql"),
)
"""Options that each route has for itself."""
_PLACEHOLDER: Final = re.compile(r"(?<!\{)\{\w+\}(?!\})")


def routes_problems(arguments: IngestFields) -> list[str]:
    """Return the problems of `routes`, and options that belong to a route."""
    if arguments.routes is None:
        return []
    problems = [
        f"{name} has no effect with routes: write it for each of their tables"
        for name in _ELSEWHERE
        if getattr(arguments, name) not in (None, (), "append", "refuse")
    ]
    if arguments.on_clear == "rewrite":
        problems.append("on_clear='rewrite' is not available with routes")
    if arguments.direct_write == "off":
        problems.append("routes need the direct write: unavailable with direct_write='off'")
    try:
        routes = parse_routes(
            arguments.routes, mode=arguments.mode, offset_store=arguments.offset_store
        )
    except ConfigError as error:
        problems += [f"routes: {problem}" for problem in error.problems]
    else:
        problems += [
            f"routes: {route.pattern!r}: {REGISTRY_NEEDS_INLINE}"
            for route in routes.routes
            if arguments.engine != "inline" and route.decode is not None and route.decode.registries
        ]
    return problems


def parse_routes(
    option: str | Mapping[str, Any], *, mode: str = "cursor", offset_store: str = "asset_state"
) -> RouteSet:
    """Parse a mapping, its JSON, or the path of a file with it. Raises `ConfigError` with every
    problem."""
    document = _document(option)
    problems = _problems_of_members(document)
    name, by = document.get("name"), document.get("by", "stream_id")
    format_, tables = document.get("format"), document.get("tables")
    on_failure = str(document.get("on_route_failure", "fail"))
    if on_failure == "isolate":
        mode = "time"  # a failed table gets its windows later, after others
    if not isinstance(tables, Mapping) or not tables:
        problems.append("tables is needed: a mapping from values or patterns to their tables")
        tables = {}
    routes = []
    for pattern, table in tables.items():
        if not isinstance(pattern, str | int) or isinstance(pattern, bool):
            problems.append(f"tables: {pattern!r} is neither a value nor a pattern")
            continue
        route, found = _route(str(pattern), table, str(by), mode, offset_store)
        problems += [f"{pattern!r}: {problem}" for problem in found]
        routes += [] if route is None else [route]
    if problems:
        raise ConfigError(problems, subject="routes")
    unrouted = str(document.get("unrouted", "fail"))
    route_set = RouteSet(str(name), tuple(routes), str(by), format_, unrouted, on_failure)
    if problems := _problems_of_places(route_set):
        raise ConfigError(problems, subject="routes")
    return route_set


def _problems_of_members(document: Mapping[str, Any]) -> list[str]:
    """Return the problems of all members but the tables."""
    problems = [
        f"{name}: is none of {', '.join(_MEMBERS)}" for name in document if name not in _MEMBERS
    ]
    name, by = document.get("name"), document.get("by", "stream_id")
    format_ = document.get("format")
    if not isinstance(name, str) or not name.strip():
        problems.append("name is needed: the windows of the routes go by it")
    elif not name.isprintable():
        problems.append(f"name: {name!r} has characters that cannot be shown")
    if not isinstance(by, str) or not by.strip():
        problems.append(f"by: {by!r} is no column that records go by")
    if format_ is not None and format_ not in CHANGES:
        problems.append(f"format: {format_!r} is none of {', '.join(CHANGES)}")
    if (by in ("_table", "_database")) != (format_ is not None):
        problems.append("format and by='_table' or '_database' belong together")
    if document.get("unrouted", "fail") not in ("fail", "quarantine", "ignore"):
        problems.append(
            f"unrouted: {document['unrouted']!r} is none of fail, quarantine, ignore; for a table "
            "of what no route takes, give the route '*'"
        )
    on_failure = str(document.get("on_route_failure", "fail"))
    if on_failure not in ("fail", "isolate"):
        problems.append(f"on_route_failure: {on_failure!r} is none of fail, isolate")
    return problems


def _problems_of_places(routes: RouteSet) -> list[str]:
    """Return the problems of addresses that are known before a record is read."""
    problems, known = [], dict[str, tuple[Route, str]]()
    patterns = routes.patterns
    for index, route in enumerate(routes.routes):
        if patterns.longest[index] is not None:
            if is_wild(route.pattern):
                continue
            if patterns.route_of(route.pattern) != index:
                problems.append(f"{route.pattern!r}: {patterns.refusal(route.pattern)}")
                continue
        address = routes.address_of(route, route.pattern)
        place = address.casefold().rstrip("/")
        other, there = known.setdefault(place, (route, address))
        if there != address:
            problems.append(
                f"{route.pattern!r}: its sink is that of {other.pattern!r} in other letters, or "
                "with another '/' at the end; some file systems and databases do not tell them "
                "apart"
            )
        elif other.treatment != route.treatment:
            problems.append(
                f"{route.pattern!r}: its sink is that of {other.pattern!r}, and its other members "
                "differ"
            )
    return problems


def _document(option: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(option, Mapping):
        return option
    text = option.strip()
    try:
        if not text.startswith("{"):
            text = Path(text).read_text(encoding="utf-8")
        document = load_unique_json(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"neither JSON nor a file of it: {error}", subject="routes") from error
    if not isinstance(document, Mapping):
        raise ConfigError("it is JSON of another kind, not an object", subject="routes")
    return document


def _route(
    pattern: str, table: Any, by: str, mode: str, offset_store: str
) -> tuple[Route | None, list[str]]:
    if isinstance(table, str):
        table = {"sink": table}
    if not isinstance(table, Mapping) or not isinstance(table.get("sink"), str):
        return None, ["sink is needed: where its records go"]
    problems = [
        f"{name}: is none of {', '.join(_OF_TABLE)}" for name in table if name not in _OF_TABLE
    ]
    sink = str(table["sink"])
    shown = sink.replace("{" + by + "}", "x")
    problems += [
        f"sink: {word} is not what records go by; a value stands in an address as {{{by}}}"
        for word in _PLACEHOLDER.findall(shown)
    ]
    problems += [f"sink: {problem}" for problem in spec_problems(shown)]
    decode = table.get("decode")
    if decode is not None:
        problems += [f"decode: {problem}" for problem in DecodeSpec.judge(decode)]
    try:
        decode = json.loads(json.dumps(decode))
    except (TypeError, ValueError):
        problems.append("decode: it has members that JSON has not")
    given = validated(
        _options_of_table(),
        {
            name: value
            for name, value in table.items()
            if name in _OF_TABLE and name not in ("sink", "decode") and value is not None
        },
    )
    if isinstance(given, list):
        return None, [*problems, *(problem for _, problem in given)]
    options = given.model_dump()
    sink_conn_id, most = options.pop("sink_conn_id"), options.pop("max_partitions")
    values: Any = SimpleNamespace(
        **options, on_clear="verify", mode=mode, offset_store=offset_store, decode=decode
    )
    problems += [] if problems else _problems_of_sink(shown, values, most)
    if problems or (problems := following_problems(values)):
        return None, problems
    try:
        spec = None if decode is None else decoding_of(values)
    except ConfigError as error:
        return None, [f"decode: {problem}" for problem in error.problems]
    if spec is not None and spec.infers:
        return None, ["decode: write the schema; none is inferred for routes"]
    kept = {
        "partition_by": values.partition_by,
        "max_partitions": most,
        "schema_evolution": table.get("schema_evolution"),
    }
    options = {name: value for name, value in kept.items() if value}
    return Route(pattern, sink, spec, following_of(values), options, sink_conn_id), []


def _problems_of_sink(address: str, values: Any, most: int | None) -> list[str]:
    """Return options that the sink at an address cannot honour; those of `ingest.sink_rules`."""
    word = sink_word(address)
    accepted = accepted_options(word)
    problems = [
        f"partition_by: {problem}"
        for problem in partition_problems(values.partition_by, most, folders=word in FILE_SINKS)
    ]
    if missing := missing_extra(address):
        problems.append(f"sink: {missing}")
    filed = word in (*FILE_SINKS, *TABLE_SINKS) or "partition_by" in accepted
    if values.partition_by and not filed:
        problems.append(f"partition_by has no effect with {word}, which keeps no files of a window")
    evolving = word in TABLE_SINKS or "schema_evolution" in accepted
    if values.schema_evolution != "refuse" and not evolving:
        problems.append(f"schema_evolution has no effect with {word}")
    if values.apply != "append" and word not in FOLLOWING_SINKS:
        problems.append(f"apply has no effect with {word}, which cannot change rows")
    return problems


@cache
def _options_of_table() -> type[TaskArguments]:
    """Return the model of a route's own options, which are those of an operator."""
    from tubemq_provider.ingest.fields import IngestFields

    names = [name for name in _OF_TABLE if name not in ("sink", "decode")]
    fields: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in IngestFields.model_fields.items()
        if name in names
    }
    return create_model("RouteOptions", __base__=TaskArguments, **fields)
