"""CSV bodies against an oracle of Python's own types and grammar, and against DuckDB."""

from __future__ import annotations

import csv
import io
from random import Random

import pytest

from tests.provider.rows.decoded import decode
from tests.provider.rows.differential.csv import BAD, case, expected, run

pytest.importorskip("pyarrow")


def test_csv_is_read_by_its_grammar_or_refused() -> None:
    count, problems = run(4_000, 1, None)
    assert problems[:3] == []
    assert count >= 4_000


def test_rows_that_python_s_reader_splits_are_split_alike() -> None:
    """Python's module in strict mode refuses text after a closing quote as the product does."""
    random, compared = Random(2), 0
    for _ in range(1_500):
        types, body = case(random)
        types = ["string"] * len(types)
        found = expected(types, body, "fail")
        text = body.decode().lstrip("\ufeff")
        try:
            rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        except csv.Error:
            assert found is BAD or text.count('"') % 2
            continue
        if found is not BAD and len(rows) == 1:
            assert [cell or "" for cell in found] == rows[0]
            compared += 1
    assert compared > 700


def test_values_that_duckdb_reads_too_are_the_same() -> None:
    """DuckDB casts more (hexadecimal and rounded numbers, other times) and refuses other things;
    values that both read are equal, except for the last bit of doubles."""
    duckdb = pytest.importorskip("duckdb")
    words = {"timestamp": "timestamptz", "timestamp_ntz": "timestamp", "double": "double"}
    names = [*words, "tinyint", "smallint", "int", "bigint", "date", "boolean"]
    random, compared = Random(3), 0
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name in names:
            texts = {_one(random) for _ in range(400)}
            bodies = [text.encode() for text in texts]
            rows, _ = decode({"format": "csv", "schema": f"c {name}"}, bodies)
            sql = f"select try_cast(? as {words.get(name, name)})::varchar"
            for row in rows:
                text = bodies[row["offset"] // 28].decode()
                if row["c"] is None or "nan" in text.lower():
                    continue
                said = connection.execute(sql, [text.strip(" \t")]).fetchone()
                ours = connection.execute(
                    f"select (?::{words.get(name, name)})::varchar", [row["c"]]
                ).fetchone()
                if said is not None and said[0] is not None:
                    assert said == ours, (name, text, row["c"])
                    compared += 1
    assert compared > 100


def _one(random: Random) -> str:
    while True:
        types, body = case(random)
        text = body.decode().lstrip("\ufeff").strip("\r\n")
        if len(types) == 1 and text and not any(sign in text for sign in ',"\n\r'):
            return text
