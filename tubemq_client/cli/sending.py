"""Sends rows in order, shows progress, counts receipts, and writes boundaries if requested.

With boundaries, all receipts are awaited before an instant is passed; without them, never. In every
case, boundaries passed before a run ends are exact and are saved.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from tubemq_client import PartitionEnds, Producer, Record, errors
from tubemq_client.cli.boundaries import BoundaryWriter, StoreEnds
from tubemq_client.cli.options import counted, note, status_console
from tubemq_client.cli.rows import Row, RowSource

__all__ = ["ProduceRun"]

_SHOW_EVERY = 50


class ProduceRun:
    """One run of `tubemq produce`: `begin`, then `send`. `sent` counts receipts."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        source: RowSource,
        ends: StoreEnds,
        writer: BoundaryWriter | None,
        *,
        rate: float | None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._source = source
        self._ends = ends
        self._writer = writer
        self._rate = rate
        self._total = source.selection.limit
        self.sent = 0

    def begin(self, ends_in_memory: Callable[[], Iterable[PartitionEnds]]) -> None:
        """Refuse errors that are known before the first record: a topic without partitions, rows
        out of order, rows before an existing boundary."""
        if not self._producer.partitions(self._topic):
            raise errors.UnknownTopic(
                431,
                f"topic {self._topic!r} accepts no records: it is unknown, or was just created "
                "(a genuine master takes up to a minute)",
            )
        first = None
        if self._source.can_be_read_twice:
            self._total, first = self._source.overview()
        if self._writer is None:
            return
        self._ends.begin(ends_in_memory())
        unclaimed = self._writer.begin(self._source.selection.start, first)
        if unclaimed:
            note(
                f"{self._topic} already holds {unclaimed} records after its newest boundary; they "
                "count to the interval that begins there"
            )

    def send(self) -> None:
        """Send every row. Raises the first failure, after reporting how many records were
        stored."""
        try:
            with _progress() as progress:
                task = progress.add_task(f"sending to {self._topic}", total=self._total)
                self._send_all(progress, task)
        finally:
            note(f"{counted(self.sent)} stored in {self._topic}")
            if self._writer is not None:
                self._writer.save()

    def _send_all(self, progress: Progress, task: TaskID) -> None:
        failures: list[errors.ConfigError] = []
        rows = _until_failure(self._source.rows(), failures)
        for _, interval in itertools.groupby(rows, key=self._interval):
            for _ in self._send_interval(interval):
                if self.sent % _SHOW_EVERY == 0:
                    progress.update(task, completed=self.sent)
        progress.update(task, completed=self.sent)
        if failures:
            raise failures[0]
        limit, end = self._source.selection.limit, self._source.selection.end
        cut_short = limit is not None and self.sent >= limit  # rows before `end` may be left
        if self._writer is not None and end is not None and not cut_short:
            self._writer.close(end)

    def _send_interval(self, rows: Iterator[Row]) -> Iterator[None]:
        """Send rows of one interval and count every receipt; yields once per receipt."""
        first = next(rows)
        if self._writer is not None and first.time is not None:
            self._writer.enter(first.time)
        records = self._paced(row.record for row in itertools.chain([first], rows))
        for receipt in self._producer.send_many(self._topic, records):
            self._ends.add(receipt)
            self.sent += 1
            yield

    def _interval(self, row: Row) -> datetime | None:
        if self._writer is None or row.time is None:
            return None
        return self._writer.interval(row.time)

    def _paced(self, records: Iterator[Record]) -> Iterator[Record]:
        if self._rate is None:
            yield from records
            return
        pause, started = threading.Event(), time.monotonic()
        for count, record in enumerate(records):
            pause.wait(max(0.0, started + count / self._rate - time.monotonic()))
            yield record


def _until_failure(rows: Iterator[Row], failures: list[errors.ConfigError]) -> Iterator[Row]:
    """Yield rows up to one that cannot be read, and store its error: the caller raises it after the
    receipts of the records in flight."""
    try:
        yield from rows
    except errors.ConfigError as error:
        failures.append(error)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=status_console,
        transient=True,
        disable=not status_console.is_terminal,
    )
