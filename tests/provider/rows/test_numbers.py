"""Numbers that Arrow would change silently make their record bad, in every format."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.provider.rows.decoded import decode

pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    ("type_", "sound", "too_big"),
    [
        ("decimal(5,2)", ["999.99", "-999.99", "1e2", "0.1"], ["99999", "-1000", "1e4", "1000.5"]),
        ("decimal(18,2)", ["9999999999999999.99"], ["99999999999999999", "10000000000000000.1"]),
        ("decimal(38,38)", ["1e-38", "-0.5"], ["100", "1", "-1e37"]),
        ("decimal(38,18)", ["99999999999999999999"], ["100000000000000000000", "9" * 38]),
        ("decimal(38,0)", ["9" * 38], ["1" + "0" * 38, str(2**128), str(2**256)]),
    ],
)
@pytest.mark.parametrize(
    "form", ['{{"a": {}}}', '{{"a": "{}"}}', '{{\n"s": [{{"a": {}}}]}}', "{} "]
)
def test_a_decimal_that_its_column_has_no_room_for_is_bad(
    form: str, type_: str, sound: list[str], too_big: list[str]
) -> None:
    csv = "{{" not in form
    schema = f"a {type_}" if csv else f"a {type_}, s array<struct<a: {type_}>>"
    spec = {"format": "csv" if csv else "json", "schema": schema}
    bodies = [form.format(number).encode() for number in (*sound, *too_big)]
    rows, bad = decode(spec, bodies)
    cells = [row["s"][0]["a"] if not csv and row["s"] else row["a"] for row in rows]
    assert cells == [Decimal(number) for number in sound]
    assert [entry.position for entry in bad] == list(range(len(sound), len(bodies)))


def test_a_number_that_is_too_big_for_its_column_is_bad_and_infinity_is_not() -> None:
    spec = {"format": "csv", "schema": "f float, d double, n string"}
    bodies = [b"1e39,1,a", b"1,-1e400,b", b"inf,-Infinity,c", b"0.5,1e300,", b",,\xc3\xa9"]
    rows, bad = decode(spec, bodies)
    assert [(row["f"], row["d"]) for row in rows] == [
        (float("inf"), float("-inf")),
        (0.5, 1e300),
        (None, None),
    ]
    assert [(entry.position, entry.reason) for entry in bad] == [
        (0, "a number is too big to be stored in a float"),
        (1, "a number is too big to be stored in a double"),
    ]


def halves(records: Any) -> Any:
    """Return doubles, as a user's function."""
    one = pa.array([1e39 if body == b"big" else 0.5 for body in records["value"].to_pylist()])
    columns = [one, pa.StructArray.from_arrays([one], ["x"])]
    columns.append(pa.array([[cell.as_py()] for cell in one], pa.list_(pa.float64())))
    return pa.RecordBatch.from_arrays(columns, ["f", "s", "l"])


@pytest.mark.parametrize("schema", ["f float", "s struct<y: int, x: float>", "l array<float>"])
def test_a_number_of_a_function_does_not_become_infinite(schema: str) -> None:
    spec = {"format": "function", "function": f"{__name__}.halves", "schema": schema}
    rows, _ = decode(spec, [b"small"])
    assert "0.5" in str(rows)
    with pytest.raises(pa.ArrowInvalid, match="too big to be stored in a float"):
        decode(spec, [b"small", b"big"])
    rows, _ = decode({**spec, "schema": schema.replace("float", "double")}, [b"big"])
    assert "1e+39" in str(rows)


def numbers(records: Any) -> Any:
    """Return numbers as they are in the bodies, as a user's function."""
    cells = [None if body == b"-" else float(body) for body in records["value"].to_pylist()]
    real = pa.array(cells)
    columns = [real, real.cast(pa.float32()), real.cast(pa.int64(), safe=False)]
    columns.append(pa.array([[cell] for cell in cells], pa.list_(pa.float64())))
    return pa.RecordBatch.from_arrays(columns, ["d", "f", "n", "l"])


def cells_of(rows: list[dict[str, Any]], name: str) -> list[Any]:
    cells = [row[name] for row in rows]
    return [cell[0] if isinstance(cell, list) else cell for cell in cells]


