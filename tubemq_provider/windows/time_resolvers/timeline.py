"""Resolver `timeline`: arrival time by samples of ends that a small task takes regularly.

A `Timeline` is one document per topic and group with samples: times, and the ends of the logs then.
A task records a sample every minute or so (`record_sample`; under Airflow
`TubeMQSampleEndsOperator`), and an instant's boundary is the end in the first sample taken at or
after it. Old samples are dropped when the document grows too large. This module must not import
airflow; a `TimelineStore` stores the document.

Samples have the end in *memory*, not the stable one: a record that has just arrived is below the
former, but not yet below the latter. A window still waits until its end is on disk.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any, Final, Protocol

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.canonical import instant_after, rfc3339
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.planning.retention import EndsLookup
from tubemq_provider.windows.protocols import Document
from tubemq_provider.windows.spaces import FIRST_SOURCE, OffsetSpace, space_of
from tubemq_provider.windows.time_resolvers.samples import (
    Sample,
    by_partition,
    cover,
    instant_of,
    ms_of,
)

__all__ = ["MAX_BYTES", "Timeline", "TimelineResolver", "TimelineStore", "record_sample"]

MAX_BYTES: Final = 60_000
"""Largest timeline of up to 150 stores, in bytes: below 64 KB, which all state stores accept. It
fits some 900 samples of four stores unpacked, and several times as many packed."""

_BYTES_PER_STORE: Final = 400
_MOST_BYTES: Final = 480_000
"""Largest timeline of more stores, which is stored in several values."""

_KEPT_MS: Final = 36 * 3_600_000
"""Time span (ms) that a full timeline keeps. It drops samples older than this. If there are none,
it thins out the older half, since reach matters more than resolution."""

_MOST_PLAIN: Final = 64 << 20
_LEAST: Final = 8
_VERSION = 1
_PACKED = 2
_MISSING = -1


class TimelineStore(Protocol):
    """Store of a timeline. The last writer wins; a lost sample only reduces resolution."""

    def load_timeline(self) -> Document | None:
        """Return the document, or None if there is none."""

    def store_timeline(self, document: Document) -> None:
        """Replace the document, in one write."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Samples of the ends of one topic, oldest first. Immutable; `with_sample` returns a new one.

    `first_seen` has the time (ms) of each store's first sample, also if that was dropped: a store
    that is older than the oldest sample must not count as new.
    """

    topic: str
    samples: tuple[Sample, ...] = ()
    first_seen: Mapping[str, int] = field(default_factory=dict)

    def with_sample(self, sample: Sample, *, max_bytes: int | None = None) -> Timeline:
        """Return the timeline with one more sample, in time order.

        A sample between two with equal ends is dropped. If the document would exceed `max_bytes`
        (by default the limit for its number of stores), the oldest samples are dropped, or every
        second one of the older half. Raises `ConfigError` if not even a few samples fit.
        """
        by_time = {item.at_ms: item for item in self.samples} | {sample.at_ms: sample}
        first_seen = dict(self.first_seen)
        for store in sorted(sample.ends):
            first_seen[store] = min(first_seen.get(store, sample.at_ms), sample.at_ms)
        ordered = _without_repetition(by_time[at] for at in sorted(by_time))
        timeline = Timeline(self.topic, tuple(ordered), first_seen)
        most = max_bytes or min(max(MAX_BYTES, _BYTES_PER_STORE * len(first_seen)), _MOST_BYTES)
        while len(_text(timeline.to_document(min(most, MAX_BYTES)))) > most:
            timeline = timeline._smaller()
        return timeline

    def _smaller(self) -> Timeline:
        """Return the timeline without its oldest twentieth, or with half of its older half."""
        samples = self.samples
        if len(samples) <= _LEAST:
            raise ConfigError(
                f"{len(self.first_seen)} stores are too many for a timeline: {_LEAST} samples have "
                f"no room in it; use resolver='history', which needs none",
                subject=f"timeline of topic {self.topic!r}",
            )
        if samples[-1].at_ms - samples[0].at_ms > _KEPT_MS:
            return replace(self, samples=samples[max(1, len(samples) // 20) :])
        half = len(samples) // 2
        return replace(self, samples=(*samples[:half:2], *samples[half:]))

    def to_document(self, plain_bytes: int = MAX_BYTES) -> Document:
        """Return the JSON object to store: a column per store, a row per sample; packed if it is
        larger than `plain_bytes`."""
        plain = self._plain()
        text = _text(plain)
        if len(text) <= plain_bytes:
            return plain
        # Differences of consecutive rows compress to a fifth of the numbers.
        rows = plain["samples"]
        plain["samples"] = [
            rows[0],
            *([b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(rows)),
        ]
        packed = zlib.compress(_text(plain).encode(), 9)
        return {"v": _PACKED, "topic": self.topic, "zlib": b64encode(packed).decode()}

    def _plain(self) -> Document:
        return {
            "v": _VERSION,
            "topic": self.topic,
            "stores": [[store, since] for store, since in self.first_seen.items()],
            "samples": [
                [item.at_ms, *(item.ends.get(store, _MISSING) for store in self.first_seen)]
                for item in self.samples
            ],
        }

    @classmethod
    def from_document(cls, document: object, topic: str, *, source: str = FIRST_SOURCE) -> Timeline:
        """Parse a stored document. Raises `DocumentError` with every problem."""
        space = space_of(source)
        if isinstance(document, dict) and document.get("v") == _PACKED:
            document = _unpacked(document, topic)
        problems = _problems(document, topic, space)
        if problems:
            raise DocumentError(f"timeline of topic {topic!r}", problems)
        assert isinstance(document, dict)
        first_seen = {str(store): int(since) for store, since in document["stores"]}
        samples = (
            Sample(
                row[0],
                {
                    store: end
                    for store, end in zip(first_seen, row[1:], strict=True)
                    if end != _MISSING
                },
            )
            for row in document["samples"]
        )
        return cls(topic, tuple(sorted(samples, key=lambda item: item.at_ms)), first_seen)


def _unpacked(document: Document, topic: str) -> Document:
    """Return the plain document of a packed one."""
    problem = f"it has no end within {_MOST_PLAIN} bytes"
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(b64decode(document["zlib"], validate=True), _MOST_PLAIN)
        if unpacking.eof:
            plain = json.loads(text)
            rows: list[list[int]] = list(accumulate(plain["samples"], _added))
            return {**plain, "samples": rows}
    except (KeyError, TypeError, ValueError, zlib.error) as exc:
        problem = f"{type(exc).__name__}: {exc}"
    raise DocumentError(f"timeline of topic {topic!r}", [f"it cannot be unpacked: {problem}"])


def _added(row: list[int], difference: list[int]) -> list[int]:
    return [a + b for a, b in zip(row, difference, strict=True)]


def _text(document: Document) -> str:
    return json.dumps(document, separators=(",", ":"))


def _without_repetition(samples: Iterable[Sample]) -> list[Sample]:
    """Drop samples between two with equal ends, which resolve to the same offsets."""
    distinct: list[Sample] = []
    for sample in samples:
        if len(distinct) > 1 and distinct[-2].ends == distinct[-1].ends == sample.ends:
            distinct[-1] = sample
        else:
            distinct.append(sample)
    return distinct


def _problems(document: object, topic: str, space: OffsetSpace) -> list[str]:
    if not isinstance(document, dict):
        return ["it is no object"]
    if document.get("v") != _VERSION:
        return [f"version {document.get('v')!r} is unknown here; this release reads {_VERSION}"]
    problems = []
    if document.get("topic") != topic:
        problems.append(f"it is of topic {document.get('topic')!r}")
    stores, rows = document.get("stores"), document.get("samples")
    if not isinstance(stores, list) or not all(map(_is_column, stores)):
        problems.append("stores are not pairs of a name and a time")
    elif not isinstance(rows, list):
        problems.append("samples are missing")
    else:
        damaged = [row for row in rows if not _is_row(space, row, len(stores))]
        problems += [f"sample {row!r} is damaged" for row in damaged]
    return problems


def _is_column(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and type(value[1]) is int
    )


def _is_row(space: OffsetSpace, row: Any, stores: int) -> bool:
    return (
        isinstance(row, list)
        and len(row) == stores + 1
        and type(row[0]) is int
        and all(end == _MISSING or not space.offset_problem(end) for end in row[1:])
    )


def record_sample(
    topic: str,
    store: TimelineStore,
    ends: EndsLookup,
    clock: Callable[[], datetime],
    *,
    source: str = FIRST_SOURCE,
) -> Timeline:
    """Look the ends up, add them to the timeline and store it; return the new timeline.

    `ends` should return the ends in memory. The sample has the time *before* the look-up, so all
    records that had arrived by then are below its ends. A broker that is away is not in the sample,
    and boundaries of its stores wait for a sample that has it. If the look-up raises, nothing is
    stored.
    """
    asked_ms = ms_of(clock())
    current = ends()
    highest: dict[str, int] = {}
    log_of = space_of(source).log_of
    for partition, end in current.items():
        name = log_of(partition.key)
        highest[name] = max(highest.get(name, 0), end.max_offset)
    document = store.load_timeline()
    timeline = Timeline(topic)
    if document:
        timeline = Timeline.from_document(document, topic, source=source)
    timeline = timeline.with_sample(Sample(asked_ms, highest))
    store.store_timeline(timeline.to_document())
    return timeline


class TimelineResolver:
    """Resolver by arrival time, with the resolution of the samples.

    `late_allowance` moves every boundary later by that time: records that arrive so long after an
    instant still count as before it (for clocks that differ). `partitions` returns the topic's
    present partitions."""

    name = "timeline"
    exact = False

    def __init__(
        self,
        topic: str,
        load: Callable[[], Document | None],
        partitions: Callable[[], Iterable[Any]],
        late_allowance: timedelta = timedelta(0),
        *,
        source: str = FIRST_SOURCE,
    ) -> None:
        self._space = space_of(source)
        self._topic = topic
        self._load = load
        self._partitions = partitions
        self._late_allowance = late_allowance

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Return the offsets of `resolve`."""
        return self.resolve(instant).certain()

    def resolve(self, instant: datetime) -> Resolved:
        """Return the boundary at `instant`. Raises `ConfigError` before the first sample,
        `WindowNotReady` after the last."""
        document = self._load()
        timeline = (
            Timeline.from_document(document, self._topic, source=self._space.source)
            if document
            else Timeline(self._topic)
        )
        subject = f"timeline of topic {self._topic!r}"
        covered = cover(
            timeline.samples,
            instant_after(instant, self._late_allowance),
            first_seen=timeline.first_seen,
            subject=subject,
        )
        partitions = list(self._partitions())
        offsets, gone = by_partition(self._space, covered.ends, partitions)
        return Resolved(
            offsets,
            {
                "since": rfc3339(instant_of(covered.since_ms)),
                "until": rfc3339(instant_of(covered.until_ms)),
            },
            {**gone, **covered.unknown},
            later=by_partition(self._space, covered.later, partitions)[0],
        )
