"""Writes the boundaries file: instant → offset of every partition, from send receipts.

Rows are sent in time order and an instant is passed only when every receipt before it has arrived,
so the recorded offset is exact: rows of earlier times lie below it, later ones at or above. All
partitions of a store share its log, so they share its boundary. A boundary never moves: rows that
belong before an existing one are refused. Neither sends nor queries a broker.

The file is ``{"2013-01-02T00:00:00Z": {"flights": {"1:0": 2800, "1:1": 2800}}, …}``, the input of
the ``boundaries`` resolver of time windows.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tubemq_client import errors
from tubemq_client.cli.rows import instant
from tubemq_client.json_text import load_unique_json
from tubemq_client.model import INDEX_ENTRY_BYTES, Partition, PartitionEnds, SendReceipt

__all__ = ["BoundaryWriter", "StoreEnds"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_MAX_NEW = 100_000

Document = dict[str, dict[str, dict[str, int]]]
"""Instant → topic → partition key → offset."""


class StoreEnds:
    """Ends of a topic's logs, from the ends before the first record and receipts since."""

    def __init__(self) -> None:
        self._partitions: set[Partition] = set()
        self._ends: dict[tuple[int, int], int] = {}

    def begin(self, ends: Iterable[PartitionEnds]) -> None:
        """Set the ends in memory from before the first record."""
        for end in ends:
            self._raise(end.partition, end.max_offset)

    def add(self, receipt: SendReceipt) -> None:
        """Count a stored record."""
        self._raise(receipt.partition, receipt.offset + INDEX_ENTRY_BYTES)

    def offsets(self) -> dict[str, int]:
        """Return the end of every known partition's log, by partition key."""
        return {p.key: self._ends[p.store_key] for p in sorted(self._partitions)}

    def _raise(self, partition: Partition, end: int) -> None:
        self._partitions.add(partition)
        key = partition.store_key
        self._ends[key] = max(self._ends.get(key, 0), end)


