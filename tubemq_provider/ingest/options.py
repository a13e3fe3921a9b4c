"""The table of ingest options: where each applies, who may template it, and its description.

An option is one annotated field of `IngestArguments`. Made from it: signatures, docstrings and
template fields of the operators, the options of Dagster's assets, the checks for options without
effect, and the reference. This module must not know a framework, nor any single option; the words
of engines and sinks that options name are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, Signature, signature
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, Literal, cast

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

__all__ = [
    "DEFERRABLE_ENGINES",
    "FILE_SINKS",
    "FOLLOWING_SINKS",
    "SPARK_ENGINES",
    "TABLE_SINKS",
    "Option",
    "default_of",
    "described",
    "is_changed",
    "options_of",
    "parameters",
    "problems_of_sink",
    "takes",
    "without_effect",
]

SPARK_ENGINES: Final = ("session", "submit", "connect")
"""Engines that always run in Spark."""
DEFERRABLE_ENGINES: Final = ("submit",)
"""Engines whose work needs no process that waits for it."""
FILE_SINKS: Final = ("parquet", "s3", "gs", "az")
TABLE_SINKS: Final = ("delta", "iceberg")
FOLLOWING_SINKS: Final = ("delta", "iceberg", "sqlite", "postgresql")
"""Sinks whose tables can follow changes."""

_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class Option:
    """One option: what a user reads about it, and where it applies.

    :param doc: description, as it is shown to users.
    :param template: templates of Airflow may fill it in.
    :param modes: modes that have it; empty: all. So with `resolvers`, `engines` and `sinks`.
    :param without_sink: error text for other `sinks`, with ``{sink}``; empty: another rule decides.
    :param via: argument of the operators whose value object has this option as a member.
    :param writes: decides how and where records are written; not for operators without a sink.
    :param optional: operators may omit it though the model needs it: another argument implies it.
    :param dagster: what defines it in Dagster instead; empty: the asset accepts it.
    """

    doc: str
    template: bool = False
    modes: tuple[str, ...] = ()
    resolvers: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    without_sink: str = ""
    via: str = ""
    writes: bool = False
    optional: bool = False
    dagster: str = ""


@cache
def options_of(model: type[BaseModel]) -> Mapping[str, Option]:
    """Return the table of a model: each field that is an option. Every check asks for it, so it is
    made once."""
    return {
        name: item
        for name, field in model.model_fields.items()
        for item in field.metadata
        if isinstance(item, Option)
    }


@cache
def _options_with(model: type[BaseModel], member: str) -> list[tuple[str, Option]]:
    """Return the options of `model` whose `member` is not empty. Asked for each task of a Dag."""
    return [(name, option) for name, option in options_of(model).items() if getattr(option, member)]


def default_of(field: FieldInfo) -> Any:
    """Return the default of an optional field."""
    if field.default is None or isinstance(field.default, (str, int)):
        return field.default  # needs no copy
    # Pydantic looks at the signature of a factory each time; none here takes validated data.
    factory = cast("Callable[[], Any] | None", field.default_factory)
    return field.get_default() if factory is None else factory()


@cache
def _fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of `model`: pydantic's own attribute is slow to read."""
    return model.model_fields


def is_changed(arguments: BaseModel, name: str) -> bool:
    """Return True if an option is not at its default."""
    field = _fields_of(type(arguments))[name]
    return not field.is_required() and getattr(arguments, name) != default_of(field)


def without_effect(
    arguments: BaseModel,
    aspect: Literal["mode", "resolver", "engine"],
    word: str,
    hint: str = "",
    *,
    like: str | None = None,
) -> list[str]:
    """Return a problem, which ends with `hint`, for each changed option that the chosen mode,
    resolver or engine does not have; a plug-in has those of the word that it is `like`."""
    return [
        f"{name} has no effect with {aspect}={word!r}{hint}"
        for name, option in _options_with(type(arguments), f"{aspect}s")
        if (like or word) not in getattr(option, f"{aspect}s") and is_changed(arguments, name)
    ]


def problems_of_sink(
    arguments: BaseModel, sink: str, accepted: frozenset[str] = frozenset()
) -> list[str]:
    """Return a problem for each option without effect on a kind of sink; a plug-in has those that
    are `accepted`."""
    return [
        option.without_sink.format(sink=sink)
        for name, option in _options_with(type(arguments), "without_sink")
        if sink not in option.sinks and name not in accepted and is_changed(arguments, name)
    ]


def parameters(
    model: type[BaseModel], modes: Iterable[str], *, writes: bool = True
) -> dict[str, Option]:
    """Return the options that an operator of these `modes` has as arguments."""
    return {
        name: option
        for name, option in options_of(model).items()
        if not option.via
        and (not option.modes or {*option.modes} & {*modes})
        and (writes or not option.writes)
    }


def takes(model: type[BaseModel], options: Mapping[str, Option]) -> Callable[[Any], Any]:
    """Give an ``__init__`` with ``**kwargs`` the signature of these options of `model`.

    Frameworks that inspect the signature, such as Airflow for default arguments and mapped tasks,
    then find every option by its name; parameters that the function has itself come first.
    """

    def decorate(function: Any) -> Any:
        *own, rest = signature(function).parameters.values()
        names = {parameter.name for parameter in own}
        made = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=_default(model.model_fields[name], option),
            )
            for name, option in options.items()
            if name not in names
        ]
        function.__signature__ = Signature([*own, *made, rest])
        return function

    return decorate


def _default(field: FieldInfo, option: Option) -> Any:
    if field.is_required():
        return None if option.optional else Parameter.empty
    return default_of(field)


def described(options: Mapping[str, Option]) -> str:
    """Return the parameter list of a docstring."""
    return "\n".join(
        fill(f":param {name}: {option.doc}", _WIDTH - 4, subsequent_indent="    ")
        for name, option in options.items()
    )
