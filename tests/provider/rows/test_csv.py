"""Delimited text becomes columns, each body by itself."""

from __future__ import annotations

from datetime import UTC, datetime, time
from decimal import Decimal

import pytest

from tests.provider.rows.decoded import decode


def test_delimited_text_is_typed_with_and_without_zones() -> None:
    spec = {
        "format": "csv", "schema": "id int, p decimal(10,2), at timestamp, n string",
        "delimiter": "|", "null_values": ["", "-"],
    }  # fmt: skip
    rows, bad = decode(
        spec,
        [
            b"1|2.50|2026-11-21 08:15:00|a",
            b"2|-|2026-11-21T08:15:00Z|b\n",
            b'3||-|"x|y\nz"',
            b"4|1",
            b"",
            b"five|1|-|c",
            b'6|1|-|"open',
            b"7|1|-|last",
        ],
    )
    at = datetime(2026, 11, 21, 8, 15, tzinfo=UTC)
    assert [row["id"] for row in rows] == [1, 2, 3, 7]
    assert [row["p"] for row in rows] == [
        Decimal("2.50"),
        None,
        None,
        Decimal("1.00"),
    ]
    assert [row["at"] for row in rows] == [at, at, None, None]
    assert [row["n"] for row in rows] == ["a", "b", "x|y\nz", "last"]
    assert [entry.position for entry in bad] == [3, 4, 5, 6]
    assert bad[3].reason == "the quote of the last value is not closed"


MARK = "\ufeff".encode()


@pytest.mark.parametrize("marks", [MARK, MARK * 2])
def test_byte_order_marks_of_delimited_text_are_dropped_from_every_body(marks: bytes) -> None:
    spec = {"format": "csv", "schema": "name string, id int"}
    inside = "\ufeff"
    bodies = [
        marks + b"x,1",
        marks + b'"x",1\n',
        b"x,1",
        marks,
        marks + b'"x\ny",2',
        b"x" + MARK + b",3",
    ]
    rows, bad = decode(spec, bodies)
    wanted = ["x", "x", "x", "x\ny", f"x{inside}"]
    assert [row["name"] for row in rows] == wanted
    assert [(entry.position, entry.reason) for entry in bad] == [(3, "the body is empty")]
    alone = [decode(spec, [body])[0] for body in bodies]
    assert [found[0]["name"] for found in alone if found] == wanted


def test_each_time_of_a_row_may_have_a_zone_or_none() -> None:
    spec = {"format": "csv", "schema": "a timestamp, b timestamp, c timestamp_ntz, n string"}
    zoned, plain = "2026-11-21T08:15:00+02:00", "2026-11-21 06:15:00"
    bodies = [
        *(f"{zoned},{plain},{plain},x", f"{plain},{zoned},{plain},x", f"{plain},{plain},,x"),
        *(f"{zoned},{zoned},{plain},x", f",{zoned},{plain},x", f"{zoned},,{plain},x"),
        *(f"{zoned},{plain},{zoned},x", f"{zoned},soon,{plain},x"),
        f'{zoned},{plain},{plain},"y\n"',
    ]
    rows, bad = decode(spec, [body.encode() for body in bodies])
    at = datetime(2026, 11, 21, 6, 15, tzinfo=UTC)
    without = at.replace(tzinfo=None)
    assert [(row["a"], row["b"], row["c"], row["n"]) for row in rows] == [
        (at, at, without, "x"),
        (at, at, without, "x"),
        (at, at, None, "x"),
        (at, at, without, "x"),
        (None, at, without, "x"),
        (at, None, without, "x"),
        (at, at, without, "y\n"),
    ]
    assert [entry.position for entry in bad] == [6, 7]
    assert "soon" in bad[1].reason
    for body in bodies[:6]:
        assert len(decode(spec, [body.encode()])[0]) == 1


@pytest.mark.parametrize("type_", ["tinyint", "smallint", "int", "bigint"])
@pytest.mark.parametrize("text", ["0xFF", "0X1f", "0xFFFFFFFF", "0x0", '"0xFF"'])
def test_a_hexadecimal_number_is_no_number(type_: str, text: str) -> None:
    """It became -1 in a `tinyint`."""
    spec = {"format": "csv", "schema": f"id {type_}, name string"}
    rows, bad = decode(spec, [f"{text},0x1".encode(), b"5,0xFF"])
    assert [(row["id"], row["name"]) for row in rows] == [(5, "0xFF")]
    assert len(bad) == 1
    assert "hexadecimal" in bad[0].reason or "invalid value" in bad[0].reason


def test_an_empty_value_in_quotes_is_null_but_for_texts() -> None:
    spec = {
        "format": "csv",
        "schema": "n int, s string, d date, p decimal(5,2), b boolean, t timestamp",
    }
    rows, bad = decode(spec, [b'"","","","","",""', b"1,,,,,", b'1,"a""","","1","1",""'])
    assert bad == []
    assert rows[0] == {"offset": 0, "n": None, "s": "", "d": None, "p": None, "b": None, "t": None}
    assert (rows[1]["s"], rows[2]["s"], rows[2]["p"]) == (None, 'a"', Decimal(1))
    words = {**spec, "null_values": ["", "-"]}
    assert decode(words, [b'"-","-","-","-","-","-"'])[0][0]["s"] == "-"


@pytest.mark.parametrize(
    "body", [b'"a"b,1', b'"a" ,1', b'"a\\"b",1', b'x,"1"0', b'"a""b"c,1', b'"a\n"b,1']
)
def test_text_behind_a_closing_quote_makes_the_body_bad(body: bytes) -> None:
    """Arrow's reader joins it with the value."""
    spec = {"format": "csv", "schema": "name string, n string"}
    rows, bad = decode(spec, [b'"a",1', body, b'x"y",2'])
    assert [row["name"] for row in rows] == ["a", 'x"y"']
    assert [(entry.position, entry.reason) for entry in bad] == [
        (1, "text follows the closing quote of a value")
    ]