@pytest.mark.parametrize("schema", ["d decimal(18,2)", "f decimal(18,2)", "l array<decimal(18,2)>"])
def test_a_number_of_a_function_is_not_rounded_to_a_decimal(schema: str) -> None:
    spec = {"format": "function", "function": f"{__name__}.numbers", "schema": schema}
    sound = ["0.30000000000000004", "-0.57", "4.35", "0", "1234567.25", "-"]
    rows, _ = decode(spec, [number.encode() for number in sound])
    wanted = [Decimal(text) for text in ("0.30", "-0.57", "4.35", "0.00", "1234567.25")]
    assert cells_of(rows, schema[0]) == [*wanted, None]
    for bad in ("0.125", "-2.675", "1e-9", "1234.5678"):
        with pytest.raises(pa.ArrowInvalid, match="more digits after the point than a decimal128"):
            decode(spec, [b"-", bad.encode()])


@pytest.mark.parametrize("schema", ["d boolean", "n boolean", "l array<boolean>"])
def test_a_number_of_a_function_is_true_only_if_it_is_one(schema: str) -> None:
    spec = {"format": "function", "function": f"{__name__}.numbers", "schema": schema}
    rows, _ = decode(spec, [b"0", b"1", b"-"])
    assert cells_of(rows, schema[0]) == [False, True, None]
    for bad in ("2", "-1", "1e9"):
        with pytest.raises(pa.ArrowInvalid, match="neither 0 nor 1"):
            decode(spec, [b"1", bad.encode()])
    if schema[0] != "n":
        with pytest.raises(pa.ArrowInvalid, match="neither 0 nor 1"):
            decode(spec, [b"nan"])


def times(records: Any) -> Any:
    """Return instants, as a user's function."""
    late = any(body == b"late" for body in records["value"].to_pylist())
    begin = 1_763_942_400_000_000 + (1 if late else 0)
    rows = [begin, None][: records.num_rows]
    plain = pa.array(rows, pa.timestamp("us"))
    berlin = pa.array([row and row - 3_600_000_000 for row in rows], pa.timestamp("us"))
    berlin = berlin.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "Europe/Berlin"))
    nested = pa.array([[row] for row in rows], pa.list_(pa.timestamp("us")))
    return pa.RecordBatch.from_arrays([plain, berlin, nested], ["plain", "berlin", "nested"])


@pytest.mark.parametrize("schema", ["plain date", "berlin date", "nested array<date>"])
def test_an_instant_of_a_function_does_not_become_a_day_without_its_time(schema: str) -> None:
    spec = {"format": "function", "function": f"{__name__}.times", "schema": schema}
    rows, _ = decode(spec, [b"x", b"x"])
    assert "datetime.date(2025, 11, 24)" in str(rows[0])
    assert "date(" not in str(rows[1])
    with pytest.raises(pa.ArrowInvalid, match="has a time of day, which a date32"):
        decode(spec, [b"late"])


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("at timestamp_ntz", '{"at": "%s"}'),
        ("s struct<at: timestamp_ntz>", '{"s": {"at": "%s"}}'),
        ("l array<timestamp_ntz>", '{"l": [null, "%s"]}'),
    ],
)
def test_an_instant_without_a_zone_is_not_moved_to_another_one(schema: str, body: str) -> None:
    """A zone makes the record bad, as in CSV; earlier it was silently moved to UTC."""
    texts = ["2026-11-21 08:15:00", "2026-11-21T08:15:00.000001", "2026-11-21T08:15:00+02:00"]
    bodies = [(body % text).encode() for text in [*texts, "2026-11-21T08:15:00Z", "soon"]]
    bodies.append((body % "x").replace('"x"', "null").encode())
    rows, bad = decode({"format": "json", "schema": schema}, bodies)
    assert [entry.position for entry in bad] == [2, 3, 4]
    assert "datetime.datetime(2026, 11, 21, 8, 15)" in str(rows[0])
    assert "datetime.datetime(2026, 11, 21, 8, 15, 0, 1)" in str(rows[1])
    assert len(rows) == 3
    zoned = schema.replace("_ntz", "")
    rows, bad = decode({"format": "json", "schema": zoned}, bodies[:4])
    assert len(rows) == 4
