"""One spelling for everything that is hashed, named or stored: JSON, digests, instants.

Window ids, plan hashes and boundary names must come out the same in Airflow, Spark, Dagster and the
command line, today and in a year. This module must not do I/O or read a clock; it knows nothing of
windows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

__all__ = [
    "basic_instant",
    "canonical_json",
    "in_utc",
    "parse_basic_instant",
    "parse_instant",
    "rfc3339",
    "sha256_hex",
    "so_much_later",
]

_EXACT = frozenset({str, int})
"""Types that need no further look: most members of a document, which may have 30 000 of them."""


def canonical_json(value: object) -> str:
    """One text per value: sorted keys, no spaces, ASCII; only strings, integers, lists, objects.

    Raises `TypeError` for anything else (floats, booleans and nulls have more than one spelling in
    the stores a plan passes through).
    """
    _refuse_inexact(value, "$")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def sha256_hex(value: object) -> str:
    """Lower-case hex sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def _refuse_inexact(value: object, where: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: key {key!r} is not a string")
            if type(item) not in _EXACT:
                _refuse_inexact(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if type(item) not in _EXACT:
                _refuse_inexact(item, f"{where}[{index}]")
    elif isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"{where}: {value!r} is neither string nor integer, list or object")


def parse_instant(text: str) -> datetime:
    """An RFC 3339 instant with an offset, as UTC. Raises `ValueError` with the text in it."""
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError) as exc:
        raise ValueError(f"{text!r} is not an RFC 3339 instant") from exc
    if instant.tzinfo is None or len(text) < len("2026-01-01T00:00Z"):
        raise ValueError(f"{text!r} is not an RFC 3339 instant with a UTC offset")
    return _utc(instant)


def in_utc(instant: datetime) -> datetime:
    """The same instant, to the microsecond, in UTC and as the standard library's own type.

    Windows are reckoned with what is left: subclasses (pendulum's, which Airflow gives to tasks)
    subtract to a length that cannot be divided, and in a zone whose clocks change a length is added
    to what the clock shows. Raises `ValueError` for an instant without a zone, and for one that is
    in no year from 1 to 9999 there.
    """
    _require_aware(instant)
    utc = _utc(instant)
    return datetime.combine(utc.date(), utc.time(), UTC)


def so_much_later(instant: datetime, length: timedelta) -> datetime:
    """`instant` and a length that is not negative, or the last instant that there is."""
    return instant + min(length, datetime.max.replace(tzinfo=UTC) - in_utc(instant))


def rfc3339(instant: datetime) -> str:
    """The one spelling of an instant in documents: UTC, ``Z``, fraction only where there is one."""
    return in_utc(instant).isoformat().replace("+00:00", "Z")


def basic_instant(instant: datetime) -> str:
    """An instant for ids and file names: ``20261121T081500Z``, with a fraction only if present."""
    text = in_utc(instant).replace(tzinfo=None).isoformat()
    return text.replace("-", "").replace(":", "") + "Z"


def parse_basic_instant(text: str) -> datetime:
    """The instant of a `basic_instant`, in UTC. Raises `ValueError` for other text."""
    instant = datetime.fromisoformat(text)
    if basic_instant(instant) != text:
        raise ValueError(f"{text!r} is not spelled as instants in names are")
    return instant.astimezone(UTC)


def _utc(instant: datetime) -> datetime:
    try:
        return instant.astimezone(UTC)
    except OverflowError as exc:
        raise ValueError(f"{instant.isoformat()} is in no year from 1 to 9999 in UTC") from exc


def _require_aware(instant: datetime) -> None:
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} has no time zone")