def test_backslash_escapes_are_an_option() -> None:
    spec = {"format": "csv", "schema": "name string, n string", "escape": "\\"}
    rows, bad = decode(spec, [rb'"a\"b",1', rb'"a,\\",2', rb"x\,y,3", rb'"a"b,4', rb'"a\",5'])
    assert [row["name"] for row in rows[:3]] == ['a"b', "a,\\", "x,y"]
    assert [entry.position for entry in bad] == [3, 4]
    rows, bad = decode({**spec, "escape": None}, [rb"C:\dir,1"])
    assert (rows[0]["name"], bad) == ("C:\\dir", [])


@pytest.mark.parametrize("others", [[], [b"p,q"], [b'"p",q'], [b"p\\,p,q"]])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (rb"x,y" + b"\\", "at the end escapes nothing"),
        (rb"x,y\\" + b"\\\n", "at the end escapes nothing"),
        (b"x,\\", "at the end escapes nothing"),
        (b'x,"y\\', "at the end escapes nothing"),
        (rb"C:\dir,1", "neither escaped nor before a character that needs it"),
        (rb'x,"\n"', "neither escaped nor before a character that needs it"),
        (rb"\N,1", "neither escaped nor before a character that needs it"),
        (rb'x,"y\"', "the quote of the last value is not closed"),
    ],
)
def test_an_escape_that_escapes_nothing_makes_the_body_bad(
    body: bytes, reason: str, others: list[bytes]
) -> None:
    """Arrow's reader drops it: for others it is a backslash, a line break or no value at all."""
    spec = {"format": "csv", "schema": "name string, n string", "escape": "\\"}
    rows, bad = decode(spec, [*others, body, *others])
    assert [entry.position for entry in bad] == [len(others)]
    assert reason in bad[0].reason
    assert len(rows) == 2 * len(others)


def test_what_needs_an_escape_may_have_one() -> None:
    spec = {"format": "csv", "schema": "name string, n string", "escape": "\\"}
    rows, bad = decode(spec, [rb"a\,b\"c\\,1", b"a\\\nb,2", rb'"\"\,\\",3', rb"x,y\\"])
    assert bad == []
    assert [row["name"] for row in rows] == ['a,b"c\\', "a\nb", '",\\', "x"]
    assert rows[3]["n"] == "y\\"


def test_nanoseconds_are_refused_or_cut() -> None:
    spec = {"format": "csv", "schema": "a timestamp, b timestamp_ntz, c time"}
    fine = b"2026-11-21T08:15:00.123456789Z,1969-12-31 23:59:59.9999999,08:15:00.1234567"
    zeros = b"2026-11-21T08:15:00.123456000Z,2026-11-21 08:15:00.1000000,08:15:00.0000000"
    rows, bad = decode(spec, [fine, zeros])
    assert [row["offset"] for row in rows] == [28]
    assert "set nanoseconds='cut'" in bad[0].reason
    assert rows[0]["a"] == datetime(2026, 11, 21, 8, 15, 0, 123456, UTC)
    rows, bad = decode({**spec, "nanoseconds": "cut"}, [fine, b"2026-11-21T08:15:00.1234567891,,"])
    assert rows[0]["a"] == datetime(2026, 11, 21, 8, 15, 0, 123456, UTC)
    assert rows[0]["b"] == datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001
    assert rows[0]["c"] == time(8, 15, 0, 123456)
    assert len(bad) == 1


def test_times_outside_the_years_that_systems_share_are_bad() -> None:
    spec = {"format": "csv", "schema": "d date, t timestamp"}
    bodies = [
        b"0000-01-01,", b",0001-01-01T00:00:00+01:00", b",9999-12-31T23:30:00-01:00",
        b"0001-01-01,9999-12-31T23:59:59.999999Z",
    ]  # fmt: skip
    rows, bad = decode(spec, bodies)
    assert [row["offset"] for row in rows] == [84]
    assert all("years 1 to 9999" in entry.reason for entry in bad)


def test_an_empty_last_value_is_null_behind_one_in_quotes() -> None:
    spec = {"format": "csv", "schema": "a string, b string, n decimal(5,2)"}
    rows, bad = decode(spec, [b'"x",,', b'"x","",1', b'"x","y",'])
    assert bad == []
    assert [(row["b"], row["n"]) for row in rows] == [(None, None), ("", 1), ("y", None)]
    texts = {"format": "csv", "schema": "a string, b string"}
    for bodies in ([b'"x",'], [b'"x",', b"y,z"], [b"y,z", b'"x",'], [b'"x\ny",']):
        rows, bad = decode(texts, bodies)
        assert ([row["b"] for row in rows if row["a"] != "y"], bad) == ([None], [])
    assert decode(texts, [b"y,\n", b"\n\n"])[1][0].reason == "the body is empty"


@pytest.mark.parametrize("body", [b'1,"', b'1,"x""', b'1,"x\ny', b'"', b'"1","x', b'"1,x\n'])
def test_a_quote_that_is_not_closed_makes_the_body_bad(body: bytes) -> None:
    """DuckDB and Python refuse it, Spark takes the rest: a body that was cut has one, too."""
    spec = {"format": "csv", "schema": "id int, name string"}
    rows, bad = decode(spec, [b'1,"a"', body, b'2,"b"', body])
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, "b")]
    assert [entry.position for entry in bad] == [1, 3]
    assert {entry.reason for entry in bad} == {"the quote of the last value is not closed"}
