"""What offsets and partition keys mean in one kind of source: a value that all arithmetic goes by.

Two sources differ in the step between neighbouring offsets, in which partitions share a log, and in
how keys are written and ordered. Windows, files, sinks and stores ask the space of their scope and
know no number or spelling themselves. A kind of source is a package, found here by name or by an
entry point of another distribution, and imported when it is first asked for. This module must not
know a source; it does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final, Protocol, TypeVar

from tubemq_client.errors import ConfigError

__all__ = [
    "FIRST_SOURCE",
    "SOURCES",
    "SOURCE_GROUP",
    "Ends",
    "OffsetSpace",
    "filters_of",
    "reach_of",
    "source_package",
    "space_of",
]

FIRST_SOURCE: Final = "tubemq"
"""The kind that documents without one mean: there was no other when they were written."""

SOURCES: Final = {
    FIRST_SOURCE: "tubemq_provider.sources.tubemq",
    "rocketmq": "tubemq_provider.sources.rocketmq",
}
"""Kind to its package; its module `space` has its `SPACE`, `sources.registry` says the rest."""

SOURCE_GROUP: Final = "tubemq_provider.sources"
"""Entry points by which another distribution brings a kind: its name, and the package."""

Value = TypeVar("Value")


class Ends(Protocol):
    """How far the log of one partition reaches; `[min_offset, max_offset)` can be read."""

    @property
    def partition(self) -> Any:
        """The source's own value, with `topic` and `key`."""

    @property
    def min_offset(self) -> int:
        """The first offset that the broker still holds."""

    @property
    def max_offset(self) -> int:
        """The offset behind the last record."""

    @property
    def stable(self) -> bool:
        """Whether the end survives a crash of the broker."""


def reach_of(ends: Ends) -> int:
    """Where the log ends for a caller that asks whether it still has a position. A stable end may
    be an estimate that falls back between two looks; ends that have a `latest_offset` beside it
    say."""
    found: int = getattr(ends, "latest_offset", ends.max_offset)
    return found


def filters_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """The filters that somebody named: a text is one filter, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True, slots=True)
class OffsetSpace:
    """The offsets and keys of one kind of source.

    - `source`: the kind; part of scopes and plans unless it is the first one.
    - `key_form`: how keys are written, for messages.
    - `step`: every offset is a multiple of it, and an entry is so long.
    - `is_key`: whether a value is a partition key.
    - `order`: what keys are sorted by; anything that is no key comes first.
    - `log_of`: the name of the log that a key belongs to; keys with equal ones share offsets.
    - `partition`: the source's value for topic and key; `range` for a partition, start and end.
      Values of partitions are hashable and in order; `partition` raises `ValueError` for no key.
    - `peer_of`: the name of the broker that a key, or a log, is on; by default each is its own.
    - `resolvers`: ways to time that this kind has besides those of every kind; None: it does not
      say, and a run will tell.
    - `name_problem`: what is wrong with a name, given ``"topic"``, ``"group"`` or ``"filter"`` and
      the name; None: any text that is not blank will do.
    - `forgets_brokers`: whether servers forget a broker that is away, so that a topic nobody knows
      may only be one whose brokers all restart.
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
        """Entries of a log between two offsets: an upper bound on records."""
        return (end - start) // self.step

    def offset_problem(self, offset: object) -> str | None:
        """What is wrong with an offset, or None."""
        if isinstance(offset, bool) or not isinstance(offset, int):
            return f"{offset!r} is not an integer"
        if offset < 0 or offset % self.step:
            return f"{offset} is not a multiple of {self.step} that is >= 0"
        return None

    def ordered(self, keys: Iterable[str]) -> list[str]:
        """Partition keys in their order."""
        return sorted(keys, key=self.order)

    def by_key(self, items: Mapping[str, Value]) -> dict[str, Value]:
        """A mapping by partition key, in the keys' order."""
        return {key: items[key] for key in self.ordered(items)}

    def logs(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """Keys by the log they belong to."""
        found: dict[str, list[str]] = {}
        for key in keys:
            found.setdefault(self.log_of(key), []).append(key)
        return found

    def ranges(self, topic: str, key: str, start: int, end: int) -> Any:
        """The source's range `[start, end)` of the partition `key` of `topic`."""
        return self.range(self.partition(topic, key), start, end)


@cache
def space_of(source: str) -> OffsetSpace:
    """The space of a kind of source. Raises `ConfigError` for one that is not known here."""
    found: OffsetSpace = import_module(f"{source_package(source)}.space").SPACE
    return found


def source_package(source: str) -> str:
    """The import name of a kind's package: of those here, else of what is installed beside.

    Raises `ConfigError` for a kind that is not known here.
    """
    if source in SOURCES:
        return SOURCES[source]
    others = {point.name: point.value for point in entry_points(group=SOURCE_GROUP)}
    if source in others:
        return others[source]
    raise ConfigError(
        f"there is no source of kind {source!r} here; known: "
        f"{', '.join(sorted({*SOURCES, *others}))}. A newer release, or another package, may have "
        f"it",
        subject="source",
    )
