"""Numbers that Arrow's readers and casts would change without an error, found before they are rows.

A reader scales a decimal to its column by multiplication, and checks neither the column's precision
nor its 128 bits: 99999 in a ``decimal(5,2)`` comes back from Parquet as -67773.16. A number that is
too big for a ``float`` becomes infinite. This module must not parse bodies or decide about bad
ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tubemq_provider.rows.times import check_years

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_kept", "check_texts", "decimals_of_texts", "is_odd_float", "wide_decimal"]

_DIGITS: Final = 76
"""Precision of Arrow's widest decimal."""

_MANY_DIGITS: Final = r"(?:[0-9]\.?){77}"
"""Numbers that Arrow's cast from text would change."""

_LEAST_BITS: Final = {16: 2**-8, 32: 2**-21, 64: 2**-49}
"""Relative weight of the last bits of a floating-point number, by its width: the noise of a few
sums."""


def wide_decimal(type_: pa.Decimal128Type) -> pa.Decimal256Type:
    """Return the type to read a decimal with: each number that it accepts has room for all digits
    of the scale. A cast from it to `type_` raises `pyarrow.ArrowInvalid` for numbers that do not
    fit."""
    import pyarrow as pa

    return pa.decimal256(_DIGITS - type_.scale, type_.scale)


def decimals_of_texts(texts: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    """Parse decimals. Raises `pyarrow.ArrowInvalid` for texts that are no numbers, or that `type_`
    has no room for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > _DIGITS and pc.any(pc.match_substring_regex(texts, _MANY_DIGITS)).as_py():
        raise pa.ArrowInvalid(f"a number has more than {_DIGITS} digits")
    return texts.cast(wide_decimal(type_)).cast(type_)


def is_odd_float(column: pa.Array) -> bool:
    """Return True if a number is infinite or NaN, which is valid only if its text says it."""
    import pyarrow.compute as pc

    return bool(pc.any(pc.invert(pc.is_finite(column))).as_py())


def check_texts(column: pa.Array, texts: pa.Array) -> None:
    """Raise `pyarrow.ArrowInvalid` unless the numbers of `column`, which Arrow's CSV reader parsed
    from `texts`, equal the texts. Expects texts that the reader has accepted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type):
        if pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():
            raise pa.ArrowInvalid(f"a number is hexadecimal, which a {column.type} does not take")
    elif pc.any(pc.and_(pc.is_inf(column), pc.match_substring_regex(texts, "[0-9]"))).as_py():
        raise _too_big(column.type)
    elif pc.any(pc.match_substring(texts, "(")).as_py():
        raise pa.ArrowInvalid("a word is no number")


def check_kept(before: pa.Array, after: pa.Array) -> None:
    """Raise `pyarrow.ArrowInvalid` if the cast from `before` to `after` made a number infinite,
    rounded or boolean, or dropped the time of an instant, and for times outside the years 1 to
    9999."""
    import pyarrow as pa

    kind = after.type
    if pa.types.is_struct(kind):
        before_by_name = dict(
            zip([item.name for item in before.type], before.flatten(), strict=True)
        )
        for item, column in zip(kind, after.flatten(), strict=True):
            if item.name in before_by_name:
                check_kept(before_by_name[item.name], column)
    elif pa.types.is_map(kind):
        check_kept(before.keys, after.keys)
        check_kept(before.items, after.items)
    elif pa.types.is_list(kind):
        check_kept(before.flatten(), after.flatten())
    else:
        _check_flat(before, after)
        check_years(after)


def _check_flat(before: pa.Array, after: pa.Array) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = after.type
    if pa.types.is_date(kind) and pa.types.is_timestamp(before.type):
        local = before if before.type.tz is None else pc.local_timestamp(before)
        if pc.any(pc.not_equal(local, after.cast(local.type))).as_py():
            raise pa.ArrowInvalid(
                f"{before.type} has a time of day, which a {kind} has not; round it down in the "
                f"function, or make the column a timestamp"
            )
    elif pa.types.is_float32(kind) and pa.types.is_float64(before.type):
        infinite = pc.and_(pc.is_inf(after), pc.is_finite(before))
        if pc.any(infinite).as_py():
            raise _too_big(kind)
    elif pa.types.is_decimal(kind) and pa.types.is_floating(before.type):
        _check_digits(before, after)
    elif pa.types.is_boolean(kind) and not pa.types.is_boolean(before.type):
        _check_truth(before, after)


def _check_digits(before: pa.Array, after: pa.Array) -> None:
    """Check that a decimal differs from the float by no more than the float's own precision: 0.1 +
    0.2 is 0.30, and 0.125 is not 0.12."""
    import pyarrow as pa
    import pyarrow.compute as pc

    real = before.cast(pa.float64())
    off = pc.abs(pc.subtract(after.cast(pa.float64()), real))
    least = _LEAST_BITS.get(before.type.bit_width, 1)
    if pc.any(pc.greater(off, pc.multiply(pc.abs(real), least))).as_py():
        raise pa.ArrowInvalid(
            f"a {before.type} has more digits after the point than a {after.type}; round it in the "
            f"function, or make the column wider"
        )


def _check_truth(before: pa.Array, after: pa.Array) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_integer(before.type) or pa.types.is_floating(before.type)):
        return  # from texts Arrow parses booleans strictly
    if pc.any(pc.not_equal(after.cast(pa.int8()).cast(before.type), before)).as_py():
        raise pa.ArrowInvalid(
            f"a {before.type} is neither 0 nor 1, and no {after.type}; compare it in the function"
        )


def _too_big(kind: pa.DataType) -> pa.ArrowInvalid:
    import pyarrow as pa

    return pa.ArrowInvalid(f"a number is too big to be stored in a {kind}")
