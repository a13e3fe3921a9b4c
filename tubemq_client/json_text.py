"""JSON that a user, or a program of a user, has written.

If an object has a name twice, Python's reader keeps the last value silently: offsets of a partition
would be lost that way. Here such a text is refused. Documents that programs write for themselves
need no such check. This module must not do I/O.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["RepeatedName", "load_unique_json", "unique_keys"]


class RepeatedName(ValueError):
    """Error for a JSON object that has a name twice; its text is that name only."""


def load_unique_json(text: str | bytes, **options: Any) -> Any:
    """Return the value of `text`; `options` are those of `json.loads`.

    Raises `ValueError` for invalid JSON (`RepeatedName` for an object that has a name twice), and
    `RecursionError` for a too deep one.
    """
    return json.loads(text, object_pairs_hook=unique_keys, **options)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object (an ``object_pairs_hook``). Raises `RepeatedName`."""
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise RepeatedName(f"{key!r} occurs twice")
        values[key] = value
    return values
