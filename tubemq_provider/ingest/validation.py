"""Argument models: their base, and types of value that several models share.

A mistake should be reported as early as possible, together with all others, each with its
argument's name. Values known before a run (when a Dag or an asset is loaded) and values known only
in a run (after rendering) are validated by one model, so `validated` also returns which argument a
problem is about. Cheap by rule: no connection, no file, no network, no framework.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from tubemq_client import errors
from tubemq_client.config import FilterItem, GroupName, TopicName
from tubemq_client.json_text import load_unique_json
from tubemq_provider.sources.consumer_config import consumer_problems
from tubemq_provider.windows.plan import CLUSTER_PATTERN
from tubemq_provider.windows.policies import parse_offsets
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

__all__ = [
    "ClusterAlias",
    "ConsumerConfig",
    "GivenOffsets",
    "PartitionKeys",
    "SourceFilter",
    "SourceGroup",
    "SourceTopic",
    "TaskArguments",
    "blank_is_none",
    "from_json",
    "is_template",
    "offsets_for_topic",
    "parse",
    "validated",
    "with_zone",
]


class TaskArguments(BaseModel):
    """Base of all argument models: frozen, unknown names refused, inputs never echoed.

    Members of the mappings in `MEMBER_WISE` that are no templates are judged beside templates.
    """

    MEMBER_WISE: ClassVar[frozenset[str]] = frozenset({"consumer_config"})

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:  # noqa: ARG002
        """Return cross-field problems.

        Fields in `unknown` failed validation and hold defaults here: rules must not build on them,
        and messages that name them are dropped.
        """
        return []

    @field_validator("*", mode="wrap")
    @classmethod
    def _note(cls, value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        """Record a valid value, for the cross-field rules in case another field fails."""
        checked = check(value)
        if info.context is not None:
            info.context[info.field_name] = checked
        return checked

    @field_validator("source", check_fields=False)
    @classmethod
    def _usable(cls, source: str) -> str:
        """Refuse a kind of source that is not installed, or whose plug-in cannot be used."""
        try:
            space_of(source)
        except errors.ConfigError as exc:
            raise ValueError("; ".join(exc.problems)) from None
        return source

    @model_validator(mode="after")
    def _check_between(self) -> Self:
        if problems := self.cross_field_problems(frozenset()):
            raise ValueError("\n".join(problems))
        return self


Model = TypeVar("Model", bound=TaskArguments)


def blank_is_none(value: object) -> object:
    """Return None for empty text, which a template renders for "not set"."""
    return None if isinstance(value, str) and value.strip() in ("", "None") else value


def from_json(value: object) -> object:
    """Parse text that looks like JSON: templates and Variables can only give text."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            return load_unique_json(value)
        except (ValueError, RecursionError) as exc:
            # Jinja renders a list or mapping as Python's text of it.
            hint = "; in a template write {{ … | tojson }}" if "'" in value else ""
            raise ValueError(f"not valid JSON ({exc}){hint}") from None
    return value


def _keys(value: object, info: ValidationInfo) -> object:
    value = from_json(value)
    if isinstance(value, str):
        value = [item.strip() for item in value.split(",") if item.strip()]
    space = space_of((info.data or {}).get("source", FIRST_SOURCE))
    for key in value if isinstance(value, list | tuple) else ():
        space.partition("", str(key))
    return value


PartitionKeys = Annotated[tuple[str, ...], BeforeValidator(_keys), Field(min_length=1)]
"""Partition keys: a list, `"1:0,1:1"`, or a JSON list."""

GivenOffsets = Annotated[dict[str, Any], BeforeValidator(from_json)]
"""Offsets by partition key, with or without the topic's name: a mapping or JSON.

Topic and offsets are validated by `offsets_for_topic`, since a field does not know other fields.
"""

_OF_FIRST: Final[Mapping[str, TypeAdapter[str]]] = {
    "topic": TypeAdapter(TopicName),
    "group": TypeAdapter(GroupName),
    "filter": TypeAdapter(FilterItem),
}


def _named(kind: str) -> Any:
    def judge(value: object, info: ValidationInfo) -> object:
        source = (info.data or {}).get("source", FIRST_SOURCE)
        if problem := _name_problem(kind, value, source):
            raise ValueError(problem)
        return value

    return BeforeValidator(judge)


def _name_problem(kind: str, value: object, source: str) -> str | None:
    if source == FIRST_SOURCE:
        try:
            _OF_FIRST[kind].validate_python(value)
        except ValidationError as exc:
            return exc.errors()[0]["msg"].removeprefix("Value error, ")
        return None
    if not isinstance(value, str) or not value.strip():
        return f"{value!r} is no {kind} name"
    judge = space_of(source).name_problem
    return judge(kind, value) if judge else None


SourceTopic = Annotated[str, _named("topic")]
SourceGroup = Annotated[str, _named("group")]
SourceFilter = Annotated[str, _named("filter")]
"""Names in the form of the source's kind, in the model's field `source`, declared before these."""


