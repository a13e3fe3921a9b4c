"""JSON as RocketMQ's servers write it: standard, or with bare and with object keys.

Cluster info, statistics and routes for old clients come from a library that leaves integer keys
unquoted (``{0:"…"}``) and writes objects as keys (``{{"a":1}:2}``). Standard text is read by the
standard library, the rest here; an object as a key becomes its own compact JSON text. Depth is
bounded, so hostile text cannot exhaust the stack.

Source: `docs/rocketmq-protocol/wire.md#bodies`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from rocketmq_client import errors

__all__ = ["object_in", "read_json", "write_json"]

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?\d{1,64}(?:\.\d{1,64})?(?:[eE][+-]?\d{1,4})?")
_WORDS: Final = {"true": True, "false": False, "null": None}
_DEEPEST: Final = 64
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_STRINGS = json.JSONDecoder()


def read_json(body: bytes, what: str) -> dict[str, Any]:
    """Return the object in a body. Raises `errors.ProtocolViolation` if there is none."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise errors.ProtocolViolation(f"{what} is not UTF-8: {error}") from error
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise errors.ProtocolViolation(f"{what} is nested too deeply") from error
    except ValueError:
        value = _Tolerant(text, what).read()
    if _SURROGATE.search(text):
        _refuse_lone_surrogates(value, what)
    if not isinstance(value, dict):
        raise errors.ProtocolViolation(f"{what} is not a JSON object")
    return value


def object_in(value: Any) -> dict[str, Any]:
    """Return an object that is a member of a body; an absent one is empty. Raises
    `errors.ProtocolViolation` for another type."""
    if not isinstance(value, dict | None):
        raise errors.ProtocolViolation(f"{str(value)[:40]!r} is not an object")
    return value or {}


def write_json(value: Any) -> bytes:
    """Write compact standard JSON."""
    return _compact(value).encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _refuse_lone_surrogates(value: Any, what: str) -> None:
    """Raise `errors.ProtocolViolation` for a text with a lone surrogate (``\\ud800``): it cannot be
    written anywhere, not even to a log."""
    try:
        write_json(value)
    except (UnicodeEncodeError, RecursionError) as error:
        raise errors.ProtocolViolation(f"{what} contains half a character") from error


class _Tolerant:
    def __init__(self, text: str, what: str) -> None:
        self._text, self._what, self._pos = text, what, 0

    def read(self) -> Any:
        value = self._value(0)
        self._skip()
        if self._pos != len(self._text):
            raise self._broken()
        return value

    def _value(self, depth: int) -> Any:
        self._skip()
        if depth > _DEEPEST:
            raise errors.ProtocolViolation(f"{self._what} is nested too deeply")
        start = self._text[self._pos : self._pos + 1]
        if start == "{":
            return self._object(depth)
        if start == "[":
            return self._array(depth)
        if start == '"':
            return self._string()
        return self._plain()

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._pos += 1
        while not self._taken("}"):
            key = self._value(depth + 1)
            if not self._taken(":"):
                raise self._broken()
            members[key if isinstance(key, str) else _compact(key)] = self._value(depth + 1)
            if not self._taken(",") and not self._ahead("}"):
                raise self._broken()
        return members

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._pos += 1
        while not self._taken("]"):
            items.append(self._value(depth + 1))
            if not self._taken(",") and not self._ahead("]"):
                raise self._broken()
        return items

    def _string(self) -> Any:
        try:
            value, self._pos = _STRINGS.raw_decode(self._text, self._pos)
        except ValueError as error:
            raise self._broken() from error
        return value

    def _plain(self) -> Any:
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._pos):
                self._pos += len(word)
                return value
        number = _NUMBER.match(self._text, self._pos)
        if number is None:
            raise self._broken()
        try:
            read: Any = int(number[0]) if _leads_with_zero(number[0]) else json.loads(number[0])
        except ValueError as error:  # 01.5
            raise self._broken() from error
        self._pos = number.end()
        return read

    def _taken(self, mark: str) -> bool:
        if not self._ahead(mark):
            return False
        self._pos += 1
        return True

    def _ahead(self, mark: str) -> bool:
        self._skip()
        return self._text.startswith(mark, self._pos)

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._pos)
        self._pos = match.end() if match else self._pos

    def _broken(self) -> errors.ProtocolViolation:
        near = self._text[self._pos : self._pos + 20]
        return errors.ProtocolViolation(f"{self._what} is not JSON at {self._pos}: {near!r}")


def _leads_with_zero(text: str) -> bool:
    digits = text.lstrip("-")
    return len(digits) > 1 and digits[0] == "0" and digits.isdecimal()
