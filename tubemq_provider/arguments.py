"""Arguments of operators and sensors, checked twice by one model.

A Dag author's mistakes should show when the Dag is parsed, all at once, but templated values are
known only when the task runs. So each operator has one pydantic model: `check_literals` applies it
at parse time and ignores what is still a template, `parse` applies it in full at run time.

Cheap by rule: no connection, no file, no network. Knows nothing of windows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from tubemq_client import errors
from tubemq_provider.assets import CLUSTER_PATTERN
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.policies import parse_offsets

if TYPE_CHECKING:
    from airflow.sdk import Asset

__all__ = [
    "ClusterAlias",
    "GivenOffsets",
    "PartitionKeys",
    "TaskArguments",
    "check_literals",
    "from_json",
    "is_mapped",
    "is_template",
    "of_topic",
    "parse",
    "require_inlet",
]


class TaskArguments(BaseModel):
    """Base of all argument models: frozen, unknown names refused, inputs never echoed."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def between(self, unknown: frozenset[str]) -> list[str]:  # noqa: ARG002
        """Problems between arguments. Those named by `unknown` are wrong by themselves and hold
        their defaults here: a problem that names one is dropped, others must not build on them."""
        return []

    @field_validator("*", mode="wrap")
    @classmethod
    def _note(cls, value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        """Note what passed, for the rules between arguments, should another one not pass."""
        checked = check(value)
        if info.context is not None:
            info.context[info.field_name] = checked
        return checked

    @model_validator(mode="after")
    def _check_between(self) -> Self:
        if problems := self.between(frozenset()):
            raise ValueError("\n".join(problems))
        return self


Model = TypeVar("Model", bound=TaskArguments)


def from_json(value: object) -> object:
    """Text that looks like JSON is JSON: templates and Variables can give nothing but text."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as exc:
            raise ValueError(f"not valid JSON ({exc})") from None
    return value


def _keys(value: object) -> object:
    value = from_json(value)
    if isinstance(value, str):
        value = [item.strip() for item in value.split(",") if item.strip()]
    for key in value if isinstance(value, list | tuple) else ():
        SPACE.partition("", str(key))
    return value


PartitionKeys = Annotated[tuple[str, ...], BeforeValidator(_keys), Field(min_length=1)]
"""Partition keys: a list, `"1:0,1:1"`, or a JSON list."""

GivenOffsets = Annotated[dict[str, Any], BeforeValidator(from_json), Field(min_length=1)]
"""Offsets by partition key, bare or below the topic's name: a mapping or JSON. The topic and the
offsets themselves are judged by `of_topic`, since a field does not know its neighbours."""

ClusterAlias = Annotated[str, Field(pattern=rf"^{CLUSTER_PATTERN.pattern}$")]


def of_topic(
    given: Mapping[str, Any], topic: str, name: str, *, words: bool = False
) -> dict[str, int | str]:
    """`GivenOffsets` by partition key; `words` allows ``earliest`` and ``latest`` for an offset.

    Raises `ValueError` with every problem, each beginning with the argument's `name`.
    """
    nested = any(isinstance(item, Mapping) for item in given.values())
    try:
        return parse_offsets(
            given if nested else {topic: given}, topic, subject=name, space=SPACE, words=words
        )
    except errors.ConfigError as exc:
        raise ValueError("\n".join(f"{name}: {problem}" for problem in exc.problems)) from None


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


def is_mapped(task: object) -> bool:
    """Whether a worker makes `task` of a mapped one. The scheduler has then seen nothing but
    .partial(): assets that are added now would look declared without being so."""
    return bool(getattr(task, "_BaseOperator__from_mapped", False))


def require_inlet(task: Any, asset: Asset) -> None:
    """Raise `errors.ConfigError` unless `asset` is an inlet of `task`: Airflow would let it read
    nothing. Only a mapped task, whose author alone can declare it, comes without."""
    if asset not in task.inlets:
        raise errors.ConfigError(
            f"a mapped task must declare the offsets asset: pass inlets=[a] to .partial(), where a "
            f"= tubemq_provider.assets.offsets_asset({task.cluster!r}, {task.topic!r}, "
            f"{task.group!r}); so topic and group cannot be mapped",
            subject="assets",
        )


def check_literals(
    model: type[TaskArguments],
    arguments: Mapping[str, Any],
    *,
    static: Mapping[str, str],
    problems: Iterable[str] = (),
) -> None:
    """Check what is already known. Raises `errors.ConfigError` with every problem.

    `static` names arguments that may not be templates, each with the reason; `problems` are those
    that the caller has found.
    """
    templates = {name for name, value in arguments.items() if is_template(value)}
    problems = [
        *problems,
        *(
            f"{name}: cannot be a template, {reason}"
            for name, reason in static.items()
            if name in templates
        ),
    ]
    found = _validated(model, arguments)
    if not isinstance(found, model):
        problems += [text for name, text in found if name not in templates]
    if problems:
        raise errors.ConfigError(sorted(set(problems)), subject="arguments")


def parse(model: type[Model], arguments: Mapping[str, Any]) -> Model:
    """The model for rendered `arguments`. Raises `errors.ConfigError` with every problem."""
    found = _validated(model, arguments)
    if isinstance(found, model):
        return found
    raise errors.ConfigError([text for _, text in found], subject="arguments")


def _validated(
    model: type[Model], arguments: Mapping[str, Any]
) -> Model | list[tuple[str | None, str]]:
    """The model, or every problem with the argument that it is about (None: about several)."""
    known: dict[str, Any] = {}
    try:
        return model.model_validate(dict(arguments), context=known)
    except ValidationError as exc:
        found = [
            (str(item["loc"][0]) if item["loc"] else None, problem)
            for item in exc.errors()
            for problem in _problems(item, model)
        ]
    wrong = frozenset(name for name, _ in found if name)
    if wrong:
        # The model has not come to its rules.
        required = (name for name, field in model.model_fields.items() if field.is_required())
        rest = model.model_construct(**{**dict.fromkeys(required), **known})
        lines = "\n".join(rest.between(wrong)).splitlines()
        found += [(None, line) for line in lines if not wrong & set(re.findall(r"\w+", line))]
    return found


def _problems(item: Any, model: type[BaseModel]) -> list[str]:
    """One line per problem; rules between fields name their fields themselves, a line each."""
    message = item["msg"].removeprefix("Value error, ")
    if not item["loc"]:
        return list(message.splitlines())
    name = str(item["loc"][0])
    if item["type"] == "extra_forbidden":
        return [f"{name}: unknown argument; known: {', '.join(sorted(model.model_fields))}"]
    return [f"{name}: {message[0].lower()}{message[1:]}"]
