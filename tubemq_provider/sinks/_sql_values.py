"""Values of Arrow columns as a database gets them, and those that it would change without a word.

A conversion takes a value that is not null and gives what is inserted, or raises `ConfigError` with
the name of the column, and without the value. This module knows no tables and no statements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pyarrow as pa  # noqa: TID253 (only reached by the sink that needs it)
import pyarrow.types as pt  # noqa: TID253

from tubemq_client.errors import ConfigError

__all__ = ["Convert", "conversion", "text_of_at_most"]

Convert = Callable[[Any], Any]


def conversion(name: str, kind: pa.DataType, *, sqlite: bool) -> Convert | None:
    """What makes of a value what is inserted; None if it goes in as it is."""
    if pt.is_map(kind):
        return dict
    if pt.is_timestamp(kind) and kind.tz is not None:
        return lambda instant: instant.astimezone(UTC)
    if pt.is_floating(kind) and sqlite:
        return _number(name)
    return None


def text_of_at_most(name: str, length: int) -> Convert:
    """Texts that a column of `length` characters keeps whole: of longer ones, databases cut blanks
    off without an error, as the standard demands."""

    def whole(text: str) -> str:
        if len(text) <= length:
            return text
        raise ConfigError(
            f"a record has more than {length} characters in {name!r}, which is as many as the "
            f"table's column takes; alter it to text, or cut it in a transform",
            subject="records",
        )

    return whole


def _number(name: str) -> Convert:
    def number(value: float) -> float:
        if not math.isnan(value):
            return value
        raise ConfigError(
            f"a record has NaN in {name!r}, of which SQLite would make NULL; make it null in a "
            f"transform, or use PostgreSQL or a sink of files (a path, s3://…)",
            subject="records",
        )

    return number
