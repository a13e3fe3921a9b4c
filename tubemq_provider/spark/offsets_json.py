"""Reads `startingOffsets` and `endingOffsets`: a word, or JSON by topic and partition key.

Pure text work: nothing here asks a broker what a word means, that is `planning`. Problems are
returned as sentences that name the option, so that all of a user's mistakes can be shown at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tubemq_client.model import Partition
from tubemq_provider.sources.tubemq.space import SPACE

__all__ = ["EARLIEST", "LATEST", "STABLE", "Bound", "Bounds", "parse_bounds", "reversed_bounds"]

EARLIEST = "earliest"
"""The first offset that retention has left."""
LATEST = "latest"
"""The end in the broker's memory: a broker crash can take it back."""
STABLE = "stable"
"""The end that is on the broker's disk: survives a crash."""

Bound = int | str
"""An offset, or one of the words."""
Bounds = str | Mapping[str, Bound]
"""One word for every partition, or a bound by partition key."""

Report = Callable[[str], None]

_MISUSE = {
    ("startingOffsets", LATEST): "a bounded read that starts at the end would always be empty",
    ("startingOffsets", STABLE): "a bounded read that starts at the end would always be empty",
    ("endingOffsets", EARLIEST): "a bounded read that ends at the first offset would be empty",
}


class _DuplicateKey(ValueError):
    pass


def parse_bounds(option: str, text: str, topic: str | None, report: Report) -> Bounds:
    """The value of `option`; problems go to `report` and leave an empty mapping behind.

    `topic` None skips the check that the JSON speaks of the topic being read.
    """
    text = text.strip()
    if not text.startswith("{"):
        return _word(option, text, "", report) or {}
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        example = '{"<topic>": {"1:0": 2800}}'
        report(f"{option}: not valid JSON ({error}); write {example} or a word such as 'earliest'")
        return {}
    return _by_partition(option, document, topic, report)


def reversed_bounds(start: Bounds, end: Bounds) -> list[str]:
    """A sentence for each partition whose given start lies beyond its given end."""
    if isinstance(start, str) or isinstance(end, str):
        return []
    return [
        f"startingOffsets {first} of partition {key} is beyond endingOffsets {end[key]}"
        for key, first in start.items()
        if isinstance(first, int) and isinstance(end.get(key), int) and first > end[key]  # type: ignore[operator]
    ]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKey(f"{key!r} occurs twice")
        found[key] = value
    return found


def _word(option: str, text: Any, where: str, report: Report) -> str | None:
    if text not in (EARLIEST, LATEST, STABLE):
        words = "'earliest'" if option == "startingOffsets" else "'stable' or 'latest'"
        report(f"{option}{where}: {text!r} is neither an offset nor one of {words}")
        return None
    misuse = _MISUSE.get((option, text))
    if misuse:
        report(f"{option}{where}: {text!r} makes no sense here, {misuse}")
        return None
    return str(text)


def _by_partition(option: str, document: Any, topic: str | None, report: Report) -> Bounds:
    if topic is not None and set(document) != {topic}:
        named = ", ".join(map(repr, document)) or "no topic"
        report(f"{option}: names {named}, but the topic read is {topic!r}")
        return {}
    bounds: dict[str, Bound] = {}
    for name, partitions in document.items():
        if not isinstance(partitions, dict):
            report(f'{option}: topic {name!r} needs an object such as {{"1:0": 2800}}')
            continue
        for key, value in partitions.items():
            bound = _bound(option, name, key, value, report)
            if bound is not None:
                bounds[key] = bound
    return bounds


def _bound(option: str, topic: str, key: str, value: Any, report: Report) -> Bound | None:
    where = f" of partition {key} of topic {topic!r}"
    try:
        Partition.from_key(topic, key)
    except ValueError as error:
        report(f"{option}: {error}")
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        return _word(option, value, where, report)
    if value < 0 or value % SPACE.step:
        lower = max(0, value - value % SPACE.step)
        report(
            f"{option}{where}: offset {value} is not a multiple of {SPACE.step} that is "
            f">= 0; the nearest below is {lower}"
        )
        return None
    return value
