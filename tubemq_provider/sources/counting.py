"""Base for a source whose offsets count records: files of lines, rows of a table, an API's pages.

An author gives the form of partition keys, the number of records of each partition, and the columns
of a range; ends, ranges, batches and readers follow. For logs that keep their records and cannot be
told from recreated ones; others implement `sources.base.Source`. Light: executors import it.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.spaces import OffsetSpace

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from tubemq_provider.sources.base import End
    from tubemq_provider.windows.planning.instants import TimeResolver

__all__ = ["CountedPartition", "CountedRange", "CountingSource", "counting_space"]


class CountedPartition(NamedTuple):
    """Partition of a topic."""

    topic: str
    key: str


class CountedRange(NamedTuple):
    """Records `[start, end)` of a partition."""

    partition: CountedPartition
    start: int
    end: int

    @property
    def entries(self) -> int:
        """Number of records."""
        return self.end - self.start


class CountedEnds(NamedTuple):
    """Ends of a partition, below which nothing is removed."""

    partition: CountedPartition
    min_offset: int
    max_offset: int
    stable: bool = True


def counting_space(source: str, key: str) -> OffsetSpace:
    """Return the space of the kind `source`, whose partition keys match the pattern `key`; each is
    a log, and offsets count its records. Numbers in keys are ordered as numbers."""
    pattern = re.compile(key)

    def is_key(value: object) -> bool:
        return isinstance(value, str) and pattern.fullmatch(value) is not None

    def order(value: str) -> tuple[Any, ...]:
        parts = re.split(r"([0-9]+)", value) if is_key(value) else ()
        return tuple(int(part) if part.isdecimal() else part for part in parts)

    def partition(topic: str, value: str) -> CountedPartition:
        if not is_key(value):
            raise ValueError(f"{value!r} does not match {key}")
        return CountedPartition(topic, value)

    return OffsetSpace(
        source=source,
        key_form=repr(key),
        step=1,
        is_key=is_key,
        order=order,
        log_of=str,
        partition=partition,
        range=CountedRange,
    )


class _Batch(NamedTuple):
    """Records of a range, by column."""

    range: CountedRange
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return self.range.entries

    @property
    def nbytes(self) -> int:
        """Bytes of texts and bodies."""
        values = (value for column in self.columns.values() for value in column)
        return sum(len(value) for value in values if isinstance(value, str | bytes))

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the records as mappings."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the records with `schema`."""
        import pyarrow as pa

        range_ = self.range
        values = {
            "partition": [range_.partition.key] * len(self),
            "offset": range(range_.start, range_.end),
            **self.columns,
        }
        arrays = [pa.array(values[item.name], item.type) for item in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass
class _Stats:
    """Counters of a reader that loses nothing."""

    corrupt: int = 0
    gaps: list[Any] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Reader:
    """Reader of ranges, in batches of `CountingSource.BATCH` records."""

    source: CountingSource
    stats: _Stats = field(default_factory=_Stats)

    def read(self, range_: CountedRange) -> Iterator[_Batch]:
        """Yield the records of the range. Raises `ConfigError` if the source gives another number
        of them."""
        for start in range(range_.start, range_.end, self.source.BATCH):
            end = min(start + self.source.BATCH, range_.end)
            columns = self.source.read(range_.partition.key, start, end)
            if wrong := {
                n: len(column) for n, column in columns.items() if len(column) != end - start
            }:
                raise ConfigError(
                    f"partition {range_.partition.key} gave {wrong} records of [{start}, {end})",
                    subject="source",
                )
            yield _Batch(CountedRange(range_.partition, start, end), columns)


class CountingSource:
    """One topic as one group sees it; `open_source` of a kind is its class.

    A kind defines `space`, `counts` and `read`. `BATCH` is the greatest number of records that
    `read` is asked for at once.
    """

    space: ClassVar[OffsetSpace]
    BATCH: ClassVar[int] = 10_000

    def __init__(
        self, settings: Any, *, identity: str, topic: str, group: str, filters: Sequence[str] = ()
    ) -> None:
        if filters:
            raise ConfigError(f"{self.space.source} has no filters", subject="filters")
        self.identity, self.topic, self.group = identity, topic, group
        self._settings = settings

    @abstractmethod
    def counts(self) -> Mapping[str, int]:
        """Return how many records each partition has, by its key: those that a crash cannot take
        back."""

    @abstractmethod
    def read(self, key: str, start: int, end: int) -> Mapping[str, Sequence[Any]]:
        """Return the records `[start, end)` of a partition by column, without ``partition`` and
        ``offset``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what `counts` and `read` have opened; may be called twice."""

    def settings(self) -> Any:
        """Return what travels to executors."""
        return self._settings

    def partitions(self) -> Mapping[CountedPartition, bool]:
        """Return the partitions that have a count."""
        return dict.fromkeys(self.ends(), True)

    def ends(self, which: End = "stable") -> Mapping[CountedPartition, CountedEnds]:  # noqa: ARG002 - nothing is in memory only
        """Return the number of records of each partition."""
        by_key = self.counts()
        made = {CountedPartition(self.topic, key): by_key[key] for key in sorted(by_key)}
        return {each: CountedEnds(each, 0, count) for each, count in made.items()}

    def starts(self) -> Mapping[CountedPartition, int]:
        """Return 0 for each partition."""
        return dict.fromkeys(self.ends(), 0)

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Refuse: such a source has no times, unless a kind overrides it."""
        raise ConfigError(
            f"{self.space.source} has no times, so {instant.isoformat()} cannot be looked up",
            subject="time",
        )

    def resolver(self, name: str, options: Mapping[str, Any]) -> TimeResolver:  # noqa: ARG002 - it has none
        """Refuse: such a source has no times, unless a kind overrides it."""
        raise ConfigError(f"{self.space.source} has no resolver {name!r}", subject="resolver")

    def record_lookup(self) -> None:
        """Return None: a log that was recreated cannot be told from the old one."""

    def probe(self) -> Any:
        """Return a reader of small ranges."""
        return lambda range_: (
            each for batch in _Reader(self).read(range_) for each in batch.messages()
        )

    def open_reader(self, *_: Any, **__: Any) -> AbstractContextManager[_Reader]:
        """Return the reader of a plan's ranges."""
        return nullcontext(_Reader(self))

    def mirror(self, ends: Mapping[str, int]) -> None:
        """Do nothing: there are no brokers, unless a kind overrides it."""
