"""Registry of plug-ins: sources, sinks, engines, offset stores, resolvers and decoders by word.

A distribution adds one by an entry point in one of six groups. So does this package; its own are
also in `BUILT_IN`, since a Dag file searches no metadata when it is parsed, and a zip on Spark's
executors has none. They are found and loaded the same way.
Nothing is imported before its word is used, so a broken plug-in fails only those who name it. This
module must not know what a plug-in of any kind does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, distributions, entry_points
from typing import Any, Final, Literal, NamedTuple

from tubemq_client.errors import ConfigError, TubeMQError

__all__ = [
    "BUILT_IN",
    "GROUPS",
    "INTERFACE",
    "Kind",
    "Plugin",
    "asked",
    "call",
    "installed",
    "is_known",
    "load",
    "options_problems",
    "parsed_options",
    "plugin_of",
    "problem_of",
    "words",
    "written_options",
]

Kind = Literal["source", "sink", "engine", "offset_store", "resolver", "decoder"]

GROUPS: Final[Mapping[Kind, str]] = {
    "source": "tubemq_provider.sources",
    "sink": "tubemq_provider.sinks",
    "engine": "tubemq_provider.engines",
    "offset_store": "tubemq_provider.offset_stores",
    "resolver": "tubemq_provider.resolvers",
    "decoder": "tubemq_provider.decoders",
}
"""Entry point group of each kind."""

INTERFACE: Final = 1
"""Version of the interface, which a plug-in may name as `interface`; this is the default."""

_WORD: Final = re.compile(r"[a-z][a-z0-9_-]*")
_PARTS: Final = (("space", "SPACE"), ("columns", "COLUMNS"))
"""Light modules of a source's package, with what each defines."""

_MEMBERS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "sink": ("marker", "begin", "publish"),
    "engine": ("name", "ingest"),
    "offset_store": ("load_cursor", "store_cursor", "load_timeline", "emit"),
    "resolver": ("name", "exact", "offsets_at"),
}
"""Members that what a factory returns must have."""

_OWN: Final = "airflow-provider-tubemq"
_SINKS: Final = "tubemq_provider.sinks.factory"
_ENGINES: Final = "tubemq_provider.ingest.engines"
_STORES: Final = "tubemq_provider.offsets.registry"
_RESOLVERS: Final = "tubemq_provider.ingest.resolvers"
_DATABASES: Final = ("postgresql", "mysql", "mariadb", "mssql", "oracle", "sqlite")

BUILT_IN: Final[Mapping[Kind, dict[str, str]]] = {
    "source": {
        "tubemq": "tubemq_provider.sources.tubemq",
        "rocketmq": "tubemq_provider.sources.rocketmq",
    },
    "sink": {
        "parquet": f"{_SINKS}:make_parquet",
        "delta": f"{_SINKS}:make_delta",
        "append": f"{_SINKS}:make_append",
        "markers": f"{_SINKS}:make_markers",
        "iceberg": f"{_SINKS}:make_iceberg",
        **dict.fromkeys(("s3", "gs", "az"), f"{_SINKS}:make_object_store"),
        **dict.fromkeys(_DATABASES, f"{_SINKS}:make_database"),
    },
    "engine": {
        "session": f"{_ENGINES}:make_session",
        "submit": f"{_ENGINES}:make_submit",
        "connect": f"{_ENGINES}:make_connect",
        "inline": f"{_ENGINES}:make_inline",
        "auto": f"{_ENGINES}:make_auto",
    },
    "offset_store": {
        "asset_state": f"{_STORES}:asset_state",
        "events": f"{_STORES}:events",
        "ledger": f"{_STORES}:ledger",
    },
    "resolver": {
        "boundaries": f"{_RESOLVERS}:make_boundaries",
        "timeline": f"{_RESOLVERS}:make_timeline",
        "explicit": f"{_RESOLVERS}:make_explicit",
        **dict.fromkeys(("history", "message_time", "store_time"), f"{_RESOLVERS}:make_of_source"),
    },
    "decoder": {
        **{
            word: f"tubemq_provider.rows.from_{word}"
            for word in ("json", "csv", "avro", "protobuf", "tdmsg", "function")
        },
        **dict.fromkeys(
            ("debezium", "canal", "maxwell", "ogg"), "tubemq_provider.rows.changes.bodies"
        ),
    },
}
"""The package's own plug-ins: the entry points of pyproject.toml."""


class Plugin(NamedTuple):
    """Plug-in that is installed: its word, where it is, and the distribution that brings it."""

    kind: Kind
    word: str
    value: str
    distribution: str

    @property
    def name(self) -> str:
        """Name for errors."""
        return f"{self.kind.replace('_', ' ')} {self.word!r} of {self.distribution}"

    @property
    def own(self) -> bool:
        """True for a plug-in of this package."""
        return self.distribution == _OWN


