"""CSV: the product against Python's csv module, its numbers and its times, and against DuckDB.

Rows are split by Python's module in strict mode, with rules for what the product refuses or takes;
values are read by Python's own types from the grammar in docs/typed-rows.md. DuckDB reads the same
bodies with its own types; values that both read must be equal.
"""

from __future__ import annotations

import csv
import io
import math
import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from pathlib import Path
from random import Random
from struct import pack, unpack
from typing import Any

from tests.provider.rows.decoded import decode

__all__ = ["run"]

TYPES = [
    *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(5,2)"),
    *("decimal(38,10)", "boolean", "date", "timestamp", "timestamp_ntz", "string", "binary"),
    "time",
]
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
BAD = object()
"""Oracle's answer for a body that is no row."""

_CELLS = [
    *("", "0", "1", "-1", "+1", "127", "128", "-129", "32768", "2147483648", "9223372036854775808"),
    *("0xFF", "0XfF", "-0x1", "0xFFFFFFFF", "0b1", "1_000", "007", " 5", "5 ", "\t5", "1.0", ".5"),
    *("5.", "1e3", "1E-2", "1e400", "1e39", "-1e400", "inf", "-Infinity", "nan", "NaN", "nan(1)"),
    *("999.99", "1000", "99999", "1e-3", "0.001", "9" * 29, "1" * 39, "1e80", "1e-80", "true"),
    *(str(2**256), str(2**128), "1" * 80, "0." + "1" * 80, "1e40", "TRUE", "t", "false"),
    *("2026-11-21", "2024-02-29", "2023-02-29", "0000-01-01", "9999-12-31", "10000-01-01"),
    *("2026-11-21 08", "2026-11-21 08:15", "2026-11-21T08:15:00", "2026-11-21 08:15:00.1"),
    *("2026-11-21T08:15:00Z", "2026-11-21T08:15:00+02:00", "2026-11-21 08:15:00.123-0530"),
    *("2026-11-21T08:15:00.123456Z", "2026-11-21T08:15:00.1234567Z", "2026-11-21 08:15:60"),
    *("2026-11-21T08:15:00.123456000+02", "1969-12-31T23:59:59.999999999", "0001-01-01T00:00:00Z"),
    *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.9999999-01:00", "2026-11-21 24:00:00"),
    *("08:15", "08:15:00.5", "23:59:59.999999999", "08:15:00.1234560", "24:00:00", "a", "é", "x y"),
    *('say "x"', "null", "NULL", "\\", "a\\b", "\U0001f600", "1,5", "a|b", "line\nbreak", "\r\n"),
]
_INTEGER = re.compile(r"-?[0-9]+\Z")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?\Z")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?)"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?\Z"
)


def case(random: Random) -> tuple[list[str], bytes]:
    """Generate types of columns and a body."""
    types = [random.choice(TYPES) for _ in range(random.randrange(1, 5))]
    cells = [_cell(random) for _ in types]
    body = ",".join(cells)
    kind = random.randrange(12)
    if kind == 0:
        body += random.choice(["\n", "\r\n", "\n\n", ",", '"'])
    elif kind == 1:
        body = "\ufeff" * random.randrange(1, 3) + body
    elif kind == 2 and body:
        where = random.randrange(len(body))
        body = body[:where] + random.choice(['"', '""', ",", "\n", "\\", "x"]) + body[where:]
    return types, body.encode()


def _cell(random: Random) -> str:
    text = random.choice(_CELLS)
    if random.random() < 0.3:
        text = str(random.choice([random.randrange(-300, 300), random.random() * 1000]))
    if any(sign in text for sign in ',"\n\r') or random.random() < 0.25:
        return '"' + text.replace('"', '""') + '"'
    return text


def expected(types: list[str], body: bytes, nanoseconds: str) -> Any:
    """Return the oracle's row, or `BAD`."""
    text = body.decode().lstrip("\ufeff")
    text = re.sub(r"(\r?\n){1,2}\Z", "", text)
    cells = _split(text)
    if cells is None or len(cells) != len(types) or not text.strip("\r\n"):
        return BAD
    try:
        return [_value(t, *cell, nanoseconds) for t, cell in zip(types, cells, strict=True)]
    except (ValueError, ArithmeticError):
        return BAD


def _split(text: str) -> list[tuple[str, bool]] | None:
    """Return cells, and whether each was quoted; a state machine of RFC 4180, in which a quote
    inside an unquoted value is text. Like Python's module and DuckDB it refuses an unclosed
    quote."""
    cells, at = [], 0
    while True:
        if text[at : at + 1] == '"':
            found = re.compile(r'"((?:[^"]|"")*)("?)', re.DOTALL).match(text, at)
            assert found is not None
            if not found[2]:
                return None
            cells.append((found[1].replace('""', '"'), True))
        else:
            found = re.compile(r"[^,]*", re.DOTALL).match(text, at)
            assert found is not None
            if "\n" in found[0] or "\r" in found[0]:
                return None
            cells.append((found[0], False))
        at = found.end()
        if at == len(text):
            return cells
        if text[at] != ",":
            return None
        at += 1


