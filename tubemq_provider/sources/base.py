"""The seam for sources: what windows, files, sinks, stores and engines know of any of them.

`OffsetSpace` is the value that all arithmetic goes by, `RecordReader` what an engine reads with,
`Source` what planning asks, `SourceConfig` what a user may say. A kind of source keeps these
protocols in its own package. This module must not import a client or name a kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.spaces import Ends, OffsetSpace, space_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Ends",
    "MissingRange",
    "OffsetSpace",
    "ReaderStats",
    "RecordBatches",
    "RecordReader",
    "Source",
    "SourceConfig",
    "space_of",
]


class RecordBatches(Protocol):
    """A fetched batch, made into Arrow without an object per record."""

    @property
    def nbytes(self) -> int:
        """Bytes of all record bodies."""

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


class Source(Protocol):
    """One topic system that windows are planned from."""

    @property
    def space(self) -> OffsetSpace:
        """What its offsets and keys mean."""

    @property
    def identity(self) -> str:
        """Its name in scopes: an alias of the cluster, which changing addresses does not change."""

    def partitions(self, topic: str) -> Mapping[Any, bool]:
        """The partitions of a topic, and whether each can be read now."""

    def ends(self, topic: str, *, stable: bool = True) -> Mapping[Any, Ends]:
        """How far each log reaches: on disk, or in memory."""

    def offsets_at(self, topic: str, instant: datetime) -> Mapping[str, int]:
        """Offsets by partition key, where the system keeps times; raises `ConfigError` if not."""

    def open_reader(
        self, plan: WindowPlan, policies: Policies
    ) -> AbstractContextManager[RecordReader]:
        """What reads the ranges of a plan; close it."""


class SourceConfig(Protocol):
    """What a user may say of a source, checked; turns into plain settings that travel."""

    def settings(self) -> Any:
        """Frozen settings without secrets in their `repr`."""
