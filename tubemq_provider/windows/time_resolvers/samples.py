"""From samples of (time, ends) to the offsets of an instant: the arithmetic of arrival time.

A sample says: at this time, or a moment later, the logs of these stores ended there. Whatever had
arrived before that time lies below. So the boundary of an instant is the end in the first sample
taken *at or after* it, never in one taken before. What `timeline` and `history` know comes down to
samples; this module decides what they mean. It must not do I/O or read a clock.
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

__all__ = ["Cover", "Sample", "by_partition", "cover", "instant_of", "ms_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Sample:
    """Ends of logs (for TubeMQ ``"<broker id>/<store id>"``), read at `at_ms` or a moment later."""

    at_ms: int
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cover:
    """An instant's end per store, and the samples around it: the last one at or before the instant
    and the first at or after it (the latest of them, if stores differ). Records below an end
    arrived before `until_ms`; those that arrived before the instant are all below. `unknown` has
    the stores without a sample since, each with the reason; their ends are the last ones seen.
    `later` has the ends of stores that were first seen after the instant, as they were then."""

    ends: Mapping[str, int]
    since_ms: int
    until_ms: int
    unknown: Mapping[str, str] = field(default_factory=dict)
    later: Mapping[str, int] = field(default_factory=dict)


def ms_of(instant: datetime) -> int:
    """Milliseconds since the epoch, rounded up: a sample counts only from the instant on."""
    return -((_EPOCH - in_utc(instant)) // timedelta(milliseconds=1))


def instant_of(at_ms: int) -> datetime:
    """The instant of a time in ms since the epoch, in UTC."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def cover(
    samples: Iterable[Sample],
    instant: datetime,
    *,
    first_seen: Mapping[str, int],
    subject: str,
) -> Cover:
    """The ends of `instant`. `samples` are in time order, `first_seen` says since when (ms) each
    store has been sampled.

    A store first seen after the instant is apart: it joins with the next boundary, unless it was
    known elsewhere. One that was known must be in a sample at or after the instant, since nothing
    else tells what arrived last; else it is `unknown`.
    An end never lies below that of an earlier sample; a broker that crashed may have fallen back.
    Raises `ConfigError` for an instant before the first sample, `WindowNotReady` before there is a
    sample at or after it.
    """
    ordered = list(samples)
    at = ms_of(instant)
    if not ordered or ordered[0].at_ms > at:
        first = f"the first is of {rfc3339(instant_of(ordered[0].at_ms))}" if ordered else "none"
        raise ConfigError(
            f"no sample at or before {rfc3339(instant)}: {first}",
            subject=subject,
        )
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
                return Cover(ends, since_ms, until_ms, {}, later)
    reason = (
        f"{subject}: no sample at or after {rfc3339(instant)} yet; the one before it is of "
        f"{rfc3339(instant_of(since_ms))}"
    )
    if until_ms is None:
        raise WindowNotReady(reason)
    return Cover(ends, since_ms, until_ms, dict.fromkeys(sorted(missing), reason), later)


def _raise_ends(ends: dict[str, int], sample: Sample, wanted: set[str]) -> None:
    for store in wanted & sample.ends.keys():
        ends[store] = max(ends.get(store, 0), sample.ends[store])


def _first_ends(samples: Iterable[Sample], known: set[str], at_ms: int) -> dict[str, int]:
    """Of stores that are not `known`, the ends in their first sample at or after a time."""
    found: dict[str, int] = {}
    for sample in samples:
        if sample.at_ms >= at_ms:
            for store in sample.ends.keys() - known:
                found.setdefault(store, sample.ends[store])
    return found


def by_partition(
    space: OffsetSpace, ends: Mapping[str, int], partitions: Iterable[Any]
) -> tuple[dict[str, int], dict[str, str]]:
    """Offsets by partition key, and stores that have no partition just now, with the reason: to
    leave one out would make it join again later, and its records would come twice."""
    logs = {item.key: space.log_of(item.key) for item in sorted(partitions)}
    found = {key: ends[log] for key, log in logs.items() if log in ends}
    gone = sorted(ends.keys() - set(logs.values()))
    return found, dict.fromkeys(gone, "no broker offers its partitions now")
