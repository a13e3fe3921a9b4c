"""The seam for sources: what windows, files, sinks, stores and engines know of any of them.

`OffsetSpace` is the value that all arithmetic goes by, `RecordReader` what an engine reads with,
`Source` what planning asks, `SourceConfig` what a user may say. A kind of source is a package that
keeps these protocols; `registry` finds it. This module must not import a client or name a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.probing import ReadRange
from tubemq_provider.windows.spaces import Ends, OffsetSpace, space_of

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.windows.planning.instants import TimeResolver
    from tubemq_provider.windows.planning.lives import LogWitness

__all__ = [
    "End",
    "Ends",
    "ExpectingReader",
    "Keep",
    "MissingRange",
    "OffsetSpace",
    "ReaderStats",
    "RecordBatches",
    "RecordReader",
    "Source",
    "SourceConfig",
    "space_of",
]

End = Literal["stable", "latest"]
"""The end that a crash of a broker cannot take back, or the one in memory."""


class RecordBatches(Protocol):
    """A fetched batch, made into Arrow without an object per record."""

    def __len__(self) -> int:
        """How many records."""

    @property
    def nbytes(self) -> int:
        """Bytes of all record bodies."""

    def messages(self) -> Iterator[Any]:
        """The records one by one, as the source's own values."""

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """The records with exactly `schema`."""


class MissingRange(Protocol):
    """Offsets `[start, end)` that retention took."""

    @property
    def start(self) -> int:
        """The first of them."""

    @property
    def end(self) -> int:
        """The first after them."""


class ReaderStats(Protocol):
    """What a reader counts over its life, and the last record of each partition."""

    @property
    def corrupt(self) -> int:
        """Records that failed their checksum."""

    @property
    def gaps(self) -> Sequence[MissingRange]:
        """In the order in which they were met."""

    @property
    def last(self) -> Mapping[str, Any]:
        """The last record that was met, by partition key: an anchor."""


class RecordReader(Protocol):
    """Reads ranges of offsets, each record once."""

    @property
    def stats(self) -> ReaderStats:
        """Corrupt records and gaps so far."""

    def read(self, range_: Any) -> Iterator[RecordBatches]:
        """The records of the range, in offset order."""


@runtime_checkable
class ExpectingReader(Protocol):
    """A reader that asks its brokers less if it knows what it is going to read (TubeMQ's)."""

    def expect(self, ranges: Iterable[Any]) -> None:
        """Say that all of `ranges` are going to be read, and are worth nothing before that."""


Keep = Callable[[Any], None]
"""Takes a record that failed its checksum, as `files.quarantine.Corrupt`."""


class Source(Protocol):
    """One topic of one topic system, as one group sees it. A context manager: leaving it closes
    what its methods opened. Nothing is connected before something is asked."""

    @property
    def space(self) -> OffsetSpace:
        """What its offsets and keys mean; its `source` is the kind."""

    @property
    def identity(self) -> str:
        """Its name in scopes: an alias of the cluster, which changing addresses does not change."""

    @property
    def topic(self) -> str:
        """What is read."""

    @property
    def group(self) -> str:
        """Whose progress it is."""

    def settings(self) -> Any:
        """Frozen settings that travel to executors, without secrets in their `repr`."""

    def partitions(self) -> Mapping[Any, bool]:
        """The partitions of the topic, and whether each can be read now."""

    def ends(self, which: End = "stable") -> Mapping[Any, Ends]:
        """How far each log reaches: what survives a crash, or what is in memory (``latest``).

        Of partitions that can be reached; an attribute `away` has the others, each with the reason.
        """

    def starts(self) -> Mapping[Any, int]:
        """The first offset of each partition that can be reached."""

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Offsets by partition key, where the system keeps times; raises `ConfigError` if not."""

    def resolver(self, name: str, options: Mapping[str, Any]) -> TimeResolver:
        """A way to time that only this kind has, by its `name`; `options` are its arguments, those
        that were given. Raises `ConfigError` that names the ways there are."""

    def life(self) -> LogWitness | None:
        """What tells one life of the topic from the next; None if nothing does."""

    def probe(self) -> ReadRange:
        """Reads single records of ranges, for estimates; corrupt ones are left out."""

    def open_reader(
        self, plan: WindowPlan, policies: Policies, *, quarantine: Keep | None = None
    ) -> AbstractContextManager[RecordReader]:
        """What reads the ranges of a plan; close it."""

    def mirror(self, ends: Mapping[str, int]) -> Mapping[str, str] | None:
        """Show at the brokers where the group goes on, by partition key; where the system can. May
        give the partitions that were left out, with the reason."""

    def close(self) -> None:
        """Close what was opened; may be called twice."""

    def __enter__(self) -> Self:
        """The source."""

    def __exit__(self, *_: object) -> None:
        """Close."""


class SourceConfig(Protocol):
    """What a user may say of a source, as a checked model; turns into settings that travel."""

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """The model. Raises `ConfigError` with every problem; never repeats a secret."""

    def settings(self) -> Any:
        """Frozen settings without secrets in their `repr`."""
