"""Values of change records as those of a column's type.

Formats write a value in several ways: Debezium a date as days and a decimal as Base64 of its
digits, Canal everything as text. Where the envelope has a schema, it says which; where it has none,
the options `times` and `decimals` do, and what is ambiguous without them is refused. This module
must not know envelopes.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["UNAVAILABLE", "BadValue", "Reading", "Unavailable", "converter_of"]

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Text of Debezium for a value that the source's log has not, because it did not change."""
_UNAVAILABLE_TEXTS: Final = (
    UNAVAILABLE,
    binascii.b2a_base64(UNAVAILABLE.encode(), newline=False).decode(),
    UNAVAILABLE.encode(),
)

Kind = Mapping[str, Any]
Convert = Callable[[Any, Kind], Any]

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - of columns without a zone
_EPOCH_DAY: Final = date(1970, 1, 1)
_PER_SECOND: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_UNIT_OF_KIND: Final = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "org.apache.kafka.connect.data.Time": "ms",
}
_FRACTION: Final = re.compile(r"(:[0-9]{2})[.,]([0-9]+)")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
"""Python reads underscores and other alphabets' digits, too."""
_NO_NUMBERS: Final = ("nan", "inf", "infinity")
_TRUE: Final = ("true", "t", "1")
_FALSE: Final = ("false", "f", "0")


class BadValue(ValueError):
    """Record or value that is not what its format says."""


class Unavailable(BadValue):
    """Placeholder in place of a value: it did not change, and the record does not have it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of reading values: `times` is the unit of times that are numbers (``ms``, ``us``,
    ``ns``, or ``schema``: only where the envelope says it), `decimals` is ``text`` or ``base64``,
    `bytes` is ``base64`` or ``latin1``, `nanoseconds` is ``fail`` or ``cut``."""

    times: str = "schema"
    decimals: str = "text"
    bytes: str = "base64"
    nanoseconds: str = "fail"


def converter_of(type_: pa.DataType, reading: Reading) -> Convert:
    """Return the function from a value of JSON, and the field of the envelope's schema ({} without
    one), to the Python value of `type_`. It raises `BadValue` with the reason, and `Unavailable`
    for a placeholder."""
    convert = _converter(type_, reading)

    def checked(value: Any, kind: Kind) -> Any:
        if value is None:
            return None
        if type(value) is not int and (value in _UNAVAILABLE_TEXTS or value == [UNAVAILABLE]):
            raise Unavailable("the record does not have the value, which did not change")
        try:
            return convert(value, kind)
        except BadValue:
            raise
        except (ValueError, TypeError, ArithmeticError, KeyError, AttributeError) as error:
            raise BadValue(f"{value!r} is no {type_}") from error

    return checked


def _converter(type_: pa.DataType, reading: Reading) -> Convert:
    import pyarrow.types as pt

    if pt.is_boolean(type_):
        return _boolean
    if pt.is_integer(type_):
        most = 2 ** (type_.bit_width - 1)
        return lambda value, _: _integer(value, most)
    if pt.is_floating(type_):
        return lambda value, _: _float(value, single=pt.is_float32(type_))
    if pt.is_decimal(type_):
        return lambda value, kind: _decimal(value, kind, type_.precision, type_.scale, reading)
    if pt.is_string(type_):
        return lambda value, _: value if isinstance(value, str) else json_text(value)
    if pt.is_binary(type_):
        return lambda value, _: _bytes(value, reading)
    if pt.is_date(type_):
        return _date
    if pt.is_time(type_):
        return lambda value, kind: _time(value, kind, reading)
    if pt.is_timestamp(type_):
        return lambda value, kind: _instant(value, kind, reading, zoned=type_.tz is not None)
    return _nested(type_, reading)


def _nested(type_: pa.DataType, reading: Reading) -> Convert:
    import pyarrow.types as pt

    if pt.is_list(type_):
        item = converter_of(type_.value_type, reading)
        return lambda value, kind: [
            item(one, kind.get("items") or {}) for one in _of(value, list, type_)
        ]
    if pt.is_map(type_):
        of_key = converter_of(type_.key_type, reading)
        of_item = converter_of(type_.item_type, reading)
        return lambda value, kind: [
            (of_key(key, {}), of_item(one, kind.get("values") or {}))
            for key, one in _of(_mapping(value), dict, type_).items()
        ]
    members = {member.name: converter_of(member.type, reading) for member in type_}

    def struct(value: Any, kind: Kind) -> Any:
        kinds = {one.get("field"): one for one in kind.get("fields") or ()}
        given = _of(value, dict, type_)
        return {
            name: convert(given.get(name), kinds.get(name) or {})
            for name, convert in members.items()
        }

    return struct


def _mapping(value: Any) -> Any:
    """Return a map of Avro, which Arrow has as a list of pairs, as that of JSON."""
    return dict(value) if isinstance(value, list) else value


def _of(value: Any, expected: type, type_: pa.DataType) -> Any:
    if not isinstance(value, expected):
        raise BadValue(f"{value!r} is no {type_}")
    return value


