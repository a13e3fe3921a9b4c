"""What all option models have in common: frozen, unknown names refused, every problem at once.

A problem is one line: option, value, what is allowed. Values of secrets and of unknown options are
not repeated, because a secret under a wrong name would otherwise end up in a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from tubemq_client import errors

__all__ = ["CommonOptions", "range_of", "validated"]

Model = TypeVar("Model", bound=BaseModel)

_SECRETS = ("password", "key_password")
_BOUNDS = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}


class CommonOptions(BaseModel):
    """Base of all option models: frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """The model for `options`. Raises `errors.ConfigError` with every problem."""
        return validated(cls, options)


def validated(model: type[Model], options: Mapping[str, Any]) -> Model:
    """`model(**options)`, with all problems in one `errors.ConfigError` that names each option."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        problems = [_problem(item, model) for item in error.errors()]
        raise errors.ConfigError(problems, subject=f"{model.__name__} options") from None


def range_of(field: FieldInfo) -> str:
    """What a numeric option may be, in words; empty if nothing bounds it."""
    found = {
        name: getattr(item, name)
        for item in field.metadata
        for name in _BOUNDS
        if getattr(item, name, None) is not None
    }
    if found.keys() == {"ge", "le"}:
        return f"{found['ge']} to {found['le']}"
    return " and ".join(_BOUNDS[name].format(value) for name, value in found.items())


def _problem(item: Any, model: type[BaseModel]) -> str:
    path = [str(part) for part in item["loc"]]
    name = ".".join(path) or "options"
    owner, field = _field(path, model)
    if item["type"] == "extra_forbidden":
        near = get_close_matches(path[-1].lower(), owner.model_fields, n=1, cutoff=0.75)
        if near:
            return f"{name}: unknown option; did you mean {near[0]}?"
        return f"{name}: unknown option; known: {', '.join(sorted(owner.model_fields))}"
    message = item["msg"].removeprefix("Value error, ")
    text = f"{message[0].lower()}{message[1:]}"
    if item["type"] in ("value_error", "missing") or field is None or path[-1] in _SECRETS:
        return f"{name}: {text}"
    allowed = range_of(field)
    return f"{name}: {item['input']!r}: {text}" + (f" (allowed: {allowed})" if allowed else "")


def _field(path: list[str], model: type[BaseModel]) -> tuple[type[BaseModel], FieldInfo | None]:
    """The model and field that `path` leads to; the field is None if there is none."""
    field = None
    for part in path:
        field = model.model_fields.get(part)
        nested = _model_of(field)
        if field is None or nested is None:
            break
        model = nested
    return model, field


def _model_of(field: FieldInfo | None) -> type[BaseModel] | None:
    options = getattr(field.annotation, "__args__", (field.annotation,)) if field else ()
    for option in options:
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None
