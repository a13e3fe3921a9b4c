"""Avro data become columns: by full names, and with every value in a column or named."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.provider.rows.decoded import decode
from tubemq_client.errors import ConfigError
from tubemq_provider.rows.decoding import RowDecoder
from tubemq_provider.rows.plain import decoded_rows
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.tubemq.columns import RECORDS

pa = pytest.importorskip("pyarrow")

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}


def test_avro_data_are_decoded_behind_a_registry_header() -> None:
    fastavro = pytest.importorskip("fastavro")
    at = datetime(2026, 11, 21, 8, 15, tzinfo=UTC)
    key = "12345678-1234-5678-1234-567812345678"
    datum = {"id": 5, "note": None, "at": at, "tags": {"a": 1}, "key": key, "kind": "B"}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), datum)
    sound = b"\0\0\0\0\1" + stream.getvalue()
    spec = {"format": "avro", "schema": json.dumps(AVRO), "skip_bytes": 5}
    rows, bad = decode(spec, [sound, sound + b"x", sound[:-3], b"", sound])
    assert rows[0] == {"offset": 0, **datum, "tags": [("a", 1)]}
    assert [row["offset"] for row in rows] == [0, 112]
    assert [entry.position for entry in bad] == [1, 2, 3]
    assert "1 bytes are left" in bad[0].reason


def test_an_avro_value_that_its_column_cannot_hold_is_bad_by_itself() -> None:
    fastavro = pytest.importorskip("fastavro")
    decimal: dict[str, Any] = {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": 4,
        "scale": 2,
    }
    fields = [{"name": "id", "type": "int"}, {"name": "price", "type": decimal}]
    wider = {**decimal, "precision": 30}
    wide = [{"name": "id", "type": "long"}, {"name": "price", "type": wider}]
    values = [(1, "1.25"), (2, "123456.25"), (2**40, "1.25"), (4, "-99.99")]
    bodies = [b""]
    for number, price in values:
        stream = io.BytesIO()
        schema = {"type": "record", "name": "Order", "fields": wide}
        datum = {"id": number, "price": Decimal(price)}
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), datum)
        bodies.append(stream.getvalue())
    document = {"type": "record", "name": "Order", "fields": fields}
    rows, bad = decode({"format": "avro", "schema": json.dumps(document)}, bodies)
    assert [(row["offset"], row["id"]) for row in rows] == [(28, 1), (112, 4)]
    assert [row["price"] for row in rows] == [Decimal("1.25"), Decimal("-99.99")]
    assert [entry.position for entry in bad] == [0, 2, 3]
    assert "precision" in bad[1].reason


def avro_record(**types: Any) -> str:
    """The JSON of a record `shop.Order` with these fields."""
    fields = [{"name": name, "type": type_} for name, type_ in types.items()]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


def avro_bodies(schema: str, *data: dict[str, Any]) -> list[bytes]:
    fastavro = pytest.importorskip("fastavro")
    parsed, bodies = fastavro.parse_schema(json.loads(schema)), []
    for datum in data:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, datum)
        bodies.append(stream.getvalue())
    return bodies


def test_one_simple_name_in_two_avro_namespaces_is_two_types() -> None:
    def item(name: str, type_: Any, **more: str) -> dict[str, Any]:
        return {
            "type": "record", "name": "Item", "fields": [{"name": name, "type": type_}], **more
        }  # fmt: skip

    schema = avro_record(
        first=item("p", "int"),
        second=item("q", ["null", "int"], namespace="other"),
        third="Item",
        fourth={"type": "array", "items": "other.Item"},
    )
    datum = {"first": {"p": 1}, "second": {"q": 2}, "third": {"p": 3}, "fourth": [{"q": 4}]}
    rows, bad = decode({"format": "avro", "schema": schema}, avro_bodies(schema, datum))
    assert bad == []
    assert rows == [{"offset": 0, **datum}]


def test_an_avro_decimal_that_is_fixed_can_be_used_again_by_its_name() -> None:
    price = {
        "type": "fixed", "name": "Price", "size": 8,
        "logicalType": "decimal", "precision": 10, "scale": 2,
    }  # fmt: skip
    schema = avro_record(price=price, discount=["null", "Price"])
    datum = {"price": Decimal("12.50"), "discount": Decimal("0.75")}
    rows, bad = decode({"format": "avro", "schema": schema}, avro_bodies(schema, datum))
    assert (rows, bad) == ([{"offset": 0, **datum}], [])


@pytest.mark.parametrize("precision", [{"precision": 39}, {}])
def test_an_avro_decimal_that_no_column_holds_is_named(precision: dict[str, int]) -> None:
    schema = avro_record(a={"type": "bytes", "logicalType": "decimal", **precision})
    with pytest.raises(
        ConfigError, match=r"decimal with precision (39|None) has no column; 1 to 38"
    ):
        RowDecoder(DecodeSpec.parse({"format": "avro", "schema": schema}), RECORDS)


def test_a_record_without_fields_is_named_when_the_schema_is_read() -> None:
    nothing = {"type": "record", "name": "Nothing", "fields": []}
    for schema in (
        avro_record(a=["null", nothing]),
        avro_record(a={"type": "array", "items": nothing}),
        json.dumps(nothing),
    ):
        with pytest.raises(ConfigError, match=r"record '(shop\.)?Nothing' has no fields"):
            RowDecoder(DecodeSpec.parse({"format": "avro", "schema": schema}), RECORDS)


def test_a_value_that_no_column_holds_makes_the_record_bad_and_is_not_lost() -> None:
    schema = pa.schema([("s", pa.struct([("p", pa.int32())]))])
    values: list[dict[str, Any]] = [{"s": {"p": 1}}, {"s": {"q": 2}}, {"s": None, "t": 3}]
    found = decoded_rows(values, [0, 1, 2], [], schema)
    assert found.rows.to_pylist() == [{"s": {"p": 1}}]
    assert [(one.index, one.reason) for one in found.bad] == [
        (1, "no column holds 'q', only p do"),
        (2, "no column holds 't', only s do"),
    ]