def _consumer_config(value: object, info: ValidationInfo) -> object:
    """Judge the options that are no templates by the model of the source's client."""
    if is_template(value) and not isinstance(value, Mapping):
        return {}
    value = from_json(blank_is_none(value)) or {}
    if not isinstance(value, Mapping):
        raise ValueError("give a mapping of options, such as {'deadline_ms': 120000}")  # noqa: TRY004 - pydantic collects ValueErrors
    known = {str(name): item for name, item in value.items() if not is_template(item)}
    if problems := consumer_problems((info.data or {}).get("source", FIRST_SOURCE), known):
        raise ValueError("\n".join(problems))
    return dict(value)


ConsumerConfig = Annotated[dict[str, Any], BeforeValidator(_consumer_config)]
"""Options of the client that a task reads with: a mapping, or its JSON."""

ClusterAlias = Annotated[str, Field(pattern=rf"^{CLUSTER_PATTERN.pattern}$")]


def offsets_for_topic(
    given: Mapping[str, Any],
    topic: str,
    name: str,
    *,
    allow_keywords: bool = False,
    source: str = FIRST_SOURCE,
) -> dict[str, int | str]:
    """Return `GivenOffsets` by partition key of the kind `source`.

    `allow_keywords` allows ``earliest`` and ``latest`` for an offset. An offset may be text of
    digits, since templates inside of mappings can only give text.

    Raises `ValueError` with every problem, each beginning with the argument's `name`.
    """
    nested = any(isinstance(item, Mapping) for item in given.values())
    try:
        space = space_of(source)
        offsets = {
            name: {key: _number(offset) for key, offset in item.items()}
            if isinstance(item, Mapping)
            else item
            for name, item in (given if nested else {topic: given}).items()
        }
        return parse_offsets(
            offsets, topic, subject=name, space=space, allow_keywords=allow_keywords
        )
    except errors.ConfigError as exc:
        raise ValueError("\n".join(f"{name}: {problem}" for problem in exc.problems)) from None


def _number(offset: object) -> object:
    text = isinstance(offset, str) and offset.isascii() and offset.isdecimal()
    return int(str(offset)) if text else offset


def is_template(value: object) -> bool:
    """Return True if `value` is, or contains, something that Airflow renders at run time."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(is_template(item) for item in (*value.keys(), *value.values()))
    if isinstance(value, list | tuple | set):
        return any(is_template(item) for item in value)
    # Output of another task.
    return hasattr(value, "resolve") and hasattr(value, "iter_references")


def parse(model: type[Model], arguments: Mapping[str, Any]) -> Model:
    """Return the model of rendered `arguments`. Raises `errors.ConfigError` with every problem."""
    result = validated(model, arguments)
    if isinstance(result, model):
        return result
    raise errors.ConfigError([text for _, text in result], subject="arguments")


def validated(
    model: type[Model], arguments: Mapping[str, Any]
) -> Model | list[tuple[str | None, str]]:
    """Return the model, or every problem with its argument (None for several arguments)."""
    valid: dict[str, Any] = {}
    try:
        return model.model_validate(dict(arguments), context=valid)
    except ValidationError as exc:
        problems = [
            (str(item["loc"][0]) if item["loc"] else None, problem)
            for item in exc.errors()
            for problem in _problems(item, model)
        ]
    wrong = frozenset(name for name, _ in problems if name)
    if wrong:
        # The cross-field rules have not run yet.
        required = (name for name, field in model.model_fields.items() if field.is_required())
        rest = model.model_construct(**{**dict.fromkeys(required), **valid})
        lines = "\n".join(rest.cross_field_problems(wrong)).splitlines()
        problems += [(None, line) for line in lines if not wrong & set(re.findall(r"\w+", line))]
    return problems


def _problems(item: Any, model: type[BaseModel]) -> list[str]:
    """Return one line per problem; cross-field rules name their fields themselves."""
    message = item["msg"].removeprefix("Value error, ")
    if not item["loc"]:
        return list(message.splitlines())
    name = str(item["loc"][0])
    if item["type"] == "extra_forbidden":
        return [f"{name}: unknown argument; known: {', '.join(sorted(model.model_fields))}"]
    # Our own messages name the value; pydantic's do not.
    value = f"{item['input']!r}: " if item["type"].endswith("_parsing") else ""
    return [f"{name}: {value}{line[0].lower()}{line[1:]}" for line in message.splitlines()]


def with_zone(value: object) -> object:
    """Refuse instants without a zone, the commonest mistake, with the text to write."""
    if isinstance(value, str) and re.fullmatch(r"[\d-]{8,10}([T ][\d:.]+)?", value.strip()):
        day = value.strip() if ":" in value else f"{value.strip()}T00:00:00"
        raise ValueError(f"{value!r} has no time zone; write {day.replace(' ', 'T')}Z for UTC")
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise ValueError(f"{value.isoformat()} has no time zone; make it with tzinfo=UTC")
    return value