class BoundaryWriter:
    """Records the ends of a topic whenever an instant is passed; `save` writes the file."""

    def __init__(self, path: Path, topic: str, every: str, ends: StoreEnds) -> None:
        self._path = path
        self._topic = topic
        self._period = _period(every)
        self._ends = ends
        self._recorded: dict[str, dict[str, int]] = {}
        boundaries = {instant(at): of[topic] for at, of in _load(path).items() if topic in of}
        self._reached = max(boundaries, default=None)
        self._fixed = boundaries[self._reached] if self._reached is not None else {}

    def interval(self, at: datetime) -> datetime:
        """Return the instant that the interval of a row's time begins with."""
        return at - (at - _EPOCH) % self._period

    def begin(self, start: datetime | None, first: datetime | None = None) -> int:
        """Check the file against the topic, record `start`; `first` is the first row's time or
        None.

        Returns the number of index entries after the newest boundary: records that count to the
        interval which begins there. Raises `errors.ConfigError` if the topic ends before that
        boundary, if `start` or `first` does, or if the file cannot be written.
        """
        self._refuse_unwritable()
        offsets = self._ends.offsets()
        behind = [key for key, fixed in self._fixed.items() if offsets.get(key, 0) < fixed]
        if behind:
            raise errors.ConfigError(
                f"{self._path.name} was written for another state of topic {self._topic!r}: "
                f"partition {behind[0]} ends at {offsets.get(behind[0], 0)}, before its boundary "
                f"{self._fixed[behind[0]]}",
                subject="boundaries",
            )
        for at in filter(None, (start, first)):
            self._refuse_late(at)
        unclaimed = self._entries_after_last(offsets)
        if start is not None:
            self._record(start)
        return unclaimed

    def enter(self, at: datetime) -> None:
        """Record the instants passed before rows of time `at`; every earlier receipt must have
        arrived."""
        self._refuse_late(at)
        self._record(self.interval(at))

    def _refuse_late(self, at: datetime) -> None:
        if self._reached is not None and at < self._reached:
            raise errors.ConfigError(
                f"rows of {_text(at)} come too late: the boundary of {_text(self._reached)} in "
                f"{self._path.name} is fixed",
                subject="boundaries",
            )

    def close(self, end: datetime) -> None:
        """Record the instants up to and including `end`; no more rows before it will come."""
        self._record(end)

    def save(self) -> None:
        """Add the recorded boundaries to the file in one step; other topics may have written to it
        meanwhile. Raises `errors.TubeMQError` with the newest boundary if it cannot be written: the
        records before it are sent."""
        try:
            with _locked(self._path.parent):
                document = _load(self._path)
                for at, offsets in self._recorded.items():
                    document.setdefault(at, {})[self._topic] = offsets
                self._replace_by(document)
        except (OSError, errors.ConfigError) as error:
            reason = error.strerror if isinstance(error, OSError) else "; ".join(error.problems)
            newest = {at: {self._topic: of} for at, of in list(self._recorded.items())[-1:]}
            raise errors.TubeMQError(
                f"{self._path}: {reason}; rows were sent, and must not be sent again. The "
                f"newest boundary, which the file lacks: {json.dumps(newest)}"
            ) from error

    def _replace_by(self, document: Document) -> None:
        partial = self._partial
        with partial.open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)

    @property
    def _partial(self) -> Path:
        return self._path.with_name(f"{self._path.name}.{os.getpid()}.partial")

    def _refuse_unwritable(self) -> None:
        try:
            self._partial.touch()
            self._partial.unlink()
        except OSError as error:
            raise errors.ConfigError(
                f"--boundaries {self._path}: {error.strerror}", subject="boundaries"
            ) from None

    def _entries_after_last(self, offsets: Mapping[str, int]) -> int:
        stores = {
            Partition.from_key(self._topic, key).store_key: offsets[key] - fixed
            for key, fixed in self._fixed.items()
        }
        return sum(stores.values()) // INDEX_ENTRY_BYTES

    def _record(self, until: datetime) -> None:
        """Set the boundaries after the newest one up to `until`, all at the present ends of the
        logs."""
        offsets = self._ends.offsets()
        for count, at in enumerate(self._passed(until)):
            if count >= _MAX_NEW:
                raise errors.ConfigError(f"more than {_MAX_NEW} boundaries: raise --boundary-every")
            self._recorded[_text(at)] = offsets
            self._reached = at

    def _passed(self, until: datetime) -> Iterator[datetime]:
        """Yield whole periods after the newest boundary and before `until`, and `until` itself."""
        reached = self._reached
        if reached is not None:
            at = self.interval(reached) + self._period
            while at < until:
                yield at
                at += self._period
        if reached is None or until > reached:
            yield until


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder: topics share a file, and two commands must not add to it at once."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _period(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,6})([mhd])", text)
    if not match or not int(match[1]):
        raise errors.ConfigError(f"--boundary-every {text!r} is not a number with m, h or d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _load(path: Path) -> Document:
    if not path.exists():
        return {}
    try:
        document = load_unique_json(path.read_text(encoding="utf-8"))
        well_formed = _well_formed(document)
    except (OSError, ValueError, RecursionError) as error:
        raise errors.ConfigError(f"{path.name}: {error}", subject="boundaries") from None
    if not well_formed:
        raise errors.ConfigError(
            f'{path.name} is not {{"<time>": {{"<topic>": {{"<partition key>": <offset>}}}}}}',
            subject="boundaries",
        )
    return dict(document)


def _well_formed(document: Any) -> bool:
    """Return True if the shape is right. Raises `ValueError` for an invalid instant."""
    if not isinstance(document, dict):
        return False
    for at, topics in document.items():
        instant(at)
        if not isinstance(topics, dict):
            return False
        for offsets in topics.values():
            if not isinstance(offsets, dict):
                return False
            if not all(type(offset) is int for offset in offsets.values()):
                return False
    return True
