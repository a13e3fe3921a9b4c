"""Arguments of an ingest as one model: the only place where they are validated.

Field rules first, then cross-field rules; every problem is listed at once. An option without effect
is refused rather than ignored. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tubemq_client import errors
from tubemq_provider.extensions import BUILT_IN, is_known, options_problems
from tubemq_provider.ingest.engine_arguments import engine_problems
from tubemq_provider.ingest.fields import IngestFields, InitialPosition, Resolver
from tubemq_provider.ingest.following import decoding_of, following_of, following_problems
from tubemq_provider.ingest.options import options_of, without_effect
from tubemq_provider.ingest.sink_rules import problems_of_object, sink_problems
from tubemq_provider.ingest.validation import (
    from_json,
    is_template,
    offsets_for_topic,
)
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks.factory import sink_word
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.policies import Policies, words_in
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

if TYPE_CHECKING:
    from tubemq_provider.sinks.routed import RouteSet

__all__ = [
    "OPTIONS",
    "WRITING",
    "IngestArguments",
    "InitialPosition",
    "begins_at_end",
    "names_with_latest",
    "no_destination",
    "sink_template_problems",
]

_OF_EVERY_KIND = ("boundaries", "timeline", "explicit")
"""Resolvers of every kind of source."""
_WITH_ENDS = (
    "initial_position",
    "new_partition_position",
    "starting_offsets",
    "ending_offsets",
)
"""Arguments that may contain a keyword for the stable end."""


class IngestArguments(IngestFields):
    """Arguments of an ingest, with the rules between them."""

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """Return combinations that conflict, and arguments without effect."""
        hint = "; use mode='time'" if self.mode == "cursor" else ""
        problems = [*without_effect(self, "mode", self.mode, hint), *self._of_window()]
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
        problems += [*engine_problems(self), *self._of_plugins()]
        problems += following_problems(self)
        if self.routes is not None and "routes" not in unknown and not is_template(self.routes):
            from tubemq_provider.ingest.routes import routes_problems

            problems += routes_problems(self)
        problems += self._of_quarantine_topic(unknown)
        if self.epoch_seen and not self.epoch:
            problems.append("epoch_seen has no effect without epoch, the name of a new one")
        if "topic" not in unknown:
            problems += self._of_offsets()
            if self.by == "explicit" and not unknown & {"starting_offsets", "ending_offsets"}:
                problems += self._of_ranges()
        return problems

    @property
    def destination(self) -> str:
        """Address of the sink, for `sink_for`; empty for a sink that is an object."""
        return self.path or (self.sink if isinstance(self.sink, str) else "") or ""

    @property
    def sink_options(self) -> dict[str, Any]:
        """Options of the sink besides its address, for `sink_for`.

        Options left at their default are omitted, so that sinks without such an option need not
        accept it.
        """
        always = {name: getattr(self, name) for name in ("exactly_once", "staging_root")}
        policies = {item.name for item in fields(Policies)}  # max_files: the run judges it
        others = {name for name, option in OPTIONS.items() if option.sinks} - policies - {"apply"}
        chosen = self.model_dump(include=others, exclude_defaults=True)
        following, own = self.following, self.plugin_options.get("sink")
        return {
            **always,
            **chosen,
            **({} if following is None else {"following": following}),
            **({"plugin_options": own} if own else {}),
        }

    def _of_quarantine_topic(self, unknown: Collection[str]) -> list[str]:
        if self.quarantine_topic is None:
            return []
        problems = []
        if self.source != FIRST_SOURCE:
            problems.append(f"quarantine_topic is not available for {self.source}")
        if self.quarantine_topic == self.topic:
            problems.append("quarantine_topic must be another topic than the one that is read")
        if self.corrupt_records != "quarantine" and not self.routes and "routes" not in unknown:
            problems.append("quarantine_topic has no effect without corrupt_records='quarantine'")
        return problems

    @property
    def route_set(self) -> RouteSet | None:
        """Routes to several tables, or None. Reads their file."""
        if self.routes is None:
            return None
        from tubemq_provider.ingest.routes import parse_routes

        return parse_routes(self.routes, mode=self.mode, offset_store=self.offset_store)

    @property
    def following(self) -> Following | None:
        """Keys and order by which the table follows changes; None for a table that only grows."""
        return following_of(self)

    @property
    def decoding(self) -> DecodeSpec | None:
        """Decoding of bodies, or None. Reads schema files."""
        return None if self.decode is None else decoding_of(self)

    def offsets(self, name: str) -> dict[str, int | str]:
        """Return the offsets by partition key of the argument `name`, with or without the topic.

        Raises `ValueError` with every problem, each beginning with the name.
        """
        offsets = getattr(self, name) or {}
        return offsets_for_topic(offsets, self.topic, name, allow_keywords=True, source=self.source)

    def _sink_problems(self) -> list[str]:
        spec = self.destination
        if self.path is not None and self.sink is not None:
            return ["path and sink are two places for the rows: give one"]
        if self.path is None and self.sink is None:
            return ["path or sink is needed: the place where rows go"]
        if not spec:
            return problems_of_object(self)
        if is_template(spec) or not spec:
            return []
        return sink_problems(spec, self)

    @property
    def by(self) -> Resolver:
        """Resolver of a time window: the named one, or the one that the other arguments imply."""
        if self.resolver:
            return self.resolver
        return "explicit" if self.starting_offsets or self.ending_offsets else "boundaries"

    def _of_plugins(self) -> list[str]:
        """Return the problems of options of plug-ins, each judged by the plug-in's model."""
        chosen: dict[str, object] = {
            "sink": sink_word(self.destination) if self.destination else self.sink,
            "engine": self.engine,
            "offset_store": self.offset_store,
            "resolver": self.resolver,
        }
        problems = []
        for kind in ("sink", "engine", "offset_store", "resolver"):
            word, options = chosen[kind], self.plugin_options.get(kind, {})
            if kind == "sink" and is_template(self.destination):
                continue
            if isinstance(word, str) and word not in BUILT_IN[kind] and not is_template(word):
                if is_known(kind, word) and not is_template(options):
                    try:
                        found = options_problems(kind, word, options)
                    except errors.ConfigError as exc:
                        # Those of a sink are among the problems of its address.
                        problems += [] if kind == "sink" else exc.problems
                    else:
                        problems += [f"plugin_options: {kind}: {each}" for each in found]
            elif options and not is_template(word):
                problems.append(f"plugin_options: {kind}: {word!r} is no plug-in, and takes none")
        unknown = sorted(self.plugin_options.keys() - chosen.keys())
        return [
            *problems,
            *(f"plugin_options: {each!r} is none of {', '.join(chosen)}" for each in unknown),
        ]

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

    def _of_resolver(self) -> list[str]:
        if self.mode != "time":
            return []
        if not isinstance(self.by, str):
            return without_effect(
                self, "resolver", str(getattr(self.by, "name", "")), like="timeline"
            )
        like = None if self.by in BUILT_IN["resolver"] else "timeline"
        problems = without_effect(self, "resolver", self.by, like=like)
        own = space_of(self.source).resolvers
        everywhere = self.by in _OF_EVERY_KIND or self.by not in BUILT_IN["resolver"]
        if own is not None and not everywhere and self.by not in own:
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
                "boundaries is needed by resolver='boundaries', the default: a mapping, or where "
                "its file is; a topic without such a file takes another, as resolver='timeline'"
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


OPTIONS = options_of(IngestArguments)
"""The table: every option of an ingest by its name."""
WRITING: Final = frozenset(name for name, option in OPTIONS.items() if option.writes)
"""Options about the destination, which do not apply to windows without one."""

_INEXACT = ("timeline", "history", "message_time", "store_time")
_SAME_FOR_ALL_RUNS = {"var", "conn", "dag", "task"}


def no_destination(given: Iterable[str]) -> list[str]:
    """Return problems of options that are given for windows whose records go nowhere."""
    taken = sorted(WRITING.intersection(given))
    return [f"{name} has no effect: records go nowhere" for name in taken]


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
