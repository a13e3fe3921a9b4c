"""A topic of such a directory, as windows are planned from it and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from tests.kit.toy_source.space import SPACE, LineRange, Lines
from tubemq_client.errors import ConfigError
from tubemq_provider.sources.base import End, Keep
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies

__all__ = ["CONFIG", "LineConfig", "LineSource", "open_source"]


@dataclass(frozen=True)
class LineConfig:
    """Options of a user: the directory."""

    root: str

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the model of `options`."""
        if set(options) != {"root"}:
            raise ConfigError(f"say root, not {sorted(options)}", subject="lines")
        return cls(**options)

    def settings(self) -> str:
        """Return the directory."""
        return self.root


CONFIG = LineConfig


@dataclass(frozen=True)
class _Ends:
    partition: Lines
    min_offset: int
    max_offset: int
    stable: bool


@dataclass(frozen=True)
class _Batch:
    range: LineRange
    lines: list[str]

    def __len__(self) -> int:
        return len(self.lines)

    def messages(self) -> Iterator[str]:
        yield from self.lines

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.lines))

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        columns = {
            "partition": [self.range.partition.key] * len(self.lines),
            "offset": list(range(self.range.start, self.range.end)),
            "text": self.lines,
        }
        return pa.RecordBatch.from_pydict(
            {name: columns[name] for name in schema.names}, schema=schema
        )


@dataclass
class _Stats:
    corrupt: int = 0
    gaps: list[Any] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)


class _Reader:
    def __init__(self, root: Path) -> None:
        self.root, self.stats = root, _Stats()

    def read(self, range_: LineRange) -> Iterator[_Batch]:
        lines = (self.root / range_.partition.key).read_text().splitlines()
        yield _Batch(range_, lines[range_.start : range_.end])


class LineSource:
    """One topic."""

    space = SPACE

    def __init__(self, root: str, identity: str, topic: str, group: str) -> None:
        self.identity, self.topic, self.group = identity, topic, group
        self.root, self.mirrored = Path(root, topic), dict[str, int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""

    def settings(self) -> str:
        """Return the directory."""
        return str(self.root.parent)

    def partitions(self) -> dict[Lines, bool]:
        """Return the files."""
        return {Lines(self.topic, path.name): True for path in sorted(self.root.iterdir())}

    def ends(self, which: End = "stable") -> dict[Lines, _Ends]:
        """Return the number of lines of each."""
        return {
            found: _Ends(found, 0, len((self.root / found.key).read_text().splitlines()), True)
            for found in self.partitions()
        }

    def starts(self) -> dict[Lines, int]:
        """Nothing is ever removed."""
        return dict.fromkeys(self.partitions(), 0)

    def offsets_at(self, instant: datetime) -> dict[str, int]:
        """Return the first line that does not begin with an earlier instant."""
        return {
            found.key: sum(
                line.split()[0] < instant.isoformat()
                for line in (self.root / found.key).read_text().splitlines()
            )
            for found in self.partitions()
        }

    def resolver(self, name: str, options: Mapping[str, Any]) -> Any:
        """Lines begin with their time: ``line_time``."""
        if name != "line_time":
            raise ConfigError(f"there is no {name!r}; there is line_time", subject="resolver")
        return _LineTime(self)

    def record_lookup(self) -> None:
        """Return nothing: recreated logs cannot be detected."""

    def probe(self) -> Any:
        """Read lines."""
        return lambda range_: iter(next(_Reader(self.root).read(range_)).lines)

    def open_reader(
        self, plan: WindowPlan, policies: Policies, *, quarantine: Keep | None = None
    ) -> AbstractContextManager[_Reader]:
        """Read the files."""
        return nullcontext(_Reader(self.root))

    def mirror(self, ends: Mapping[str, int]) -> None:
        """Remember."""
        self.mirrored.update(ends)


@dataclass(frozen=True)
class _LineTime:
    source: LineSource
    name = "line_time"
    exact = True

    def offsets_at(self, instant: datetime) -> dict[str, int]:
        return self.source.offsets_at(instant)


def open_source(
    settings: str, *, identity: str, topic: str, group: str, filters: tuple[str, ...] = ()
) -> LineSource:
    """Return the source of one topic."""
    if filters:
        raise ConfigError("lines have no filters", subject="filters")
    return LineSource(settings, identity, topic, group)
