"""Parser and validation of plan documents: errors list every problem, and nothing is guessed.

Works on plain values, so that `plan` can import it without a cycle. The kinds of windows are here
because validity depends on them. This module must not do I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.anchors import read_anchors
from tubemq_provider.windows.canonical import parse_instant
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.spaces import FIRST_SOURCE, OffsetSpace, space_of
from tubemq_provider.windows.versions import VERSIONS, migrated

__all__ = [
    "PLAN_VERSION",
    "PLAN_VERSION_WITH_SOURCE",
    "Range",
    "WindowKind",
    "identity_problems",
    "range_problems",
    "read_members",
]

PLAN_VERSION: Final = 1
"""Value of `v` in plan documents of the first source, which earlier releases can read."""

PLAN_VERSION_WITH_SOURCE: Final = VERSIONS["plan"]
"""Value of `v` for other sources, whose offsets an earlier release would misread."""

Range = tuple[int, int]

_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
_H = re.compile(r"[0-9a-f]{10}")


class WindowKind(StrEnum):
    """Kind of window, by the origin of its ends. Its first letter (x for explicit) starts ids."""

    TIME = "time"
    CURSOR = "cursor"
    EXPLICIT = "explicit"


_PREFIX = {WindowKind.TIME: "t-", WindowKind.CURSOR: "c-", WindowKind.EXPLICIT: "x-"}


def identity_problems(
    window_id: str, kind: WindowKind, scope_hash: str, seq: int | None, time: tuple[str, str] | None
) -> list[str]:
    """Return problems of a plan's id, scope hash, number and interval."""
    problems = []
    if not _ID.fullmatch(window_id) or not window_id.startswith(_PREFIX[kind]):
        problems.append(f"id {window_id!r} is not an id of a {kind} window")
    if not _H.fullmatch(scope_hash):
        problems.append(f"h {scope_hash!r} is not ten hex digits")
    if (seq is not None) != (kind is WindowKind.CURSOR):
        problems.append(f"seq {seq} does not fit a {kind} window")
    elif seq is not None and (seq < 1 or window_id != f"c-{seq}-{scope_hash}"):
        problems.append(f"seq {seq} does not fit id {window_id!r}")
    if (time is not None) != (kind is WindowKind.TIME):
        problems.append(f"time {time} does not fit a {kind} window")
    elif time is not None and not parse_instant(time[0]) < parse_instant(time[1]):
        problems.append(f"time {time[0]} is not before {time[1]}")
    return problems


def range_problems(
    space: OffsetSpace, ranges: Mapping[str, Range], gaps: Mapping[str, tuple[Range, ...]]
) -> list[str]:
    """Return problems of a plan's ranges, and of the gaps inside them."""
    problems = [] if ranges else ["ranges: there is no partition"]
    for key, value in ranges.items():
        problems += _range_problems(space, f"range of {key}", key, value)
    for key, lost in gaps.items():
        if key not in ranges:
            problems.append(f"gaps name {key}, which has no range")
            continue
        for gap in lost:
            problems += _range_problems(space, f"gap of {key}", key, gap)
            if gap[0] < ranges[key][0] or gap[1] > ranges[key][1]:
                problems.append(f"gap {list(gap)} of {key} lies outside its range")
    return problems


def _range_problems(space: OffsetSpace, name: str, key: object, value: Range) -> list[str]:
    if not space.is_key(key):
        return [f"{name}: the key is not {space.key_form}"]
    start, end = value
    problems = [f"{name}: {bad}" for bad in map(space.offset_problem, value) if bad]
    if not problems and start > end:
        problems.append(f"{name}: start {start} is beyond end {end}")
    return problems


def read_members(document: object, where: str) -> tuple[dict[str, Any], str]:
    """Return the constructor arguments of a plan, and the stored hash, from a document.

    Raises `DocumentError` with every missing or ill-typed member, or for an unknown version alone:
    in a newer release members may have another meaning.
    """
    if not isinstance(document, dict):
        raise DocumentError(where, [f"it is {type(document).__name__}, not an object"])
    document = migrated("plan", document, where)
    space = _space(document, where)
    problems = [f"{name} is missing" for name in _REQUIRED if document.get(name) is None]
    arguments: dict[str, Any] = {}
    for name, (member, convert) in _MEMBERS.items():
        if document.get(member) is None:
            continue
        try:
            value = document[member]
            anchored = convert is read_anchors
            arguments[name] = read_anchors(value, space) if anchored else convert(value)
        except (TypeError, ValueError) as exc:
            problems.append(f"{member}: {exc}")
    if problems:
        raise DocumentError(where, problems)
    return arguments, str(document["hash"])


def _space(document: Mapping[str, Any], where: str) -> OffsetSpace:
    try:
        return space_of(document.get("source", FIRST_SOURCE))
    except (ConfigError, TypeError) as exc:
        raise DocumentError(where, [str(exc)]) from exc


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return tuple(map(_text, value))


def _pair(value: Any) -> Range:
    if not isinstance(value, list) or len(value) != 2:
        raise TypeError(f"{value!r} is not [start, end]")
    return _integer(value[0]), _integer(value[1])


def _interval(value: Any) -> tuple[str, str]:
    texts = _texts(value)
    if len(texts) != 2:
        raise ValueError(f"{value!r} is not [start, end]")
    start, end = texts
    parse_instant(start)
    parse_instant(end)
    return start, end


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def _ranges(value: Any) -> dict[str, Range]:
    return {key: _pair(pair) for key, pair in _object(value).items()}


def _gaps(value: Any) -> dict[str, tuple[Range, ...]]:
    return {key: tuple(map(_pair, pairs)) for key, pairs in _object(value).items()}


def _offsets(value: Any) -> dict[str, int]:
    return {key: _integer(offset) for key, offset in _object(value).items()}


_MEMBERS: Final[Mapping[str, tuple[str, Any]]] = {
    "window_id": ("id", _text),
    "kind": ("kind", WindowKind),
    "cluster": ("cluster", _text),
    "topic": ("topic", _text),
    "group": ("group", _text),
    "scope_hash": ("h", _text),
    "filters": ("filters", _texts),
    "epoch": ("epoch", _text),
    "source": ("source", _text),
    "ranges": ("ranges", _ranges),
    "seq": ("seq", _integer),
    "time": ("time", _interval),
    "gaps": ("gaps", _gaps),
    "resets": ("resets", _offsets),
    "joined": ("joined", _texts),
    "absent": ("absent", _texts),
    "before": ("before", read_anchors),
    "upto": ("upto", read_anchors),
    "has_more": ("more", lambda value: _integer(value) != 0),
}
"""Constructor argument to the member of the document and its converter."""

_REQUIRED: Final = (
    *("id", "kind", "cluster", "topic", "group", "h", "filters", "epoch", "ranges"),
    "hash",
)
