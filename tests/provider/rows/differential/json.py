"""JSON: the product against Python's json module with the grammar of docs/typed-rows.md.

The oracle parses with Python's module, refuses what is not JSON (`NaN`, a key twice in one object
that has a column, lone surrogates), and reads each value strictly by the type of its column.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from tests.provider.rows.decoded import decode
from tests.provider.rows.differential import csv as cells

__all__ = ["run"]

BAD = cells.BAD

_TEXTS = [
    *("", "a", "é", "\U0001f600", "aGk=", "aGk", "aGk==", "_-8=", "/+8=", "====", "a b=", "5"),
    *("1.5", "1e3", "NaN", "true", "null", "0xFF", "2026-11-21", "2026-11-21T08:15:00Z"),
    *(
        "2026-11-21T08:15:00.123456789Z",
        "2026-11-21 08:15:00.1234560",
        "1969-12-31T23:59:59.9999999",
    ),
    *("2026-11-21T08:15:00+02:00", "0000-01-01", "2026-02-30", "08:15:00.5", "08:15:00.123456789"),
    *("9999-12-31T23:59:59-01:00", "} {", '"', "\\", "line\nbreak", " 5", "2026-11-21 08:15"),
]
_NUMBERS = [
    *("0", "-0", "1", "-1", "127", "128", "-129", "32768", "2147483648", "9223372036854775807"),
    *(
        "9223372036854775808",
        "-9223372036854775809",
        "1.0",
        "1.5",
        "1e2",
        "1E400",
        "-1e400",
        "1e39",
    ),
    *("999.99", "1000", "99999", "0.001", "1e-3", "9" * 38, "9" * 39, "1" * 80, "0.1", "19000"),
    *("1.8e308", "-1.7976931348623159e308", "1" + "0" * 309, "0e309", "1e-999"),
    *("340282366920938463463374607431768211456", "1e-400", "9007199254740993", "1795314366339"),
]
_OTHERS = ["1", '"x"', "[1, {}]", "null", "{}", "1e308", "1.5e309", "[0e309]", "1e-400"]
"""Values of unknown fields."""
_WRONG = [
    "NaN",
    "Infinity",
    "01",
    "+1",
    ".5",
    "1.",
    "0x10",
    "'a'",
    "tru",
    '"\\ud800"',
    '"\\x"',
    "-",
]


def type_of(random: Random, depth: int) -> str:
    """Return a type as Spark SQL writes it."""
    pick = random.random()
    if depth and pick < 0.15:
        return f"array<{type_of(random, depth - 1)}>"
    if depth and pick < 0.3:
        members = [f"m{i}: {type_of(random, depth - 1)}" for i in range(random.randrange(1, 3))]
        return f"struct<{', '.join(members)}>"
    return random.choice(cells.TYPES)


def value(random: Random, type_: str) -> str:
    """Return JSON of a value that often fits."""
    pick = random.random()
    if pick < 0.08:
        return "null"
    if pick < 0.11:
        return random.choice(_WRONG)
    if type_.startswith("array<") and pick < 0.9:
        items = [value(random, type_[6:-1]) for _ in range(random.randrange(3))]
        return f"[{', '.join(items)}]"
    if type_.startswith("struct<") and pick < 0.9:
        return object_of(random, members(type_))
    if type_ in ("string", "binary", "date", "timestamp", "timestamp_ntz", "time") or pick > 0.93:
        return json.dumps(random.choice(_TEXTS), ensure_ascii=random.random() < 0.5)
    if type_ == "boolean":
        return random.choice(["true", "false", "1"])
    return random.choice([*_NUMBERS, str(random.randrange(-300, 300)), repr(random.random())])


def members(type_: str) -> dict[str, str]:
    """Return the names and types within a struct."""
    found, depth, start = {}, 0, 7
    for at, sign in enumerate(type_[:-1] + ",", start=0):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 1:
            name, _, inner = type_[start:at].strip().partition(": ")
            found[name] = inner
            start = at + 1
    return found


def object_of(random: Random, fields: dict[str, str]) -> str:
    """Return JSON of an object, in which fields may be missing, duplicate or unknown."""
    made = [f'"{n}": {value(random, t)}' for n, t in fields.items() if random.random() < 0.9]
    if random.random() < 0.05 and made:
        made.append(random.choice(made))
    if random.random() < 0.1:
        made.append('"other": ' + random.choice(_OTHERS))
    random.shuffle(made)
    sign = random.choice([", ", ",", " ,\n" if random.random() < 0.1 else ","])
    return "{" + sign.join(made) + "}"


class _Twice(ValueError):
    """Duplicate field that has a column."""


def expected(fields: dict[str, str], body: bytes, nanoseconds: str) -> Any:
    """Return the oracle's row, or `BAD`."""
    try:
        text = body.decode()
        found = json.loads(
            text, object_pairs_hook=_Pairs, parse_float=_float, parse_int=_Number,
            parse_constant=_refuse,
        )  # fmt: skip
        if not isinstance(found, _Pairs):
            return BAD
        _check_unicode(found)
        return _object(fields, found, nanoseconds)
    except (ValueError, ArithmeticError, binascii.Error):
        return BAD


