"""A schema is kept only if later windows can read it, and preserves every digit of the first
records."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.provider.rows.decoded import decode
from tubemq_client.errors import ConfigError
from tubemq_provider.rows.inference import infer
from tubemq_provider.rows.spec import DecodeSpec

pa = pytest.importorskip("pyarrow")


def inferred(path: Path, *bodies: bytes) -> DecodeSpec:
    """Return the spec of a window with these first records."""
    spec = DecodeSpec.parse({"format": "json", "schema_file": str(path)})
    return infer(spec, lambda: pa.array(list(bodies), pa.binary()))


def again(path: Path) -> DecodeSpec:
    """Return the spec of a later window."""
    return DecodeSpec.parse({"format": "json", "schema_file": str(path)})


@pytest.mark.parametrize(
    "bodies",
    [
        [b'{"id": 1, "tags": {}}'],
        [b'{"id": 1, "tags": [{}]}', b'{"tags": []}'],
        [b'{"id": 1, "tags": {"a": {}, "b": [{"c": {}}]}}'],
        [b'{"id": 1, "tags": null}'],
    ],
)
def test_fields_that_never_held_a_value_are_left_out(tmp_path: Path, bodies: list[bytes]) -> None:
    first = inferred(tmp_path / "orders.ddl", *bodies)
    assert first.schema == "`id` bigint"
    assert again(tmp_path / "orders.ddl").schema == first.schema
    rows, bad = decode({"format": "json", "schema": first.schema}, bodies)
    assert (rows[0]["id"], bad) == (1, [])


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"": 1, "id": 2}', "a field of the object has no name"),
        (b'{"s": {"t": {"": 1}}}', "a field of s.t has no name"),
        (b'{"id": 1, "ID": 2}', "'id' and 'ID' are one name"),
        (b'{"s": [{"id": 1, "Id": 2}]}', "'s[].id' and 's[].Id' are one name"),
        (b'{"a": %d}' % 10**40, "'a' has whole numbers of 41 digits"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "at most 64 types in each other"),
        (b'{"a": {}}', "none of them is a JSON object with a field that has a value"),
        (b"[1]", "none of them is a JSON object with a field that has a value"),
    ],
)
def test_a_schema_that_could_not_be_read_again_is_not_kept(
    tmp_path: Path, body: bytes, sentence: str
) -> None:
    path = tmp_path / "orders.ddl"
    with pytest.raises(ConfigError) as caught:
        inferred(path, body)
    assert sentence in str(caught.value)
    assert f"schema_file: {path} cannot be made from them; write the schema into it" in str(
        caught.value
    )
    assert not path.exists()
    path.write_text("a bigint")
    assert inferred(path, body).schema == "a bigint"


@pytest.mark.parametrize(
    ("numbers", "type_", "cells"),
    [
        (["1", str(2**64 - 1)], "decimal(20,0)", [Decimal(1), Decimal(2**64 - 1)]),
        (["1", str(-(2**63) - 1)], "decimal(20,0)", [Decimal(1), Decimal(-(2**63) - 1)]),
        (["1", str(10**30)], "decimal(38,0)", [Decimal(1), Decimal(10**30)]),
        (["1", str(2**63 - 1)], "bigint", [1, 2**63 - 1]),
        (["1", "1.5"], "double", [1.0, 1.5]),
        (["1e30", str(10**30)], "double", [1e30, 1e30]),
    ],
)
def test_whole_numbers_beyond_bigint_keep_their_digits(
    tmp_path: Path, numbers: list[str], type_: str, cells: list[Any]
) -> None:
    bodies = [f'{{"id": {n}, "s": [{{"x": {n}}}]}}'.encode() for n in numbers]
    found = inferred(tmp_path / "orders.ddl", *bodies)
    assert found.schema == f"`id` {type_}, `s` array<struct<`x`: {type_}>>"
    rows, bad = decode({"format": "json", "schema": found.schema}, bodies)
    assert bad == []
    assert [row["id"] for row in rows] == cells
    assert [row["s"] for row in rows] == [[{"x": cell}] for cell in cells]


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_a_schema_file_that_holds_none_is_named(tmp_path: Path, format_: str) -> None:
    path = tmp_path / "orders.ddl"
    spec = DecodeSpec("json", schema_file=str(path))
    path.write_text("`tags` struct<>")
    with pytest.raises(ConfigError, match=r"schema_file: .*orders\.ddl: .*expected a name"):
        DecodeSpec.parse({"format": format_, "schema_file": str(path)})
    with pytest.raises(ConfigError, match=r"schema_file: .*orders\.ddl: .*expected a name"):
        infer(spec, lambda: pa.array([], pa.binary()))


@pytest.mark.parametrize(("begin", "end"), [(b'{"a":', b"}"), (b'{"a":[[', b"]]}")])
def test_a_record_that_nests_without_an_end_ends_no_process(
    tmp_path: Path, begin: bytes, end: bytes
) -> None:
    path = tmp_path / "orders.ddl"
    with pytest.raises(ConfigError, match="at most 64 types in each other"):
        inferred(path, b'{"id": 1}', begin * 50_000 + b"1" + end * 50_000)
    assert not path.exists()
    assert inferred(
        path, b'{"id": 1}', b'{"s": "' + begin[:1] * 100 + b'"}', begin * 100
    ).schema == ("`id` bigint, `s` string")
