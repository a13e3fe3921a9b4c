"""JSON that a person, or a program in a person's name, has given.

Of a name that an object has twice, Python's reader keeps the last value and says nothing: offsets
of a partition would be lost that way. Here such a text is refused. Documents that programs write
for themselves need no such care. This module must not do I/O.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["RepeatedName", "given_json", "unique_keys"]


class RepeatedName(ValueError):
    """An object of JSON has a name twice; the text is that name and nothing else of the JSON."""


def given_json(text: str | bytes, **options: Any) -> Any:
    """The value that `text` is; `options` are those of `json.loads`. Raises `ValueError` for what
    is no JSON (`RepeatedName` for an object that has a name twice), and `RecursionError` for what
    is too deep."""
    return json.loads(text, object_pairs_hook=unique_keys, **options)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON (an ``object_pairs_hook``). Raises `RepeatedName`."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedName(f"{key!r} occurs twice")
        found[key] = value
    return found
