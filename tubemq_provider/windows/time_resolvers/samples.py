"""Arithmetic of arrival time: from samples of (time, ends) to the offsets of an instant.

A sample has the ends of logs that were read at its time or a moment later. Every record that had
arrived before that time lies below them. So the boundary of an instant is the end in the first
sample taken *at or after* it, never in one taken before. The resolvers `timeline` and `history`
share this module. It must not do I/O or read a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.canonical import in_utc, rfc3339
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = [
    "BeforeSamples",
    "Sample",
    "SampleBracket",
    "by_partition",
    "cover",
    "instant_of",
    "ms_of",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BeforeSamples(ConfigError):
    """An instant lies before the first sample; `first` is the time of that one, if there is one."""

    def __init__(self, instant: datetime, first: datetime | None, subject: str) -> None:
        self.first = first
        began = f"the first is of {rfc3339(first)}" if first else "there is none yet"
        advice = (
            "no later sample can tell when earlier records arrived, so a retry does not help: the "
            "first window that can be read begins at or after the first sample"
        )
        super().__init__(
            [f"no sample at or before {rfc3339(instant)}: {began}", advice], subject=subject
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """Ends by log (for TubeMQ ``"<broker id>/<store id>"``), read at `at_ms` or a moment later."""

    at_ms: int
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampleBracket:
    """Ends of an instant per store, with the times of the samples around it.

    - `since_ms`: the last sample at or before the instant; `until_ms`: the first at or after it (of
      several stores, the latest). Records below an end arrived before `until_ms`; all that arrived
      before the instant are below.
    - `unknown`: stores without a sample at or after the instant, with the reason; their ends are
      those of their last sample.
    - `later`: ends of stores that were first sampled after the instant, from that sample.
    """

    ends: Mapping[str, int]
    since_ms: int
    until_ms: int
    unknown: Mapping[str, str] = field(default_factory=dict)
    later: Mapping[str, int] = field(default_factory=dict)


def ms_of(instant: datetime) -> int:
    """Return milliseconds since the Unix epoch, rounded up: no sample before the instant counts."""
    return -((_EPOCH - in_utc(instant)) // timedelta(milliseconds=1))


def instant_of(at_ms: int) -> datetime:
    """Return the UTC instant of milliseconds since the Unix epoch."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def cover(
    samples: Iterable[Sample],
    instant: datetime,
    *,
    first_seen: Mapping[str, int],
    subject: str,
) -> SampleBracket:
    """Return the ends of `instant`. `samples` are in time order; `first_seen` has the time (ms) of
    each store's first sample.

    A store first sampled after the instant is only in `later`: it joins at the next boundary,
    unless an earlier one has it. Any other store must be in a sample at or after the instant, since
    only that bounds what had arrived; otherwise it is `unknown`. Ends never decrease from sample to
    sample, although the end in memory of a crashed broker does.

    Raises `BeforeSamples` for an instant before the first sample, `WindowNotReady` while there is
    no sample at or after it.
    """
    ordered = list(samples)
    at = ms_of(instant)
    if not ordered or ordered[0].at_ms > at:
        first = instant_of(ordered[0].at_ms) if ordered else None
        raise BeforeSamples(instant, first, subject)
    ends: dict[str, int] = {}
    missing = {store for store, since in first_seen.items() if since <= at}
    later = _first_ends(ordered, missing, at)
    since_ms, until_ms = ordered[0].at_ms, None
    for sample in ordered:
        _raise_ends(ends, sample, missing)
        if sample.at_ms <= at:
            since_ms = sample.at_ms
        if sample.at_ms >= at:
            until_ms = sample.at_ms
            missing -= sample.ends.keys()
            if not missing:
                return SampleBracket(ends, since_ms, until_ms, {}, later)
    reason = (
        f"{subject}: no sample at or after {rfc3339(instant)} yet; the one before it is of "
        f"{rfc3339(instant_of(since_ms))}"
    )
    if until_ms is None:
        raise WindowNotReady(reason)
    return SampleBracket(ends, since_ms, until_ms, dict.fromkeys(sorted(missing), reason), later)


def _raise_ends(ends: dict[str, int], sample: Sample, stores: set[str]) -> None:
    for store in stores & sample.ends.keys():
        ends[store] = max(ends.get(store, 0), sample.ends[store])


def _first_ends(samples: Iterable[Sample], known: set[str], at_ms: int) -> dict[str, int]:
    """Return the ends of stores that are not `known`, in their first sample at or after a time."""
    first: dict[str, int] = {}
    for sample in samples:
        if sample.at_ms >= at_ms:
            for store in sample.ends.keys() - known:
                first.setdefault(store, sample.ends[store])
    return first


def by_partition(
    space: OffsetSpace, ends: Mapping[str, int], partitions: Iterable[Any]
) -> tuple[dict[str, int], dict[str, str]]:
    """Return offsets by partition key, and stores without a partition now, each with the reason.
    Such a store must not be left out: it would join again later, and repeat its records."""
    logs = {item.key: space.log_of(item.key) for item in sorted(partitions)}
    offsets = {key: ends[log] for key, log in logs.items() if log in ends}
    gone = sorted(ends.keys() - set(logs.values()))
    return offsets, dict.fromkeys(gone, "no broker offers its partitions now")