@cache
def _points(kind: Kind, _: tuple[str, ...]) -> tuple[tuple[EntryPoint, str], ...]:
    """Return the entry points of other distributions, searched once for each `sys.path`."""
    return tuple(
        (point, f"{point.dist.name} {point.dist.version}" if point.dist else "a distribution")
        for point in entry_points(group=GROUPS[kind])
        if point.dist is None or point.dist.name != _OWN
    )


def _found(kind: Kind) -> tuple[tuple[EntryPoint, str], ...]:
    return _points(kind, tuple(sys.path))


def installed(kind: Kind) -> list[Plugin]:
    """Return all plug-ins of a kind, the package's own first; imports none of them."""
    own = [Plugin(kind, word, value, _OWN) for word, value in BUILT_IN[kind].items()]
    return [
        *own,
        *(Plugin(kind, point.name, point.value, by) for point, by in _found(kind)),
    ]


def words(kind: Kind) -> list[str]:
    """Return all words of a kind, sorted."""
    return sorted({plugin.word for plugin in installed(kind)})


def is_known(kind: Kind, word: str) -> bool:
    """Return True if a plug-in has `word`; costs no search for one of the package."""
    return word in BUILT_IN[kind] or any(_means(point.name, word) for point, _ in _found(kind))


def _means(name: str, word: str) -> bool:
    """Return True for the name `word`, or for an invalid one that differs in capitals alone."""
    return name == word or (not _WORD.fullmatch(name) and name.lower() == word.lower())


