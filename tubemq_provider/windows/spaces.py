"""Offset space of a kind of source: the meaning of its offsets and partition keys.

Sources differ in the step between adjacent offsets, in which partitions share a log, and in the
form and order of keys. Windows, files, sinks and stores use the space of their scope, and contain
no such number or form themselves. A kind of source is a package, found here by name or by an entry
point of another distribution, and imported on first use. This module must not depend on a source
and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar

from tubemq_client.errors import ConfigError
from tubemq_provider.extensions import BUILT_IN, GROUPS, asked, is_known, load, plugin_of, words

__all__ = [
    "FIRST_SOURCE",
    "SOURCES",
    "SOURCE_GROUP",
    "Ends",
    "OffsetSpace",
    "filters_of",
    "reach_of",
    "source_module",
    "source_package",
    "space_of",
]

FIRST_SOURCE: Final = "tubemq"
"""Kind of source of documents that name none: the only kind in the first release."""

SOURCES: Final = BUILT_IN["source"]
"""Package of each built-in kind. Its module `space` has `SPACE`; `sources.registry` loads the
rest."""

SOURCE_GROUP: Final = GROUPS["source"]
"""Entry point group by which another distribution adds a kind: its name, and the package."""

Value = TypeVar("Value")


class Ends(Protocol):
    """Ends of one partition's log; `[min_offset, max_offset)` can be read."""

    @property
    def partition(self) -> Any:
        """Partition as the source's own value, with `topic` and `key`."""

    @property
    def min_offset(self) -> int:
        """First offset that the broker still holds."""

    @property
    def max_offset(self) -> int:
        """Offset after the last record."""

    @property
    def stable(self) -> bool:
        """True if the end survives a crash of the broker."""


def reach_of(ends: Ends) -> int:
    """Return the end to compare a position with: `latest_offset` if the ends have one, else
    `max_offset`. A stable end may be an estimate that decreases between two queries."""
    end: int = getattr(ends, "latest_offset", ends.max_offset)
    return end


def filters_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return a user's filters as a tuple; a text is one filter."""
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True, slots=True)
class OffsetSpace:
    """Offsets and partition keys of one kind of source.

    - `source`: the kind; part of scopes and plans unless it is `FIRST_SOURCE`.
    - `key_form`: form of a key, for messages.
    - `step`: length of an index entry; every offset is a multiple of it.
    - `is_key`: returns True for a partition key.
    - `order`: sort key of partition keys; anything that is no key comes first.
    - `log_of`: returns the name of the log of a key; keys of one log share offsets.
    - `partition`: returns the source's value for topic and key; `range` for a partition, start and
      end. Partitions are hashable and ordered; `partition` raises `ValueError` for an invalid key.
    - `peer_of`: returns the name of the broker of a key or a log; by default the name itself.
    - `resolvers`: names of resolvers that this kind has besides those of every kind; None if
      unknown before a run.
    - `name_problem`: returns the problem of a name, given ``"topic"``, ``"group"`` or ``"filter"``
      and the name; None: any text that is not blank is valid.
    - `forgets_brokers`: True if servers forget a broker that is away, so that a topic may be
      unknown only because all of its brokers are restarting.
    """

    source: str
    key_form: str
    step: int
    is_key: Callable[[object], bool]
    order: Callable[[str], Any]
    log_of: Callable[[str], str]
    partition: Callable[[str, str], Any]
    range: Callable[[Any, int, int], Any]
    peer_of: Callable[[str], str] = str
    resolvers: tuple[str, ...] | None = None
    name_problem: Callable[[str, str], str | None] | None = None
    forgets_brokers: bool = False

    def entries(self, start: int, end: int) -> int:
        """Return the index entries between two offsets: an upper bound on records."""
        return (end - start) // self.step

    def offset_problem(self, offset: object) -> str | None:
        """Return the problem of an offset, or None."""
        if isinstance(offset, bool) or not isinstance(offset, int):
            return f"{offset!r} is not an integer"
        if offset < 0 or offset % self.step:
            return f"{offset} is not a multiple of {self.step} that is >= 0"
        return None

    def ordered(self, keys: Iterable[str]) -> list[str]:
        """Return partition keys in their order."""
        return sorted(keys, key=self.order)

    def by_key(self, items: Mapping[str, Value]) -> dict[str, Value]:
        """Return a mapping by partition key, in the order of the keys."""
        return {key: items[key] for key in self.ordered(items)}

    def logs(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """Group keys by their log."""
        groups: dict[str, list[str]] = {}
        for key in keys:
            groups.setdefault(self.log_of(key), []).append(key)
        return groups

    def ranges(self, topic: str, key: str, start: int, end: int) -> Any:
        """Return the source's range `[start, end)` of the partition `key` of `topic`."""
        return self.range(self.partition(topic, key), start, end)


@cache
def space_of(source: str) -> OffsetSpace:
    """Return the space of a kind of source. Raises `ConfigError` for an unknown kind."""
    space: OffsetSpace = import_module(f"{source_package(source)}.space").SPACE
    return space


def source_package(source: str) -> str:
    """Return the import name of a kind's package: a built-in one, else that of an entry point.

    Raises `ConfigError` for an unknown kind.
    """
    if source in SOURCES:
        return SOURCES[source]
    if is_known("source", source):
        load("source", source)
        return plugin_of("source", source).value
    raise ConfigError(
        f"there is no source of kind {source!r} here; known: "
        f"{', '.join(words('source'))}. A newer release, or another package, may have "
        f"it",
        subject="source",
    )


def source_module(source: str) -> Any:
    """Return the module `source` of a kind's package: what opens sources, and the options of them.

    Raises `ConfigError` with the name of its distribution if a plug-in's cannot be imported.
    """
    package = source_package(source)
    if source in SOURCES:
        return import_module(f"{package}.source")
    return asked(plugin_of("source", source), import_module, f"{package}.source")
