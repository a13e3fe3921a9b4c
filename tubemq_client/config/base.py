"""Base of all option models: frozen, unknown names refused, every problem at once.

A problem is one line: option, value, allowed values. Values of secrets, of anything that contains a
secret, and of unknown options are not repeated: a secret of the wrong type, in the wrong place or
under a wrong name would otherwise end up in a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from tubemq_client import errors

__all__ = ["CommonOptions", "range_of", "validated"]

Model = TypeVar("Model", bound=BaseModel)

_IDENTITIES = frozenset({"auth", "users", "credentials"})
"""Options that name a user: they and their members are never repeated, because a name and its
secret may have been written as one text."""

_BOUNDS = {"ge": "at least {}", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}


class CommonOptions(BaseModel):
    """Base of all option models: frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the model for `options`. Raises `errors.ConfigError` with every problem."""
        return validated(cls, options)


def validated(model: type[Model], options: Mapping[str, Any]) -> Model:
    """Return `model(**options)`. Raises one `errors.ConfigError` with all problems, by option."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        problems = [_problem(item, model) for item in error.errors()]
        raise errors.ConfigError(problems, subject=f"{model.__name__} options") from None


def range_of(field: FieldInfo) -> str:
    """Return the allowed range of a numeric option in words; empty if it has no bounds."""
    bounds = {
        name: getattr(item, name)
        for item in field.metadata
        for name in _BOUNDS
        if getattr(item, name, None) is not None
    }
    if bounds.keys() == {"ge", "le"}:
        return f"{bounds['ge']} to {bounds['le']}"
    return " and ".join(_BOUNDS[name].format(value) for name, value in bounds.items())


class _OptionPath(NamedTuple):
    """Location of a problem: the model that has the option, the option (None if there is none), and
    whether its value may hold a secret."""

    owner: type[BaseModel]
    field: FieldInfo | None
    secret: bool


def _problem(item: Any, model: type[BaseModel]) -> str:
    path = [str(part) for part in item["loc"]]
    name = ".".join(path) or "options"
    owner, field, secret = _locate(path, model)
    if item["type"] == "extra_forbidden":
        from difflib import get_close_matches  # large, for an error only

        near = get_close_matches(path[-1].lower(), owner.model_fields, n=1, cutoff=0.75)
        if near:
            return f"{name}: unknown option; did you mean {near[0]}?"
        return f"{name}: unknown option; known: {', '.join(sorted(owner.model_fields))}"
    message = item["msg"].removeprefix("Value error, ")
    text = f"{message[0].lower()}{message[1:]}"
    if item["type"] in ("too_short", "string_too_short") and item["ctx"]["min_length"] == 1:
        text = "it is empty"
    if item["type"] in ("value_error", "missing") or field is None or secret:
        return f"{name}: {text}"
    allowed = range_of(field)
    shown_value = repr(item["input"])
    # The value of any option may be an address with a password.
    shown_value = "" if "@" in shown_value else f"{shown_value}: "
    return f"{name}: {shown_value}{text}" + (f" (allowed: {allowed})" if allowed else "")


def _locate(path: list[str], model: type[BaseModel]) -> _OptionPath:
    field, secret = None, False
    for part in path:
        field = model.model_fields.get(part)
        if field is None:
            break
        secret = secret or _is_secret(part, field)
        nested = _model_of(field)
        if nested is None:
            break
        model = nested
    else:  # the value is the whole of a nested model
        secret = secret or _has_secrets(model)
    return _OptionPath(model, field, secret)


def _is_secret(name: str, field: FieldInfo) -> bool:
    return name in _IDENTITIES or not field.repr or _names_a_secret(field.annotation)


def _names_a_secret(annotation: Any) -> bool:
    return annotation in (SecretStr, SecretBytes) or any(map(_names_a_secret, get_args(annotation)))


def _has_secrets(model: type[BaseModel]) -> bool:
    for name, field in model.model_fields.items():
        nested = _model_of(field)
        if _is_secret(name, field) or (nested is not None and _has_secrets(nested)):
            return True
    return False


def _model_of(field: FieldInfo | None) -> type[BaseModel] | None:
    options = getattr(field.annotation, "__args__", (field.annotation,)) if field else ()
    for option in options:
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None