def plugin_of(kind: Kind, word: str) -> Plugin:
    """Return the only plug-in with this word.

    Raises `ConfigError` for an unknown word, with near ones, and for one that several claim.
    """
    claims = [plugin for plugin in installed(kind) if _means(plugin.word, word)]
    subject = "decode" if kind == "decoder" else kind
    if not claims:
        from difflib import get_close_matches  # large, for an error only

        near = get_close_matches(word, words(kind), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(
            f"{word!r} is none of {', '.join(words(kind))}{hint} Another distribution may bring it "
            f"as an entry point in the group {GROUPS[kind]}",
            subject=subject,
        )
    if len(claims) > 1:
        owners = " and ".join(sorted({plugin.distribution for plugin in claims}))
        raise ConfigError(
            f"{word!r} is claimed by {owners}; uninstall all but one of them", subject=subject
        )
    return claims[0]


def load(kind: Kind, word: str) -> Any:
    """Return the object that the entry point of `word` names, imported now.

    Raises `ConfigError`, with the name of the distribution, if it cannot be imported, or was
    written for another version of the interface.
    """
    return _imported(plugin_of(kind, word))


def problem_of(plugin: Plugin) -> str | None:
    """Return why an installed plug-in cannot be used, or None.

    Imports it, unless it is the package's own.
    """
    try:
        plugin_of(plugin.kind, plugin.word)
        if not plugin.own:
            _imported(plugin)
            if plugin.kind == "source":
                asked(plugin, import_module, f"{plugin.value}.source")
    except ConfigError as exc:
        return "; ".join(exc.problems)
    return None


def _imported(plugin: Plugin) -> Any:
    module_name, _, attribute = plugin.value.partition(":")
    if problem := "" if plugin.own else _misnamed(plugin):
        raise ConfigError(f"{plugin.name} {problem}", subject=plugin.kind)
    try:
        module: Any = import_module(module_name)
        target = module
        for part in filter(None, attribute.split(".")):
            target = getattr(target, part)
        if plugin.own:
            return target
        version = getattr(target, "interface", getattr(module, "interface", INTERFACE))
        problem = _misshapen(plugin, target) if version == INTERFACE else ""
    except (Exception, SystemExit) as exc:
        if plugin.own:
            raise
        raise ConfigError(
            f"{plugin.name} cannot be imported from {plugin.value}: {type(exc).__name__}: {exc}; "
            f"repair or uninstall {plugin.distribution.partition(' ')[0]}",
            subject=plugin.kind,
        ) from exc
    if version != INTERFACE:
        raise ConfigError(
            f"{plugin.name} was written for interface {version!r}, this package has {INTERFACE}; "
            f"install a release of it for interface {INTERFACE}",
            subject=plugin.kind,
        )
    if problem:
        raise ConfigError(f"{plugin.name} {problem}", subject=plugin.kind)
    return target


def _misnamed(plugin: Plugin) -> str:
    """Return what is wrong with the metadata of a plug-in; "" for nothing."""
    if not _WORD.fullmatch(plugin.word):
        return (
            "has a word that is not valid: a word has lower-case letters, digits, _ and -, "
            "and begins with a letter"
        )
    if plugin.kind == "source" and ":" in plugin.value:
        return f"is {plugin.value}, but the entry point of a source names a package"
    versions = _versions(plugin.distribution.partition(" ")[0], tuple(sys.path))
    if len(versions) > 1:
        return (
            f"is installed in the versions {' and '.join(versions)}; uninstall it, and once again"
        )
    return ""


@cache
def _versions(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the versions of a distribution in the first directory that has it."""
    for folder in path:
        if found := {each.version for each in distributions(name=name, path=[folder])}:
            return tuple(sorted(found))
    return ()


def _misshapen(plugin: Plugin, target: Any) -> str:
    """Return what is wrong with the object that an entry point names; "" for nothing."""
    if plugin.kind == "source":
        for part, name in _PARTS:
            getattr(import_module(f"{plugin.value}.{part}"), name)
        kind = import_module(f"{plugin.value}.space").SPACE.source
        return "" if kind == plugin.word else f"has a SPACE of the kind {kind!r}"
    if not callable(target):
        return f"is {plugin.value}, which cannot be called"
    model = getattr(target, "Options", None)
    if model is not None and not (isinstance(model, type) and hasattr(model, "model_validate")):
        return "has Options that are no pydantic model"
    return ""


def asked(plugin: Plugin, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of a plug-in makes of `arguments`.

    Errors of this project pass; anything else that it raises is a `ConfigError` with the name of
    the distribution.
    """
    try:
        return function(*arguments)
    except TubeMQError:
        raise
    except Exception as exc:
        raise ConfigError(
            f"{plugin.name} failed: {type(exc).__name__}: {exc}", subject=plugin.kind
        ) from exc


def call(kind: Kind, word: str, *arguments: Any) -> Any:
    """Return what the factory of `word` makes of `arguments`.

    Errors of this project pass; anything else that the factory of another distribution raises is a
    `ConfigError` with its name.
    """
    plugin = plugin_of(kind, word)
    factory: Callable[..., Any] = _imported(plugin)
    if plugin.own:
        return factory(*arguments)
    made = asked(plugin, factory, *arguments)
    absent = [name for name in _MEMBERS.get(kind, ()) if not hasattr(made, name)]
    if absent:
        raise ConfigError(
            f"{plugin.name} made an object of {type(made).__name__}, which has no "
            f"{', '.join(absent)}",
            subject=kind,
        )
    return made


def parsed_options(kind: Kind, word: str, options: Mapping[str, Any]) -> Any:
    """Return the model `Options` of a plug-in made from `options`; None without either.

    Raises `ConfigError` with every problem; no value of a secret is repeated.
    """
    from pydantic import ValidationError

    model = getattr(load(kind, word), "Options", None)
    plugin = plugin_of(kind, word)
    if model is None:
        if options:
            raise ConfigError(f"{plugin.name} has no options", subject=kind)
        return None
    try:
        return model.model_validate(dict(options))
    except ValidationError as exc:
        problems = [_problem(item, model.model_fields) for item in exc.errors()]
        raise ConfigError(problems, subject=f"options of {kind} {word!r}") from None
    except Exception as exc:  # noqa: BLE001 - a validator of others may raise anything
        # The text of a validator's own failure may have the value of a secret.
        raise ConfigError(
            f"{plugin.name} failed to judge its options: {type(exc).__name__}", subject=kind
        ) from None


def options_problems(kind: Kind, word: str, options: Mapping[str, Any]) -> list[str]:
    """Return the problems of options that are written in a Dag, secrets among them.

    Raises `ConfigError` if the plug-in itself cannot be used.
    """
    return written_options(kind, word, options)[1]


def written_options(kind: Kind, word: str, options: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """Return the model of options that are written in a Dag, as `parsed_options`, and the
    `options_problems`; the model is None if they are invalid."""
    load(kind, word)
    try:
        made = parsed_options(kind, word, options)
    except ConfigError as exc:
        return None, exc.problems
    return made, [
        f"{name}: is a secret, and a Dag is shown to others; give it by a connection"
        for name in _secrets(made)
    ]


def _secrets(value: Any) -> Iterator[str]:
    """Yield the dotted names of the secrets that a model was given, at any depth."""
    if hasattr(value, "get_secret_value"):
        yield ""
    elif hasattr(value, "model_fields_set"):
        fields = type(value).model_fields
        for name in sorted(value.model_fields_set):
            shown = getattr(fields.get(name), "alias", None) or name
            yield from (f"{shown}.{each}".strip(".") for each in _secrets(getattr(value, name)))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from (f"{key}.{each}".strip(".") for each in _secrets(item))
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _secrets(item)


def _problem(item: Any, fields: Mapping[str, Any]) -> str:
    from difflib import get_close_matches  # large, for an error only

    name = str(item["loc"][0]) if item["loc"] else ""
    message = item["msg"].removeprefix("Value error, ")
    near = get_close_matches(name, fields, n=1) if item["type"] == "extra_forbidden" else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{name}: {message[0].lower()}{message[1:]}{hint}" if name else message