class _Pairs(list):  # type: ignore[type-arg]
    """Object as it was written."""


class _Number(str):
    """Number as it was written."""

    __slots__ = ()


def _float(text: str) -> _Number:
    """Exponents above 308 are refused on purpose, also where no column takes the number."""
    mantissa, _, exponent = text.lower().partition("e")
    _need(int(exponent or 0) <= 308 + len(mantissa.partition(".")[2]))
    return _Number(text)


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _check_unicode(found: Any) -> None:
    if isinstance(found, str):
        found.encode()
    elif isinstance(found, _Pairs):
        for key, item in found:
            key.encode()
            _check_unicode(item)
    elif isinstance(found, list):
        for item in found:
            _check_unicode(item)


def _object(fields: dict[str, str], found: _Pairs, nanoseconds: str) -> dict[str, Any]:
    names = [name for name, _ in found if name in fields]
    if len(set(names)) < len(names):
        raise _Twice
    there = dict(found)
    return {n: _value(t, there.get(n), nanoseconds) for n, t in fields.items()}


def _value(type_: str, found: Any, nanoseconds: str) -> Any:
    if found is None:
        return None
    if type_.startswith("struct<"):
        _need(isinstance(found, _Pairs))
        return _object(members(type_), found, nanoseconds)
    if type_.startswith("array<"):
        _need(isinstance(found, list) and not isinstance(found, _Pairs))
        return [_value(type_[6:-1], item, nanoseconds) for item in found]
    if type_ == "boolean":
        _need(isinstance(found, bool))
        return found
    _need(isinstance(found, str))
    number = isinstance(found, _Number)
    if type_.startswith("decimal"):
        _need(number or found == found.strip())
        return cells._decimal(type_, str(found))
    if type_ in ("float", "double") or type_ in cells._BITS:
        _need(number)
        made = cells._value(type_, str(found), True, nanoseconds)
        _need(not isinstance(made, float) or math.isfinite(made))
        return made
    _need(not number)
    if type_ == "string":
        return found
    if type_ == "binary":
        return base64.b64decode(found, validate=True)
    _need(found == found.strip())
    return cells._moment(type_, found, nanoseconds)


def _need(condition: bool) -> None:
    if not condition:
        raise ValueError


def same(ours: Any, other: Any) -> bool:
    """Compare values of one type, at any depth."""
    if isinstance(ours, dict) and isinstance(other, dict):
        return ours.keys() == other.keys() and all(same(ours[k], other[k]) for k in ours)
    if isinstance(ours, list) and isinstance(other, list):
        return len(ours) == len(other) and all(map(same, ours, other))
    if isinstance(ours, Decimal) and isinstance(other, Decimal):
        return ours == other
    return cells.same(ours, other)


def run(inputs: int, seed: int, jars: Path | None) -> tuple[int, list[str]]:
    """Compare `inputs` bodies; `jars` are not used."""
    random, problems = Random(seed), []
    count = 0
    while count < inputs:
        fields = {f"c{i}": type_of(random, 2) for i in range(random.randrange(1, 4))}
        bodies = [_body(random, fields) for _ in range(25)]
        nanoseconds = random.choice(["fail", "cut"])
        spec = {
            "format": "json", "nanoseconds": nanoseconds,
            "schema": ", ".join(f"{n} {t}" for n, t in fields.items()),
        }  # fmt: skip
        rows, bad = decode(spec, bodies)
        reasons = {entry.position: entry.reason for entry in bad}
        ours = {row["offset"] // 28: {n: row[n] for n in fields} for row in rows}
        for place, body in enumerate(bodies):
            mine, other = ours.get(place, BAD), expected(fields, body, nanoseconds)
            equal = mine is other if BAD in (mine, other) else same(mine, other)
            if not equal:
                problems.append(
                    f"{fields} {nanoseconds} {body!r}\n"
                    f"  ours {reasons.get(place, mine)}\n  oracle {other}"
                )
        count += len(bodies)
    return count, problems


def _body(random: Random, fields: dict[str, str]) -> bytes:
    text = object_of(random, fields)
    kind = random.randrange(20)
    if kind == 0:
        text = random.choice(
            ["", "null", "[]", "5", text + text, text + "}", text[:-1], f"[{text}]"]
        )
    elif kind == 1:
        text = random.choice([" ", "\n", "\r\n", "\t"]) + text + random.choice(["\n", " ", "\r\n"])
    body = text.encode()
    return body.replace(b"\xc3", b"\xff") if kind == 2 else body
