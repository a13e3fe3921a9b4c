"""JSON values with a common convention: bytes, nanoseconds, times of day."""

from __future__ import annotations

from datetime import UTC, datetime, time

import pytest

from tests.provider.rows.decoded import decode

pytest.importorskip("pyarrow")


def test_bytes_are_base64_as_other_writers_have_them() -> None:
    spec = {"format": "json", "schema": "b binary, l array<struct<b: binary>>"}
    bodies = [
        b'{"b":"aGk="}', b'{"b":""}', b'{"l":[{"b":"/+8="},null,{"b":null}]}',
        b'{"b":"aGk"}', b'{"b":"hi there"}', b'{"b":"_-8="}', b'{"b":5}',
    ]  # fmt: skip
    rows, bad = decode(spec, bodies)
    assert [row["b"] for row in rows] == [b"hi", b"", None]
    assert rows[2]["l"] == [{"b": b"\xff\xef"}, None, {"b": None}]
    assert [entry.position for entry in bad] == [3, 4, 5, 6]
    assert "no Base64, in which JSON holds bytes" in bad[0].reason


@pytest.mark.parametrize("zone", ["Z", "+02:00", ""])
def test_nanoseconds_are_refused_or_cut(zone: str) -> None:
    spec = {"format": "json", "schema": "t timestamp, l array<timestamp>"}
    text = f"2026-11-21T08:15:00.123456%s{zone}"
    fine, zeros, none = (f'{{"t": "{text % end}"}}'.encode() for end in ("789", "000", ""))
    nested = f'{{"l": ["{text % "9"}", null]}}'.encode()
    rows, bad = decode(spec, [fine, zeros, none, nested])
    at = datetime(2026, 11, 21, 6 if zone == "+02:00" else 8, 15, 0, 123456, UTC)
    assert [(row["offset"], row["t"]) for row in rows] == [(28, at), (56, at)]
    assert "set nanoseconds='cut'" in bad[0].reason
    rows, bad = decode({**spec, "nanoseconds": "cut"}, [fine, zeros, none, nested])
    assert ([row["t"] for row in rows], bad) == ([at, at, at, None], [])
    assert rows[3]["l"] == [at, None]


def test_times_of_day_and_years() -> None:
    spec = {"format": "json", "schema": "c time, d date, t timestamp"}
    bodies = [
        b'{"c": "08:15:00.25"}', b'{"c": "08:15"}', b'{"c": 5}', b'{"c": "24:00:00"}',
        b'{"d": "0000-01-01"}', b'{"t": "9999-12-31T23:30:00-01:00"}',
    ]  # fmt: skip
    rows, bad = decode(spec, bodies)
    assert [row["c"] for row in rows] == [time(8, 15, 0, 250_000), time(8, 15)]
    assert [entry.position for entry in bad] == [2, 3, 4, 5]
