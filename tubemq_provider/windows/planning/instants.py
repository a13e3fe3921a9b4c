"""What turns an instant into offsets, and what it says: the seam between windows and clocks.

A `TimeResolver` answers for one instant at a time; `planning.boundary_book` decides what becomes
of the answer beside boundaries that are fixed. Resolvers live in `windows.time_resolvers`. Values
and protocols only: this module must not do I/O.
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
    """Offsets by partition key, and what they rest on: strings, integers, lists and objects.

    `unknown` names partitions (``"1:0"``) or whole stores (``"1/0"``) that are known to be there
    and cannot be told, each with the reason. Leaving one out without a word is right only for what
    had no record yet.

    `later` has what is told of others for the first time after the instant: right where an earlier
    boundary has the partition. Else it joins with a later one.

    `eroded` names partitions of which retention has removed all that lay before the offset, with
    the least offset that the boundary can have: it was somewhere from there to the offset. `held`
    says from where on their logs are whole, if that is not the offset but less: records of others
    that share the log may lie between.
    """

    offsets: Mapping[str, int]
    evidence: Document = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    eroded: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    later: Mapping[str, int] = field(default_factory=dict)

    def certain(self) -> Mapping[str, int]:
        """The offsets, if they are all there is to tell. Raises `WindowNotReady`, and `ConfigError`
        for what retention has left open."""
        if self.unknown:
            lines = "".join(f"\n  - {name}: {why}" for name, why in sorted(self.unknown.items()))
            raise WindowNotReady(f"the boundary cannot be told yet:{lines}")
        if self.eroded:
            raise ConfigError(
                f"retention has removed what would tell it of partitions {', '.join(self.eroded)}",
                subject="boundary",
            )
        return self.offsets


@runtime_checkable
class TimeResolver(Protocol):
    """Turns an instant into one offset per partition."""

    @property
    def name(self) -> str:
        """The word users choose it by: ``boundaries``."""

    @property
    def exact(self) -> bool:
        """Whether it gives the same answer for ever. Others need a place to fix their answer."""

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Offset by partition key; records before it belong to earlier windows. Raises
        `ConfigError` if the instant cannot be resolved, `WindowNotReady` if it cannot yet."""


@runtime_checkable
class EvidentResolver(TimeResolver, Protocol):
    """A resolver that says how good its answer is; the boundary's document keeps it."""

    def resolve(self, instant: datetime) -> Resolved:
        """What `offsets_at` gives, with the evidence. Raises the same."""


def ask(resolver: TimeResolver, instant: datetime) -> Resolved:
    """The answer of any resolver."""
    if isinstance(resolver, EvidentResolver):
        return resolver.resolve(instant)
    return Resolved(resolver.offsets_at(instant))
