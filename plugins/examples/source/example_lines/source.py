"""Topic of lines, as windows are planned from it and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import pyarrow as pa

from example_lines.space import SPACE, LineRange, Lines
from tubemq_client.errors import ConfigError


class CONFIG(NamedTuple):
    """Options of the connection: the directory."""

    root: str

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the model of `options`."""
        if set(options) != {"root"}:
            raise ConfigError(f"root is the one option, not {sorted(options)}", subject="lines")
        return cls(**options)

    def settings(self) -> str:
        """Return what travels to executors."""
        return self.root


class Ends(NamedTuple):
    """Ends of one file."""

    partition: Lines
    min_offset: int
    max_offset: int
    stable: bool = True


class Batch(NamedTuple):
    """Lines of a range."""

    range: LineRange
    lines: list[bytes]

    def __len__(self) -> int:
        return len(self.lines)

    def messages(self) -> Iterator[bytes]:
        """Yield the lines."""
        yield from self.lines

    @property
    def nbytes(self) -> int:
        """Bytes of all lines."""
        return sum(map(len, self.lines))

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the lines with `schema`."""
        columns = {
            "partition": [self.range.partition.key] * len(self.lines),
            "offset": list(range(self.range.start, self.range.end)),
            "value": self.lines,
        }
        return pa.RecordBatch.from_pydict({n: columns[n] for n in schema.names}, schema=schema)


class Reader:
    """Reader of ranges."""

    def __init__(self, root: Path) -> None:
        self.root, self.stats = root, SimpleNamespace(corrupt=0, gaps=[], last={})

    def read(self, range_: LineRange) -> Iterator[Batch]:
        """Yield the records of the range."""
        lines = (self.root / range_.partition.key).read_bytes().splitlines()
        yield Batch(range_, lines[range_.start : range_.end])


class LineSource:
    """One topic as one group sees it."""

    space = SPACE

    def __init__(self, root: str, *, identity: str, topic: str, group: str, filters: Any) -> None:
        self.identity, self.topic, self.group, self.root = identity, topic, group, Path(root, topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close nothing."""

    def settings(self) -> str:
        """Return the directory."""
        return str(self.root.parent)

    def partitions(self) -> dict[Lines, bool]:
        """Return the files."""
        return {Lines(self.topic, path.name): True for path in sorted(self.root.iterdir())}

    def ends(self, which: str = "stable") -> dict[Lines, Ends]:
        """Return the number of lines of each file."""
        counts = {p: len((self.root / p.key).read_bytes().splitlines()) for p in self.partitions()}
        return {partition: Ends(partition, 0, count) for partition, count in counts.items()}

    def starts(self) -> dict[Lines, int]:
        """Return 0 for each file: nothing is ever removed."""
        return dict.fromkeys(self.partitions(), 0)

    def resolver(self, name: str, options: Mapping[str, Any]) -> Any:
        """Refuse: lines have no time."""
        raise ConfigError(f"lines have no resolver {name!r}", subject="resolver")

    offsets_at = resolver

    def record_lookup(self) -> None:
        """Return None: recreated files cannot be told from old ones."""

    def probe(self) -> Any:
        """Return a reader of small ranges."""
        return lambda range_: iter(next(Reader(self.root).read(range_)).lines)

    def open_reader(self, *_: Any, **__: Any) -> AbstractContextManager[Reader]:
        """Return the reader of a plan's ranges."""
        return nullcontext(Reader(self.root))

    def mirror(self, ends: Mapping[str, int]) -> None:
        """Do nothing: there is no broker."""


open_source = LineSource
