"""Source in memory, for the suites of engines, resolvers and decoders.

It is of the first kind, so that it needs no plug-in, but has no server: records are entries of a
`MemoryLog`, and a body names partition and offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from tubemq_client.errors import ConfigError
from tubemq_provider.files.columns import columns_of
from tubemq_provider.testing.memory import SPACE, TOPIC, MemoryLog

if TYPE_CHECKING:
    import pyarrow as pa

    from tubemq_provider.sources.base import End, Keep
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.policies import Policies

__all__ = ["MemoryBatch", "MemorySource", "body_of"]


def body_of(key: str, offset: int) -> bytes:
    """Return the body of the record at an offset."""
    return f"{key}@{offset}".encode()


@dataclass
class MemoryBatch:
    """Records of one partition."""

    key: str
    offsets: Sequence[int]
    bodies: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def nbytes(self) -> int:
        """Bytes of all bodies."""
        return sum(map(len, self.bodies))

    def messages(self) -> Iterator[bytes]:
        """Yield the bodies."""
        yield from self.bodies

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the records with `schema`; columns that a log in memory lacks are null."""
        import pyarrow as pa

        count = len(self.bodies)
        values = {
            "topic": [TOPIC] * count,
            "partition": [self.key] * count,
            "offset": self.offsets,
            "batch_offset": self.offsets,
            "message_id": self.offsets,
            "value": self.bodies,
        }
        arrays = [pa.array(values.get(item.name, [None] * count), item.type) for item in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass
class MemoryStats:
    """Counters of a reader that loses nothing."""

    corrupt: int = 0
    gaps: list[Any] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)


@dataclass
class MemoryReader:
    """Reader with batches of at most three entries."""

    log: MemoryLog
    stats: MemoryStats = field(default_factory=MemoryStats)

    def read(self, range_: Any) -> Iterator[MemoryBatch]:
        """Yield the records of the range."""
        key = range_.partition.key
        owners = self.log.entries.get(SPACE.log_of(key), [])
        step = 3 * SPACE.step
        for start in range(range_.start, range_.end, step):
            part = range(start, min(start + step, range_.end), SPACE.step)
            offsets = [offset for offset in part if owners[offset // SPACE.step] == key]
            yield MemoryBatch(key, offsets, [body_of(key, offset) for offset in offsets])


class MemorySource:
    """One topic of a log in memory."""

    space = SPACE
    columns = columns_of(SPACE.source)

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = MemoryLog() if log is None else log
        self.identity, self.topic, self.group = "memory", TOPIC, "suite"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close nothing."""

    def settings(self) -> None:
        """Return None: a log in memory does not travel."""

    def partitions(self) -> Mapping[Any, bool]:
        """Return the partitions of the log."""
        return dict.fromkeys(self.log.ends(), True)

    def ends(self, which: End = "stable") -> Mapping[Any, Any]:  # noqa: ARG002
        """Return the ends of the log."""
        return self.log.ends()

    def starts(self) -> Mapping[Any, int]:
        """Return 0 for each partition: nothing is ever removed."""
        return dict.fromkeys(self.log.ends(), 0)

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Refuse: the log has no times."""
        raise ConfigError(f"a log in memory has no times, not {instant}", subject="resolver")

    def resolver(self, name: str, options: Mapping[str, Any]) -> Any:  # noqa: ARG002
        """Refuse: the log has no times."""
        raise ConfigError(f"a log in memory has no resolver {name!r}", subject="resolver")

    def record_lookup(self) -> None:
        """Return None: the log is never recreated."""

    def probe(self) -> Any:
        """Return a reader of small ranges."""
        reader = MemoryReader(self.log)
        return lambda range_: (each for batch in reader.read(range_) for each in batch.messages())

    def open_reader(
        self,
        plan: WindowPlan,  # noqa: ARG002
        policies: Policies,  # noqa: ARG002
        *,
        quarantine: Keep | None = None,  # noqa: ARG002
    ) -> AbstractContextManager[MemoryReader]:
        """Return a reader of the log."""
        return nullcontext(MemoryReader(self.log))

    def mirror(self, ends: Mapping[str, int]) -> None:
        """Do nothing: there is no broker."""
