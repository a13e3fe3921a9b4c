"""Times from texts that Arrow's readers refuse: nanoseconds, and zones in some rows only.

Tables keep microseconds. Go, Java and .NET write seven to nine digits of a second; digits beyond
the sixth are refused unless they are zero, or cut if the user asks for it. This module must not
read bodies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_years", "has_nanoseconds", "times_of_texts"]

_FINE: Final = r":[0-9]{2}\.[0-9]{7}"
_ZEROS: Final = r"(:[0-9]{2}\.[0-9]{6})0{1,3}($|[^0-9])"
_REST: Final = r"(:[0-9]{2}\.[0-9]{6})[0-9]{1,3}($|[^0-9])"
_ZONE: Final = r"^.{11}.*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
"""Zone after the date, whose day looks like a zone."""


def has_nanoseconds(texts: pa.Array) -> bool:
    """Return True if any of the texts or bytes has more than six digits of a second."""
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(texts, _FINE)).as_py())


def times_of_texts(texts: pa.Array, type_: pa.DataType, nanoseconds: str) -> pa.Array:
    """Parse times; those without a zone are UTC where `type_` has one.

    `nanoseconds` is ``fail`` or ``cut``. Raises `pyarrow.ArrowInvalid` for texts that are no such
    times, and for those that have a zone where `type_` has none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    pattern = _REST if nanoseconds == "cut" else _ZEROS
    texts = pc.replace_substring_regex(texts, pattern, r"\1\2")
    if nanoseconds != "cut" and has_nanoseconds(texts):
        raise pa.ArrowInvalid(
            "a time has nanoseconds, and tables keep microseconds; set nanoseconds='cut' to cut it"
        )
    if pa.types.is_time(type_):
        return _times_of_day(texts, type_)
    if type_.tz is None:
        return texts.cast(type_)
    zoned = pc.match_substring_regex(texts, _ZONE)
    nothing = pa.scalar(None, pa.string())
    plain = pc.if_else(zoned, nothing, texts).cast(pa.timestamp(type_.unit)).cast(type_)
    return pc.if_else(zoned, pc.if_else(zoned, texts, nothing).cast(type_), plain)


def _times_of_day(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parse times of day through instants: Arrow casts texts to instants only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.all(pc.match_substring_regex(texts, "^[0-9]{2}:")).as_py() and texts.null_count < len(
        texts
    ):
        raise pa.ArrowInvalid("a text is no time of day")
    instants = pc.binary_join_element_wise("1970-01-01 ", texts, "")
    return instants.cast(pa.timestamp("us")).cast(type_)


def check_years(column: pa.Array) -> None:
    """Raise `pyarrow.ArrowInvalid` for dates and times outside the years 1 to 9999, which other
    systems do not accept."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date32(column.type):
        least, most, numbers = -719_162, 2_932_896, column.view(pa.int32())
    elif pa.types.is_timestamp(column.type):
        least, most = -62_135_596_800_000_000, 253_402_300_799_999_999
        numbers = column.view(pa.int64())
    else:
        return
    bounds = pc.min_max(numbers)
    if numbers.null_count < len(numbers) and (
        bounds["min"].as_py() < least or bounds["max"].as_py() > most
    ):
        raise pa.ArrowInvalid(f"a {column.type} is not of the years 1 to 9999")
