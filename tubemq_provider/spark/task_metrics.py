"""Reports of tasks about their reads: a log line, and a small file if a place was named.

Spark has no way for Python sources to send metrics to the driver, and gaps or dropped records must
not be silent. Reports count what was *read*; only the sink knows whether it was written. A user
names a directory, an engine a `ReportDirectory`, which may be in an object store.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

from tubemq_client.errors import ConfigError
from tubemq_client.model import Anchor
from tubemq_provider.files.locations import Location, document_in, keep_document, location_at
from tubemq_provider.files.objects import is_remote
from tubemq_provider.windows.errors import CountMismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubemq_provider.spark.splits import Split

log = logging.getLogger(__name__)

_PREFIX = "split-"
_SUFFIX = ".json"
_PARALLEL_READS = 16
NOT_SHARED: Final = (
    "executors have another file system than the driver; give staging_root, or a path, that all of "
    "them share, or a sink whose storage tasks write to themselves (s3://…, gs://…, az://…, tables "
    "there), without staging_root"
)
"""Advice if tasks and the driver do not see the same directory."""


class Stats(Protocol):
    """Part of the reader's `ReadStats` that reports use."""

    records: int
    bytes: int

    @property
    def corrupt(self) -> int:
        """Records that failed their checksum."""

    @property
    def gaps(self) -> Sequence[Any]:
        """Gaps, each with `start` and `end`."""

    @property
    def last(self) -> Mapping[str, Anchor]:
        """Last record by partition key."""


@dataclass(frozen=True, slots=True)
class SplitReport:
    """Report of one finished split: its sub-range, and the counts. `bytes` counts bodies; `last` is
    the anchor of its last record, if it had any; `rows` is the number of rows passed on, if
    decoding makes it differ from `records`. `aside` is the quarantine file, if there is one: the
    only field that differs between attempts."""

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
    aside: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ReportDirectory:
    """Place of the reports of one try: a shared directory that exists, or a prefix of an object
    store, with the options that open it (`storage`)."""

    directory: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def leave(self, report: SplitReport) -> None:
        """Write a report under a unique name, next to those of other attempts."""
        self.put(f"{_PREFIX}{report.index}-{uuid4().hex[:8]}{_SUFFIX}", asdict(report))

    def put(self, name: str, document: Any) -> None:
        """Write a JSON document under the unique `name`, atomically. Raises `ConfigError` if the
        directory does not exist."""
        if not is_remote(self.directory):
            _write_shared(Path(self.directory), name, json.dumps(document))
            return
        keep_document(self._location(), name, document)

    def get(self, name: str) -> Any:
        """Read the document `name`. Raises `FileNotFoundError`."""
        return document_in(self._location(), name)

    def collect(self) -> list[SplitReport]:
        """Return one report for each split. Raises `CountMismatch` if two attempts have read a
        split differently, since it is unknown whose records were used."""
        location = self._location()
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            names = [name for name in location.stored() if name.startswith(_PREFIX)]
            documents = [*pool.map(lambda name: document_in(location, name), names)]
        by_split: dict[int, SplitReport] = {}
        for report in (SplitReport(**document) for document in documents):
            if report != by_split.setdefault(report.index, report):
                raise CountMismatch(
                    f"two attempts of Spark have read [{report.start}, {report.end}) of partition "
                    f"{report.partition} differently, as when retention passes between them; "
                    f"nothing is published, let the task retry"
                )
        return [by_split[index] for index in sorted(by_split)]

    def clear(self) -> None:
        """Remove all reports."""
        self._location().clear()

    def _location(self) -> Location:
        return location_at(self.directory, self.storage)


def last_records(splits: Iterable[tuple[str, int, Sequence[int]]]) -> dict[str, Anchor]:
    """Return the last record of each partition, from `(partition, start, last)` of its splits;
    `last` is empty for a split without records."""
    last: dict[str, Anchor] = {}
    for partition, _, anchor in sorted(splits, key=lambda item: item[1]):
        if anchor:
            last[partition] = Anchor(*anchor)
    return last


def report_read(
    split: Split,
    stats: Stats,
    place: ReportDirectory | str | None,
    *,
    rows: int | None = None,
    bad: int = 0,
    aside: str = "",
) -> None:
    """Log the end of a split, and write its report to `place` if there is one. `bad` records did
    not decode; `aside` is the quarantine file.

    In a directory, a `str`, a retried task atomically replaces the report of its earlier attempt.
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
        aside=aside,
    )
    text = json.dumps(asdict(report))
    odd = report.gaps or report.corrupt
    log.log(logging.WARNING if odd else logging.INFO, "tubemq split of %s: %s", split.range, text)
    if isinstance(place, ReportDirectory):
        place.leave(report)
    elif place is not None:
        Path(place).mkdir(parents=True, exist_ok=True)
        _write(Path(place), f"{_PREFIX}{split.index}{_SUFFIX}", text)


def _write_shared(directory: Path, name: str, text: str) -> None:
    """Write into a directory that the driver has created and may have removed again."""
    try:
        _write(directory, name, text)
    except FileNotFoundError as exc:
        raise ConfigError(
            f"{directory} is not there for a task: {NOT_SHARED}", subject="reports of a read"
        ) from exc


def _write(directory: Path, name: str, text: str) -> None:
    handle, draft = tempfile.mkstemp(dir=directory, prefix=".draft-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(draft).replace(directory / name)
