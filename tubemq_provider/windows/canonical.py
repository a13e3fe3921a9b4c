"""Canonical forms of everything that is hashed, named or stored: JSON, digests, instants.

Window ids, plan hashes and boundary names must be equal in Airflow, Spark, Dagster and the command
line, and in every release. This module must not do I/O or read a clock, and does not know windows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache

__all__ = [
    "basic_instant",
    "canonical_json",
    "in_utc",
    "instant_after",
    "parse_basic_instant",
    "parse_instant",
    "rfc3339",
    "sha256_hex",
]

_EXACT = frozenset({str, int})
"""Types that need no further check: most members of a document, which may have 30 000."""


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, ASCII. Only strings, integers,
    lists and objects.

    Raises `TypeError` for anything else (floats, booleans and nulls have more than one spelling in
    the stores a plan passes through).
    """
    _refuse_inexact(value, "$")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def sha256_hex(value: object) -> str:
    """Return the lower-case hex sha256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def _refuse_inexact(value: object, where: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: key {key!r} is not a string")
            kind = type(item)
            # Ranges of partitions: nothing is called, and no place is put together, for each.
            if kind not in _EXACT and not (kind is list and _EXACT.issuperset(map(type, item))):
                _refuse_inexact(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if type(item) not in _EXACT:
                _refuse_inexact(item, f"{where}[{index}]")
    elif isinstance(value, bool) or not isinstance(value, str | int):
        raise TypeError(f"{where}: {value!r} is neither string nor integer, list or object")


def parse_instant(text: str) -> datetime:
    """Parse an RFC 3339 instant with a UTC offset; return it in UTC.

    Raises `ValueError` that names the text."""
    try:
        instant = datetime.fromisoformat(text)
    except (TypeError, ValueError) as exc:
        raise ValueError(f"{text!r} is not an RFC 3339 instant") from exc
    if instant.tzinfo is None or len(text) < len("2026-01-01T00:00Z"):
        raise ValueError(f"{text!r} is not an RFC 3339 instant with a UTC offset")
    return _utc(instant)


def in_utc(instant: datetime) -> datetime:
    """Return the same instant, to the microsecond, in UTC and as a plain `datetime`.

    Arithmetic needs both: differences of subclasses (pendulum's, which Airflow passes to tasks)
    cannot be divided, and in a zone with daylight saving a `timedelta` is added to local time.
    Raises `ValueError` for an instant without a zone, or outside the years 1 to 9999 in UTC.
    """
    if type(instant) is datetime and instant.tzinfo is UTC:
        return instant
    _require_aware(instant)
    utc = _utc(instant)
    return datetime.combine(utc.date(), utc.time(), UTC)


def instant_after(instant: datetime, length: timedelta) -> datetime:
    """Return `instant` plus a non-negative length, at most the last representable instant."""
    return instant + min(length, datetime.max.replace(tzinfo=UTC) - in_utc(instant))


def rfc3339(instant: datetime) -> str:
    """Return an instant as documents spell it: UTC with ``Z``, and a fraction only if not zero."""
    return in_utc(instant).isoformat().replace("+00:00", "Z")


@lru_cache(maxsize=4096)
def basic_instant(instant: datetime) -> str:
    """Return an instant for ids and file names: ``20261121T081500Z``, fraction only if not zero."""
    text = in_utc(instant).isoformat().removesuffix("+00:00")
    return text.replace("-", "").replace(":", "") + "Z"


@lru_cache(maxsize=4096)
def parse_basic_instant(text: str) -> datetime:
    """Parse the text of a `basic_instant`; return UTC. Raises `ValueError` for other text."""
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
