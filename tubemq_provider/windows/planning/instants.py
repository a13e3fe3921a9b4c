"""Protocol of time resolvers, which turn an instant into offsets, and their answer.

A `TimeResolver` answers for one instant at a time; `planning.boundary_book` fits the answer between
the fixed boundaries. Resolvers are in `windows.time_resolvers` and in sources. Values and protocols
only: this module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.protocols import Document

__all__ = ["EvidentResolver", "Resolved", "TimeResolver", "ask"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Offsets of one instant by partition key, with the evidence for them.

    - `evidence`: strings, integers, lists and objects; stored in the boundary's document.
    - `unknown`: partitions (``"1:0"``) or whole stores (``"1/0"``) that exist but cannot be
      resolved, each with the reason. A partition may be left out of the answer without being listed
      here only if it had no record yet.
    - `later`: offsets of partitions that were first observed after the instant. They are used if an
      earlier boundary has the partition; otherwise it joins at a later boundary.
    - `eroded`: partitions of which retention has removed everything before the offset, with the
      lowest possible offset: the boundary lies between that and the offset.
    - `held`: for such partitions, the offset from which their log is complete, if it is below the
      resolved one because records of other partitions of the log lie between.
    """

    offsets: Mapping[str, int]
    evidence: Document = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    lost_to_retention: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    later: Mapping[str, int] = field(default_factory=dict)

    def certain(self) -> Mapping[str, int]:
        """Return the offsets if all are resolved. Raises `WindowNotReady` for unknown partitions,
        and `ConfigError` for offsets that were lost to retention."""
        if self.unknown:
            lines = "".join(f"\n  - {name}: {why}" for name, why in sorted(self.unknown.items()))
            raise WindowNotReady(f"the boundary cannot be told yet:{lines}")
        if self.lost_to_retention:
            raise ConfigError(
                f"retention has removed the records that decide it in partitions "
                f"{', '.join(self.lost_to_retention)}",
                subject="boundary",
            )
        return self.offsets


@runtime_checkable
class TimeResolver(Protocol):
    """Resolver of an instant to one offset per partition."""

    @property
    def name(self) -> str:
        """Name by which users select it, such as ``boundaries``."""

    @property
    def exact(self) -> bool:
        """True if the answer never changes. Answers of other resolvers must be fixed in a book."""

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Return offsets by partition key; records before them belong to earlier windows.

        Raises `ConfigError` if the instant cannot be resolved, `WindowNotReady` if not yet."""


@runtime_checkable
class EvidentResolver(TimeResolver, Protocol):
    """Resolver whose answer has evidence, which is stored in the boundary's document."""

    def resolve(self, instant: datetime) -> Resolved:
        """Resolve like `offsets_at`, and return the evidence too. Raises the same."""


def ask(resolver: TimeResolver, instant: datetime) -> Resolved:
    """Return the answer of any resolver, without evidence if it has none."""
    if isinstance(resolver, EvidentResolver):
        return resolver.resolve(instant)
    return Resolved(resolver.offsets_at(instant))
