"""Delimited text becomes columns, each body by itself."""

from __future__ import annotations

from datetime import UTC, datetime
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
    assert [row["id"] for row in rows] == [1, 2, 3, 6, 7]
    assert [row["p"] for row in rows] == [
        Decimal("2.50"),
        None,
        None,
        Decimal("1.00"),
        Decimal("1.00"),
    ]
    assert [row["at"] for row in rows] == [at, at, None, None, None]
    assert [row["n"] for row in rows] == ["a", "b", "x|y\nz", "open", "last"]
    assert [entry.position for entry in bad] == [3, 4, 5]


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
