"""Attribute strings: their bytes, in Java's modified UTF-8 or plain UTF-8, and their pairs.

An attribute string is ``key=value&key=value`` without any escaping. Versions 0 to 3 write it as
Java's `DataOutput.writeUTF` does (U+0000 in two bytes, characters above U+FFFF as two surrogates of
three bytes each); version 4 and the attributes of single records are plain UTF-8. Java silently
drops every attribute of a message in the wrong form: writing is exact here, reading accepts both
and never fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = [
    "decode_text",
    "encode_modified",
    "encode_plain",
    "format_attributes",
    "parse_attributes",
]

_HIGH = re.compile("[\U00010000-\U0010ffff]")
_SURROGATE_PAIR = re.compile(rb"\xed([\xa0-\xaf])([\x80-\xbf])\xed([\xb0-\xbf])([\x80-\xbf])")
_ESCAPED_NUL: Final = b"\xc0\x80"


def decode_text(raw: bytes) -> str:
    """Decode `raw` in either form of UTF-8; bytes that are neither become U+FFFD."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # Neither sequence can occur in plain UTF-8, so mixed strings are decoded correctly, too.
        joined = _SURROGATE_PAIR.sub(_join_surrogates, raw.replace(_ESCAPED_NUL, b"\0"))
        return joined.decode("utf-8", "replace")


def _join_surrogates(match: re.Match[bytes]) -> bytes:
    upper, lower, upper_low, lower_low = (group[0] & 0x3F for group in match.groups())
    high, low = (upper << 6 | lower) & 0x3FF, (upper_low << 6 | lower_low) & 0x3FF
    return chr(0x10000 + (high << 10 | low)).encode()


def encode_plain(text: str) -> bytes:
    """Encode `text` in plain UTF-8. Raises `ValueError` for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"attribute {text!r} is not valid Unicode") from error


def encode_modified(text: str) -> bytes:
    """Encode `text` in Java's modified UTF-8. Raises `ValueError` for a lone surrogate."""
    raw = encode_plain(text)
    if _HIGH.search(text):
        raw = _HIGH.sub(_split_high, text).encode("utf-8", "surrogatepass")
    return raw.replace(b"\0", _ESCAPED_NUL)


def _split_high(match: re.Match[str]) -> str:
    value = ord(match[0]) - 0x10000
    return chr(0xD800 | value >> 10) + chr(0xDC00 | value & 0x3FF)


def parse_attributes(text: str) -> dict[str, str]:
    """Parse the pairs of an attribute string; never fails.

    A value starts behind the first ``=`` of its pair, white space around keys and values is
    dropped, and of a repeated key the last value counts. Parts without ``=`` or without a key are
    skipped.
    """
    pairs: dict[str, str] = {}
    for part in text.split("&"):
        key, separator, value = part.partition("=")
        if separator and (key := key.strip()):
            pairs[key] = value.strip()
    return pairs


def format_attributes(attributes: Mapping[str, str]) -> str:
    """Format pairs as the attribute string that `parse_attributes` parses back, in their order.

    Raises `ValueError` naming every key or value that would not survive: with ``&``, ``=`` or white
    space at an end, or a blank key.
    """
    problems = [
        problem
        for key, value in attributes.items()
        for problem in (_problem("key", key), _problem(f"value of {key!r}", value))
        if problem
    ]
    if problems:
        raise ValueError("attributes: " + "; ".join(problems))
    return "&".join(f"{key}={value}" for key, value in attributes.items())


def _problem(label: str, text: str) -> str | None:
    if label == "key" and not text.strip():
        return "a key is blank"
    if text != text.strip():
        return f"{label} {text!r} has white space at an end"
    forbidden = [separator for separator in "&=" if separator in text]
    return f"{label} {text!r} contains {' and '.join(forbidden)}" if forbidden else None
