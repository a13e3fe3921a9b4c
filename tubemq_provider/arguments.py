"""Arguments of operators and sensors, checked twice by one model.

A Dag author's mistakes should show when the Dag is parsed, all at once, but templated values are
known only when the task runs. So each operator has one pydantic model: `check_literals` applies it
at parse time and ignores what is still a template, `parse` applies it in full at run time.

Cheap by rule: no connection, no file, no network. Knows nothing of windows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tubemq_client import errors
from tubemq_client.config import validated
from tubemq_client.model import INDEX_ENTRY_BYTES, Partition
from tubemq_provider.assets import CLUSTER_PATTERN

__all__ = [
    "ClusterAlias",
    "GivenOffsets",
    "PartitionKeys",
    "TaskArguments",
    "check_literals",
    "is_template",
    "of_topic",
    "parse",
]

Model = TypeVar("Model", bound=BaseModel)


class TaskArguments(BaseModel):
    """Base of all argument models: frozen, unknown names refused, inputs never echoed."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _json(value: object) -> object:
    """Text that looks like JSON is JSON: templates and Variables can give nothing but text."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            return json.loads(value)
        except ValueError as exc:
            raise ValueError(f"not valid JSON ({exc})") from None
    return value


def _keys(value: object) -> object:
    value = _json(value)
    if isinstance(value, str):
        value = [item.strip() for item in value.split(",") if item.strip()]
    for key in value if isinstance(value, list | tuple) else ():
        Partition.from_key("", str(key))
    return value


def _offsets(value: object) -> object:
    value = _json(value)
    for key, offset in _innermost(value).items():
        Partition.from_key("", str(key))
        if not isinstance(offset, int) or offset < 0 or offset % INDEX_ENTRY_BYTES:
            raise ValueError(
                f"offset {offset!r} of partition {key} is not a multiple of "
                f"{INDEX_ENTRY_BYTES} that is >= 0"
            )
    return value


def _innermost(value: object) -> Mapping[str, object]:
    """Offsets by partition key, out of `{"1:0": 28}` or `{"<topic>": {"1:0": 28}}`."""
    if not isinstance(value, Mapping):
        return {}
    nested = [item for item in value.values() if isinstance(item, Mapping)]
    if nested and len(value) > 1:
        raise ValueError("names more than one topic")
    return nested[0] if nested else value


PartitionKeys = Annotated[tuple[str, ...], BeforeValidator(_keys), Field(min_length=1)]
"""Partition keys: a list, `"1:0,1:1"`, or a JSON list."""

GivenOffsets = Annotated[
    dict[str, int] | dict[str, dict[str, int]], BeforeValidator(_offsets), Field(min_length=1)
]
"""Offsets by partition key, bare or below the topic's name: a mapping or JSON."""

ClusterAlias = Annotated[str, Field(pattern=rf"^{CLUSTER_PATTERN.pattern}$")]


def of_topic(offsets: Mapping[str, Any], topic: str) -> dict[str, int]:
    """`GivenOffsets` by partition key. Raises `ValueError` if they are those of another topic."""
    for name, item in offsets.items():
        if isinstance(item, Mapping):
            if name != topic:
                raise ValueError(f"offsets are those of topic {name!r}, not {topic!r}")
            return dict(item)
    return dict(offsets)


def is_template(value: object) -> bool:
    """Whether `value` is, or contains, something that Airflow fills in at run time."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(is_template(item) for item in (*value.keys(), *value.values()))
    if isinstance(value, list | tuple | set):
        return any(is_template(item) for item in value)
    # The output of another task, as an argument.
    return hasattr(value, "resolve") and hasattr(value, "iter_references")


def check_literals(
    model: type[TaskArguments], arguments: Mapping[str, Any], *, static: Mapping[str, str]
) -> None:
    """Check what is already known. Raises `errors.ConfigError` with every problem.

    `static` names arguments that may not be templates, each with the reason.
    """
    templates = {name for name, value in arguments.items() if is_template(value)}
    problems = [
        f"{name}: cannot be a template, {reason}"
        for name, reason in static.items()
        if name in templates
    ]
    try:
        model.model_validate(dict(arguments))
    except ValidationError as exc:
        problems += [
            _problem(item) for item in exc.errors() if not templates & {*map(str, item["loc"][:1])}
        ]
    if problems:
        raise errors.ConfigError(sorted(set(problems)), subject="arguments")


def parse(model: type[Model], arguments: Mapping[str, Any]) -> Model:
    """The model for rendered `arguments`. Raises `errors.ConfigError` with every problem."""
    return validated(model, arguments)


def _problem(item: Any) -> str:
    name = str(item["loc"][0]) if item["loc"] else "arguments"
    message = item["msg"].removeprefix("Value error, ")
    return f"{name}: {message[0].lower()}{message[1:]}"
