"""What a task tells about its read: a log line, and a small file if a directory was named.

Spark gives Python sources no way to send metrics to the driver, and gaps or dropped records must
not be silent. Reports say what was *read*; whether it reached a sink only the sink can say.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tubemq_client.model import Anchor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubemq_provider.spark.splits import Split

__all__ = ["SplitReport", "last_records", "load_reports", "report_read"]

log = logging.getLogger(__name__)

_PREFIX = "split-"


class Stats(Protocol):
    """What is taken from the reader's `ReadStats`."""

    records: int
    bytes: int

    @property
    def corrupt(self) -> int:
        """Records that failed their checksum."""

    @property
    def gaps(self) -> Sequence[Any]:
        """Each has `start` and `end`."""

    @property
    def last(self) -> Mapping[str, Anchor]:
        """The last record by partition key."""


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One finished split: its sub-range, and what came out of it. `bytes` counts bodies; `last` is
    the anchor of its last record, if it had any; `rows` is what was handed on, where decoding makes
    that another number than `records`."""

    index: int
    partition: str
    start: int
    end: int
    records: int
    bytes: int
    corrupt: int
    gaps: list[list[int]]
    last: list[int] = field(default_factory=list)
    rows: int | None = None


def last_records(found: Iterable[tuple[str, int, Sequence[int]]]) -> dict[str, Anchor]:
    """The last record of each partition, from `(partition, start, last)` of its splits; `last` is
    empty where a split had no record."""
    last: dict[str, Anchor] = {}
    for partition, _, anchor in sorted(found, key=lambda item: item[1]):
        if anchor:
            last[partition] = Anchor(*anchor)
    return last


def report_read(
    split: Split, stats: Stats, directory: str | None, *, rows: int | None = None, bad: int = 0
) -> None:
    """Log the end of a split, and leave its report in `directory` if that is given. `bad` records
    did not decode.

    A retried task replaces the report of the attempt before it, which is never half written.
    """
    report = SplitReport(
        index=split.index,
        partition=split.range.partition.key,
        start=split.range.start,
        end=split.range.end,
        records=stats.records,
        bytes=stats.bytes,
        corrupt=stats.corrupt + bad,
        gaps=[[gap.start, gap.end] for gap in stats.gaps],
        last=list(stats.last.get(split.range.partition.key, ())),
        rows=rows,
    )
    text = json.dumps(asdict(report))
    odd = report.gaps or report.corrupt
    log.log(logging.WARNING if odd else logging.INFO, "tubemq split of %s: %s", split.range, text)
    if directory is not None:
        _write(Path(directory), f"{_PREFIX}{split.index}.json", text)


def load_reports(directory: Path) -> Iterator[SplitReport]:
    """The reports in `directory`, in the order of their splits."""
    documents: list[Mapping[str, Any]] = [
        json.loads(path.read_text(encoding="utf-8")) for path in directory.glob(f"{_PREFIX}*.json")
    ]
    for document in sorted(documents, key=lambda found: int(found["index"])):
        yield SplitReport(**document)


def _write(directory: Path, name: str, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=directory, prefix=".draft-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(draft).replace(directory / name)
