"""Options for the start and end of a read: a word, a time, or JSON by topic and partition key.

Pure text work: `range_planner` asks brokers for the meaning of a word or a time. Problems are
returned as sentences that name the option, so that all of a user's mistakes can be shown at once.
Special numbers are those of Spark's Kafka source (-2, -1), as TubeMQ has none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tubemq_client.json_text import load_unique_json
from tubemq_client.model import Partition
from tubemq_provider.sources.tubemq.space import SPACE

EARLIEST = "earliest"
"""First offset that retention has left."""
LATEST = "latest"
"""End in the broker's memory, which a crash of the broker can take back."""
STABLE = "stable"
"""End on the broker's disk, which survives a crash."""


@dataclass(frozen=True, slots=True)
class At:
    """First record at this time or later; ms since 1970, UTC."""

    ms: int


Bound = int | str | At
"""Offset, one of the words, or a time."""
Bounds = str | At | Mapping[Partition, Bound]
"""One word or time for every partition, or a bound for each."""

Report = Callable[[str], None]

_NUMBERS = {-2: EARLIEST, -1: LATEST}
"""Numbers that Spark's Kafka source uses in JSON for these words."""

MISUSE: Mapping[tuple[str, str], str] = {
    ("startingOffsets", LATEST): "a bounded read that starts at the end would always be empty",
    ("startingOffsets", STABLE): "a bounded read that starts at the end would always be empty",
    ("endingOffsets", EARLIEST): "a bounded read that ends at the first offset would be empty",
}
"""Words that a bounded read refuses, by their option, and the reason."""


def bound_of(bounds: Bounds, partition: Partition) -> Bound:
    """Return the bound of `partition`. Raises `KeyError` if the mapping does not have it."""
    return bounds[partition] if isinstance(bounds, Mapping) else bounds


def parse_bounds(
    option: str,
    text: str,
    topics: Collection[str] | None,
    report: Report,
    *,
    streaming: bool = False,
) -> Bounds:
    """Parse the value of `option`; problems go to `report` and result in an empty mapping.

    `topics` None skips the check that the JSON names exactly the topics being read. A stream may
    begin at the end.
    """
    text = text.strip()
    if not text.startswith("{"):
        return _word(option, text, "", report, streaming=streaming) or {}
    example = '{"<topic>": {"1:0": 2800}} or a word such as \'earliest\''
    read = partial(_offset, streaming=streaming)
    return _by_partition(option, text, example, topics, report, read)


def parse_instant(option: str, text: str, report: Report) -> At | None:
    """Parse one time for all partitions."""
    text = text.strip()
    instant = int(text) if text.isascii() and text.isdecimal() else text
    return _instant(option, "", instant, report)


def parse_instants(
    option: str, text: str, topics: Collection[str] | None, report: Report
) -> Mapping[Partition, Bound]:
    """Parse times by topic and partition key."""
    example = '{"<topic>": {"1:0": 1764000000000}}'
    return _by_partition(option, text, example, topics, report, _instant)


def reversed_bounds(start: Bounds, end: Bounds) -> list[str]:
    """Return a sentence for each partition whose explicit start is beyond its explicit end."""
    if not (isinstance(start, Mapping) and isinstance(end, Mapping)):
        return []
    pairs = ((partition, first, end.get(partition)) for partition, first in start.items())
    return [
        f"startingOffsets {first} of partition {partition.key} is beyond endingOffsets {last}"
        for partition, first, last in pairs
        if isinstance(first, int) and isinstance(last, int) and first > last
    ]


def _word(option: str, text: Any, where: str, report: Report, *, streaming: bool) -> str | None:
    if text not in (EARLIEST, LATEST, STABLE):
        words = "'earliest'" if option == "startingOffsets" else "'stable' or 'latest'"
        report(f"{option}{where}: {text!r} is neither an offset nor one of {words}")
        return None
    misuse = None if streaming else MISUSE.get((option, text))
    if misuse:
        report(f"{option}{where}: {text!r} makes no sense here, {misuse}")
        return None
    return str(text)


def _by_partition(
    option: str,
    text: str,
    example: str,
    topics: Collection[str] | None,
    report: Report,
    read: Callable[[str, str, Any, Report], Bound | None],
) -> Mapping[Partition, Bound]:
    try:
        document = load_unique_json(text)
    except (ValueError, RecursionError) as error:
        report(f"{option}: not valid JSON ({error}); write {example}")
        return {}
    if not isinstance(document, dict):
        report(f"{option}: not an object; write {example}")
        return {}
    if topics is not None and set(document) != set(topics):
        named = ", ".join(map(repr, document)) or "no topic"
        expected = ", ".join(map(repr, sorted(topics)))
        report(f"{option}: names {named}, but the topic read is {expected}")
        return {}
    bounds: dict[Partition, Bound] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            report(f'{option}: topic {topic!r} needs an object such as {{"1:0": 2800}}')
            continue
        for key, value in partitions.items():
            try:
                partition = SPACE.partition(topic, key)
            except ValueError as error:
                report(f"{option}: {error}")
                continue
            bound = read(option, f" of partition {key} of topic {topic!r}", value, report)
            if bound is not None:
                bounds[partition] = bound
    return bounds


def _offset(
    option: str, where: str, value: Any, report: Report, *, streaming: bool
) -> Bound | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return _word(option, value, where, report, streaming=streaming)
    if value in _NUMBERS:
        return _word(option, _NUMBERS[value], where, report, streaming=streaming)
    if value < 0 or value % SPACE.step:
        lower = max(0, value - value % SPACE.step)
        report(
            f"{option}{where}: offset {value} is not a multiple of {SPACE.step} that is "
            f">= 0; the nearest below is {lower}"
        )
        return None
    return value


def _instant(option: str, where: str, value: Any, report: Report) -> At | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LAST_MS:
        report(f"{option}{where}: {value!r} is not a time in ms since 1970, as 1764000000000 is")
        return None
    if 0 < value < _LEAST_MS:
        report(
            f"{option}{where}: {value} lies before the year 2000; it is in ms since 1970, not in "
            f"seconds: is {value * 1000} meant?"
        )
        return None
    return At(value)


_LEAST_MS = 946_684_800_000
"""The year 2000; every topic is younger. A current time in seconds, read as ms, is in 1970."""
_LAST_MS = 253_402_300_799_999
"""End of the year 9999."""