def json_text(value: Any) -> str:
    """Return JSON of a parsed value, with the digits of its numbers as they were."""
    import json

    if isinstance(value, dict):
        members = (f"{json.dumps(k, ensure_ascii=False)}:{json_text(v)}" for k, v in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _boolean(value: Any, _: Kind) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise BadValue(f"{value!r} is no boolean")


def _integer(value: Any, most: int) -> int:
    if type(value) is int and -most <= value < most:
        return value
    if isinstance(value, str):
        value = Decimal(_number(value))
    if isinstance(value, (bool, dict, list)):
        raise BadValue(f"{value} is no whole number")
    if not -most <= value < most:  # before `int`, which writes out the digits of 1e999999999
        raise BadValue(f"{value} does not fit the column")
    if value != int(value):
        raise BadValue(f"{value} is no whole number")
    return int(value)


def _number(text: str) -> str:
    if _NUMBER.fullmatch(text.strip()):
        return text.strip()
    raise BadValue(f"{text!r} is no number")


def _float(value: Any, *, single: bool) -> float:
    if isinstance(value, bool):
        raise BadValue(f"{value} is no number")
    if isinstance(value, str) and value.strip().lstrip("+-").lower() in _NO_NUMBERS:
        return float(value)
    number = float(_number(value) if isinstance(value, str) else value)
    if math.isinf(number) or (single and abs(number) > 3.4028236e38):
        raise BadValue(f"{value} is too big to be stored in the column")
    return number


def _decimal(value: Any, kind: Kind, precision: int, scale: int, reading: Reading) -> Decimal:
    name = kind.get("name")
    if name == "io.debezium.data.VariableScaleDecimal":
        number = _unscaled(value["value"], int(value["scale"]))
    elif name == "org.apache.kafka.connect.data.Decimal":
        number = _unscaled(value, int(kind["parameters"]["scale"]))
    elif isinstance(value, str) and not kind and reading.decimals == "base64":
        number = _unscaled(value, scale)
    elif isinstance(value, str):
        try:
            number = Decimal(_number(value))
        except BadValue as error:
            raise BadValue(
                f"{error}; if it is Base64 of its digits (Debezium's "
                "decimal.handling.mode=precise), set decimals='base64'"
            ) from error
    elif isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        number = Decimal(value)
    else:
        raise BadValue(f"{value!r} is no number")
    with localcontext(prec=100):
        scaled = number.scaleb(scale)
        if scaled != scaled.to_integral_value() or abs(scaled) >= 10**precision:
            raise BadValue(f"{number} does not fit decimal({precision},{scale})")
        return scaled.to_integral_value().scaleb(-scale)


def _unscaled(text: Any, scale: int) -> Decimal:
    with localcontext(prec=100):
        return Decimal(int.from_bytes(_base64(text), "big", signed=True)).scaleb(-scale)


def _base64(text: Any) -> bytes:
    if isinstance(text, bytes):  # of Avro
        return text
    if not isinstance(text, str):
        raise BadValue(f"{text!r} is no Base64")
    try:
        return binascii.a2b_base64(text.encode(), strict_mode=True)
    except ValueError as error:
        raise BadValue(f"{text!r} is no Base64: {error}") from error


def _bytes(value: Any, reading: Reading) -> bytes:
    if isinstance(value, bytes):  # of Avro
        return value
    if not isinstance(value, str):
        raise BadValue(f"{value!r} is no text, in which JSON holds bytes")
    if reading.bytes == "base64":
        return _base64(value)
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadValue(f"{value!r} has characters that are no bytes") from error


def _date(value: Any, _: Kind) -> date:
    if isinstance(value, int) and not isinstance(value, bool):
        return _EPOCH_DAY + timedelta(days=value)
    day, _blank, rest = str(value).replace("T", " ").partition(" ")
    if rest and re.sub(r"[0:.Z]", "", rest):
        raise BadValue(f"{value!r} has a time of day, which a date would lose")
    return date.fromisoformat(day)


def _time(value: Any, kind: Kind, reading: Reading) -> time:
    if isinstance(value, int) and not isinstance(value, bool):
        micros = _micros(value, kind, reading)
        if not 0 <= micros < 86_400_000_000:
            raise BadValue(f"{value} is no time of day")
        return (_EPOCH + timedelta(microseconds=micros)).time()
    read = time.fromisoformat(_fine(str(value), reading))
    if read.tzinfo is not None:
        moved = datetime.combine(date(2000, 1, 1), read).astimezone(UTC)
        return moved.time()
    return read


def _instant(value: Any, kind: Kind, reading: Reading, *, zoned: bool) -> datetime:
    if isinstance(value, int) and not isinstance(value, bool):
        read = _EPOCH + timedelta(microseconds=_micros(value, kind, reading))
        return read.replace(tzinfo=UTC) if zoned else read
    if isinstance(value, datetime):  # of Avro's logical types, whose instants are UTC
        return (
            value
            if zoned == (value.tzinfo is not None)
            else value.replace(tzinfo=UTC if zoned else None)
        )
    if not isinstance(value, str):
        raise BadValue(f"{value!r} is no time")
    read = datetime.fromisoformat(_fine(value.strip(), reading))
    if zoned:
        return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
    if read.tzinfo is not None:
        raise BadValue(f"{value!r} has a zone, which timestamp_ntz would lose")
    return read


def _micros(value: int, kind: Kind, reading: Reading) -> int:
    unit = _UNIT_OF_KIND.get(str(kind.get("name")), reading.times)
    if unit == "schema":
        raise BadValue(
            f"the time {value} is a number, and nothing says of which unit; set times='ms', 'us' "
            "or 'ns', or let the envelope have its schema"
        )
    if unit != "ns":
        return value * (1_000_000 // _PER_SECOND[unit])
    micros, rest = divmod(value, 1000)
    if rest and reading.nanoseconds != "cut":
        raise BadValue(_NANOSECONDS)
    return micros


_NANOSECONDS: Final = (
    "a time has nanoseconds, and tables keep microseconds; set nanoseconds='cut' to cut it"
)


def _fine(text: str, reading: Reading) -> str:
    """Return the text with at most six digits of a second."""
    match = _FRACTION.search(text)
    if match is None or len(match[2]) <= 6:
        return text
    if match[2][6:].strip("0") and reading.nanoseconds != "cut":
        raise BadValue(_NANOSECONDS)
    return text[: match.start(2) + 6] + text[match.end(2) :]