def _value(type_: str, text: str, quoted: bool, nanoseconds: str) -> Any:
    if type_ in ("string", "binary"):
        if not text and not quoted:
            return None
        return text if type_ == "string" else text.encode()
    if not text:
        return None
    if type_ == "boolean":
        known = {"1": True, "true": True, "True": True, "TRUE": True, "0": False, "false": False}
        if text not in (known := {**known, "False": False, "FALSE": False}):
            raise ValueError(text)
        return known[text]
    text = text.strip(" \t")
    if type_ in _BITS:
        number = int(text) if _INTEGER.match(text) else int("no number")
        if not -(2 ** (_BITS[type_] - 1)) <= number < 2 ** (_BITS[type_] - 1):
            raise ValueError(text)
        return number
    if type_ in ("float", "double"):
        return _real(type_, text)
    if type_.startswith("decimal"):
        return _decimal(type_, text)
    return _moment(type_, text, nanoseconds)


def _real(type_: str, text: str) -> float:
    if re.fullmatch(r"[+-]?(inf|infinity|nan)", text, re.IGNORECASE):
        return float(text)
    number = float(text) if _REAL.match(text) else float("no number")
    if type_ == "float":
        number = unpack("<f", pack("<f", number))[0]
    if math.isinf(number):
        raise ValueError(text)
    return number


def _decimal(type_: str, text: str) -> Decimal:
    precision, scale = map(int, type_[8:-1].split(","))
    if not _REAL.match(text):
        raise ValueError(text)
    with localcontext() as context:
        context.prec = 500
        number = Decimal(text).quantize(Decimal(1).scaleb(-scale))
        if number != Decimal(text) or abs(number) >= 10 ** (precision - scale):
            raise ValueError(text)
    return number


def _moment(type_: str, text: str, nanoseconds: str) -> Any:
    if type_ == "time":
        return _clock(text, nanoseconds)
    found = _MOMENT.match(text)
    if found is None or (type_ == "date" and found.end(1) != len(text)):
        raise ValueError(text)
    day = date.fromisoformat(found[1])
    if type_ == "date":
        return day
    clock = found[2] or "00:00"
    at = datetime.combine(day, _clock(clock if ":" in clock else f"{clock}:00", nanoseconds))
    if found[3] is not None and type_ == "timestamp_ntz":
        raise ValueError(text)
    if type_ == "timestamp_ntz":
        return at
    return at.replace(tzinfo=_zone(found[3])).astimezone(UTC)


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    if int(digits[:2]) > 23 or int(digits[2:]) > 59:
        raise ValueError(text)
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _clock(text: str, nanoseconds: str) -> time:
    found = _TIME.match(text)
    if found is None:
        raise ValueError(text)
    digits = (found[4] or "").ljust(9, "0")
    if digits[6:] != "000" and nanoseconds != "cut":
        raise ValueError(text)
    return time(int(found[1]), int(found[2]), int(found[3] or 0), int(digits[:6]))


def same(ours: Any, other: Any) -> bool:
    """Compare values of one type; NaN equals itself."""
    if isinstance(ours, float) and isinstance(other, float) and math.isnan(ours):
        return math.isnan(other)
    if isinstance(ours, datetime) and isinstance(other, datetime):
        return ours == other and (ours.tzinfo is None) == (other.tzinfo is None)
    return type(ours) is type(other) and bool(ours == other)


def run(inputs: int, seed: int, jars: Path | None) -> tuple[int, list[str]]:
    """Compare `inputs` bodies; `jars` are not used."""
    random, problems = Random(seed), []
    count = 0
    while count < inputs:
        types, _ = case(random)
        bodies: list[bytes] = []
        while len(bodies) < 25:
            other, body = case(random)
            if len(other) == len(types):
                bodies.append(body)
        nanoseconds = random.choice(["fail", "cut"])
        spec = {
            "format": "csv", "nanoseconds": nanoseconds,
            "schema": ", ".join(f"c{i} {t}" for i, t in enumerate(types)),
        }  # fmt: skip
        rows, bad = decode(spec, bodies)
        reasons = {entry.position: entry.reason for entry in bad}
        ours = {row["offset"] // 28: [row[f"c{i}"] for i in range(len(types))] for row in rows}
        for place, body in enumerate(bodies):
            mine: Any = ours.get(place, BAD)
            other = expected(types, body, nanoseconds)
            equal = mine is other if BAD in (mine, other) else all(map(same, mine, other))
            if not equal:
                problems.append(
                    f"{types} {nanoseconds} {body!r}\n"
                    f"  ours {reasons.get(place, mine)}\n  oracle {other}"
                )
        count += len(bodies)
    return count, problems


def read_by_python(body: bytes) -> list[str]:
    """Read the row by Python's module in strict mode; a check of the splitter above."""
    return next(csv.reader(io.StringIO(body.decode(), newline=""), strict=True))
