"""Protocols of sources: the interface that windows, files, sinks, stores and engines depend on.

`OffsetSpace` defines the arithmetic of offsets, `RecordReader` is what an engine reads with,
`Source` serves planning, `SourceConfig` validates options. A kind of source is a package that
implements these protocols; `registry` finds it. This module must not import a client or name a
kind.
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
    from tubemq_provider.windows.planning.log_identity import RecordLookup

__all__ = [
    "ConfigurableSource",
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
"""End that survives a broker crash, or the end in memory."""


class RecordBatches(Protocol):
    """Fetched batch, converted to Arrow without an object per record."""

    def __len__(self) -> int:
        """Return the number of records."""

    @property
    def nbytes(self) -> int:
        """Bytes of all record bodies."""

    def messages(self) -> Iterator[Any]:
        """Yield the records one by one, as the source's own values."""

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the records with exactly `schema`."""


class MissingRange(Protocol):
    """Offsets `[start, end)` that were lost to retention."""

    @property
    def start(self) -> int:
        """First missing offset."""

    @property
    def end(self) -> int:
        """First offset after the missing ones."""


class ReaderStats(Protocol):
    """Counters of a reader, and the last record of each partition."""

    @property
    def corrupt(self) -> int:
        """Records that failed their checksum."""

    @property
    def gaps(self) -> Sequence[MissingRange]:
        """Missing ranges, in the order of reading."""

    @property
    def last(self) -> Mapping[str, Any]:
        """Last record that was read, by partition key: an anchor."""


class RecordReader(Protocol):
    """Reader of offset ranges; yields each record once."""

    @property
    def stats(self) -> ReaderStats:
        """Corrupt records and gaps so far."""

    def read(self, range_: Any) -> Iterator[RecordBatches]:
        """Yield the records of the range, in offset order."""


@runtime_checkable
class ExpectingReader(Protocol):
    """Reader that sends fewer requests if it knows its ranges in advance (TubeMQ's)."""

    def expect(self, ranges: Iterable[Any]) -> None:
        """Announce that all of `ranges` will be read, and are only useful together."""


Keep = Callable[[Any], None]
"""Callback for a record that failed its checksum, as `files.quarantine.Corrupt`."""


class LetterTopic(Protocol):
    """Topic that quarantined records are sent to."""

    name: str

    def ends(self) -> dict[str, int]:
        """Return the ends of its partitions."""

    def sent_since(self, ends: Mapping[str, int], window_id: str) -> set[int]:
        """Return the numbers of a window's letters that were sent after `ends`."""

    def send(
        self, window_id: str, letters: Iterable[tuple[int, bytes, Mapping[str, str]]]
    ) -> Iterator[tuple[str, int]]:
        """Send letters; yield partition and offset of each."""


@runtime_checkable
class LetterSource(Protocol):
    """Source whose cluster takes quarantined records in a topic (TubeMQ's)."""

    def dead_letters(self, topic: str) -> LetterTopic:
        """Return the topic, in which this source's group looks for what was sent."""


@runtime_checkable
class ConfigurableSource(Protocol):
    """Source whose client has options that a task may choose."""

    def configure(self, options: Mapping[str, Any]) -> None:
        """Apply a task's `consumer_config` to the settings, before a broker is asked.

        Raises `ConfigError` with every problem.
        """


class Source(Protocol):
    """One topic of one topic system, as one group sees it.

    A context manager: leaving it closes what its methods opened. Connects on the first query.
    """

    @property
    def space(self) -> OffsetSpace:
        """Meaning of its offsets and keys; its `source` is the kind."""

    @property
    def identity(self) -> str:
        """Name in scopes: an alias of the cluster, independent of its addresses."""

    @property
    def topic(self) -> str:
        """Topic to read."""

    @property
    def group(self) -> str:
        """Group that the progress belongs to."""

    def settings(self) -> Any:
        """Return frozen settings that are sent to executors, without secrets in their `repr`."""

    def partitions(self) -> Mapping[Any, bool]:
        """Return the partitions of the topic, True for those that can be read now."""

    def ends(self, which: End = "stable") -> Mapping[Any, Ends]:
        """Return the end of each log: the stable one, or the one in memory (``latest``).

        Covers partitions that can be reached; an attribute `away` has the others, with the reason.
        """

    def starts(self) -> Mapping[Any, int]:
        """Return the first offset of each partition that can be reached."""

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Return offsets by partition key, if the system stores times, else raise `ConfigError`."""

    def resolver(self, name: str, options: Mapping[str, Any]) -> TimeResolver:
        """Return a resolver that only this kind has, by its `name`.

        `options` are its arguments that were set. Raises `ConfigError` with the available
        resolvers.
        """

    def record_lookup(self) -> RecordLookup | None:
        """Return what tells one epoch of the topic from the next; None if nothing does."""

    def probe(self) -> ReadRange:
        """Return a reader of small ranges, for estimates; corrupt records are left out."""

    def open_reader(
        self, plan: WindowPlan, policies: Policies, *, quarantine: Keep | None = None
    ) -> AbstractContextManager[RecordReader]:
        """Return the reader of a plan's ranges; close it."""

    def mirror(self, ends: Mapping[str, int]) -> Mapping[str, str] | None:
        """Commit the next offsets of the group at the brokers, where the system supports it.

        May return the partitions that were left out, with the reason.
        """

    def close(self) -> None:
        """Close all connections; may be called twice."""

    def __enter__(self) -> Self:
        """Return the source."""

    def __exit__(self, *_: object) -> None:
        """Close the source."""


class SourceConfig(Protocol):
    """Validated options of a source, which become settings for executors."""

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the model. Raises `ConfigError` with every problem, which never contains a
        secret."""

    def settings(self) -> Any:
        """Return frozen settings without secrets in their `repr`."""
