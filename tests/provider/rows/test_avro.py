"""Avro data become columns: by full names, and with every value in a column or named."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.provider.rows.decoded import decode
from tubemq_client.errors import ConfigError
from tubemq_provider.rows.decoding import RowDecoder
from tubemq_provider.rows.from_avro import AvroBodies
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
    spec = {"format": "avro", "schemas": {"1": json.dumps(AVRO)}}
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
    """Return the JSON of a record `shop.Order` with these fields."""
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


def test_an_avro_decimal_that_no_column_holds_is_named() -> None:
    schema = avro_record(a={"type": "bytes", "logicalType": "decimal", "precision": 39})
    with pytest.raises(ConfigError, match=r"decimal with precision 39 has no column; 1 to 38"):
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


def avro_field(type_: Any, *values: bytes, **options: Any) -> tuple[list[Any], list[str]]:
    """Decode the field `a` of this type from bodies that are its values; return reasons of bad
    ones, too."""
    spec = {"format": "avro", "schema": avro_record(a=type_), **options}
    rows, bad = decode(spec, list(values))
    return [row["a"] for row in rows], [entry.reason for entry in bad]


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    named = {"name": "X"} if base in ("fixed", "enum") else {}
    return {"type": base, "logicalType": name, **named, **more}


def test_a_uuid_is_its_text_whatever_its_base() -> None:
    text = "12345678-1234-5678-1234-567812345678"
    fixed = bytes.fromhex(text.replace("-", ""))
    other = "ffffffff-0000-4000-8000-0000000000ff"
    raw = bytes.fromhex(other.replace("-", ""))
    assert avro_field(logical("fixed", "uuid", size=16), fixed, raw) == ([text, other], [])
    upper = text.upper().encode()
    assert avro_field(logical("string", "uuid"), b"\x48" + upper) == ([upper.decode()], [])
    assert avro_field(logical("fixed", "uuid", size=2), b"ab") == ([b"ab"], [])


@pytest.mark.parametrize(
    ("type_", "body", "value"),
    [
        (logical("int", "timestamp-millis"), b"\xf0\xd1\xd0\x01", 1_709_176),
        (logical("int", "decimal", precision=5, scale=2), b"\x0a", 5),
        (logical("long", "date"), b"\x0a", 5),
        (logical("bytes", "uuid"), b"\x02x", b"x"),
        (logical("string", "date"), b"\x02x", "x"),
        (logical("string", "timestamp-micros"), b"\x02x", "x"),
        (logical("string", "decimal", precision=5, scale=2), b"\x021", "1"),
        (logical("double", "date"), b"\0" * 8, 0.0),
        (logical("boolean", "time-millis"), b"\1", True),
        (logical("enum", "uuid", symbols=["A", "B"]), b"\2", "B"),
        (logical("long", "time-millis"), b"\2", 1),
        (logical("int", "time-micros"), b"\2", 1),
        (logical("bytes", "decimal", precision=3, scale=5), b"\x02\x05", b"\x05"),
        (logical("bytes", "decimal", precision=0), b"\x02\x05", b"\x05"),
        (logical("bytes", "decimal"), b"\x02\x05", b"\x05"),
        (logical("bytes", "decimal", scale=2), b"\x02\x05", b"\x05"),
        (logical("bytes", "decimal", precision=None), b"\x02\x05", b"\x05"),
        (logical("bytes", "decimal", precision="9"), b"\x02\x05", b"\x05"),
        (logical("bytes", "decimal", precision=9, scale=-2), b"\x02\x05", b"\x05"),
        (logical("fixed", "decimal", size=1), b"\x05", b"\x05"),
        (logical("fixed", "decimal", size=1, precision=3), b"\x05", b"\x05"),
        (logical("int", "io.debezium.time.Date"), b"\2", 1),
        (logical("string", "iso-datetime"), b"\x02x", "x"),
        (logical("fixed", "duration", size=12), b"abcdefghijkl", b"abcdefghijkl"),
        (logical("bytes", "big-decimal"), b"\x02x", b"x"),
    ],
)
def test_a_logical_type_that_does_not_count_is_its_base(
    type_: Any, body: bytes, value: Any
) -> None:
    assert avro_field(type_, body) == ([value], [])
    assert avro_field(["null", type_], b"\2" + body, b"\0") == ([value, None], [])


def test_times_of_day_are_times_and_nanoseconds_are_kept() -> None:
    millis, micros = (
        avro_field(logical("int", "time-millis"), b"\x02", b"\xfe\xef\xb2\x52", b"\x01"),
        avro_field(logical("long", "time-micros"), b"\x02", b"\x80\x80\xbb\xdd\x83\x05"),
    )
    assert millis[0] == [time(0, 0, 0, 1000), time(23, 59, 59, 999000)]
    assert "time of day" in millis[1][0]
    assert micros[0] == [time(0, 0, 0, 1)]
    assert len(micros[1]) == 1
    number = avro_field(logical("int", "time-millis"), b"\x02", time_of_day="number")
    assert number == ([1], [])
    nanos = logical("long", "timestamp-nanos")
    body = b"\xf6\x03"
    assert avro_field(nanos, body) == ([251], [])
    cut = datetime(1970, 1, 1, tzinfo=UTC)
    assert avro_field(nanos, body, nanoseconds="cut") == ([cut], [])
    before = datetime(1969, 12, 31, 23, 59, 59, 999999)  # noqa: DTZ001 - without a zone
    local = logical("long", "local-timestamp-nanos")
    assert avro_field(local, b"\1", nanoseconds="cut") == ([before], [])


@pytest.mark.parametrize(
    ("type_", "body", "reason"),
    [
        (["null", "int"], b"\x01\x02", "the member of a union -1 is not one of 2"),
        (["null", "int"], b"\x04\x02", "the member of a union 2 is not one of 2"),
        (logical("enum", "none", symbols=["A", "B"]), b"\x01", "symbol -1 is not one of 2"),
        ("boolean", b"\x02", "a boolean is 2, neither 0 nor 1"),
        ("int", b"\x80" * 5 + b"\0", "a number has more than 5 bytes"),
        ("int", b"\xff\xff\xff\xff\x7f", "a number has more than 32 bits"),
        ("long", b"\x80" * 10 + b"\0", "a number has more than 10 bytes"),
        ("long", b"\xff" * 9 + b"\x7f", "a number has more than 64 bits"),
        ("string", b"\x01", "a length is negative (-1)"),
        ("string", b"\x02\xff", "'utf-8' codec can't decode"),
        ("bytes", b"\x08ab", "2 bytes are missing"),
        ("double", b"abc", "bytes are missing"),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x00", "bytes are missing"),
        ({"type": "array", "items": "int"}, b"\x03\x06\x02\x02\x00", "another size"),
        ({"type": "map", "values": "int"}, b"\x04\x02k\x02\x02k\x04\x00", "a key twice"),
        (logical("bytes", "decimal", precision=3), b"\x04\x7f\xff", "more digits than"),
        (logical("bytes", "decimal", precision=3), b"\x00", "a decimal has no byte"),
        (logical("int", "date"), b"\xfe\xff\xff\xff\x0f", "years 1 to 9999"),
        (logical("long", "timestamp-millis"), b"\xfe" + b"\xff" * 8 + b"\1", "years 1 to 9999"),
    ],
)
def test_a_damaged_value_is_bad_and_leaves_its_neighbours_alone(
    type_: Any, body: bytes, reason: str
) -> None:
    """Lenient readers make values of most of these."""
    schema = avro_record(before="string", a=type_)
    bodies = [b"\x02x" + body] * 2
    rows, bad = decode({"format": "avro", "schema": schema}, bodies)
    assert rows == []
    assert [entry.position for entry in bad] == [0, 1]
    assert reason in bad[0].reason


def test_a_field_without_a_column_is_named_and_is_json_or_left_out_on_request() -> None:
    tree = {
        "type": "record", "name": "Tree",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "next", "type": ["null", "Tree"]},
            {"name": "one", "type": ["null", "int", "string"]},
        ],
    }  # fmt: skip
    schema = avro_record(id="long", tree=tree, none="null", last="string")
    spec = {"format": "avro", "schema": schema}
    with pytest.raises(ConfigError) as caught:
        RowDecoder(DecodeSpec.parse(spec), RECORDS)
    for name in ("tree.next", "tree.one", "none"):
        assert f"field '{name}': " in str(caught.value)
    assert "unsupported_fields to 'json'" in str(caught.value)
    body = b"\x0e" + b"\x02" + b"\x02\x04\x00\x04\x02y" + b"\x02\x06" + b"\x02z"
    rows, bad = decode({**spec, "unsupported_fields": "leave_out"}, [body, body[:-1]])
    assert rows == [{"offset": 0, "id": 7, "tree": {"n": 1}, "last": "z"}]
    assert len(bad) == 1
    rows, _ = decode({**spec, "unsupported_fields": "json"}, [body])
    assert rows[0]["tree"]["next"] == '{"n": 2, "next": null, "one": "y"}'
    assert (rows[0]["tree"]["one"], rows[0]["none"]) == ("3", "null")


VERSIONS = {
    "1": {"a": "int", "b": "int"},
    "2": {"b": "int", "a": "int"},
    "3": {"b": "int", "c": "string", "a": "int"},
}


def test_framed_bodies_are_read_by_the_schema_of_their_id() -> None:
    schemas = {id_: avro_record(**fields) for id_, fields in VERSIONS.items()}
    wide = json.loads(avro_record(a="long", b="int", c="string"))
    wide["fields"][2]["default"] = "none"
    spec = {"format": "avro", "schema": json.dumps(wide), "schemas": schemas}
    frame = b"\0\0\0\0"
    bodies = [
        frame + b"\1\x02\x04", frame + b"\2\x04\x02", frame + b"\3\x04\x02x\x02",
        frame + b"\4\x02\x04", b"\x02\x04", frame + b"\2\x04", frame + b"\1\x06\x08",
    ]  # fmt: skip
    rows, bad = decode(spec, bodies)
    assert [(row["offset"] // 28, row["a"], row["b"], row["c"]) for row in rows] == [
        (0, 1, 2, "none"), (1, 1, 2, "none"), (2, 1, 2, "x"), (6, 3, 4, "none"),
    ]  # fmt: skip
    assert [entry.position for entry in bad] == [3, 4, 5]
    assert "schema id 4 is none of 'schemas' (1, 2, 3)" in bad[0].reason
    assert "does not begin with the frame" in bad[1].reason
    assert DecodeSpec.parse(DecodeSpec.parse(spec).to_json()) == DecodeSpec.parse(spec)


def test_schemas_that_do_not_fit_the_columns_are_named() -> None:
    spec = {
        "format": "avro",
        "schema": avro_record(a="int", b="string"),
        "schemas": {"1": avro_record(a="long", b="string"), "2": avro_record(a="int")},
    }
    with pytest.raises(ConfigError) as caught:
        RowDecoder(DecodeSpec.parse(spec), RECORDS)
    assert "schemas: 1: field 'a' is int64, and int32 in 'schema'" in str(caught.value)
    assert "schemas: 2: has no field 'b', which has no default" in str(caught.value)


@pytest.mark.parametrize("then", [False, True])
def test_framed_bodies_need_the_schemas_of_their_ids(then: bool) -> None:
    """Version 2 swaps two fields; a task whose bodies are all of version 2 would swap values."""
    schema = avro_record(a="int", b="int")
    spec: dict[str, Any] = {"format": "avro", "schema": schema, "skip_bytes": 5}
    given = {"format": "tdmsg", "then": spec} if then else spec
    assert "set schemas={id: schema}" in DecodeSpec.judge(given)[0]
    with pytest.raises(ConfigError, match="skip_bytes: 5 bytes before Avro are the frame"):
        DecodeSpec.parse(given)
    with pytest.raises(ConfigError, match="skip_bytes: 5 bytes before Avro are the frame"):
        RowDecoder(DecodeSpec("avro", schema=schema, skip_bytes=5), RECORDS)


@pytest.mark.parametrize("more", [{}, {"skip_bytes": 5}, {"schema": avro_record(a="int", b="int")}])
def test_one_id_is_read_by_its_schema_and_every_other_is_bad(more: dict[str, Any]) -> None:
    spec = {"format": "avro", "schemas": {"1": avro_record(a="int", b="int")}, **more}
    rows, bad = decode(spec, [b"\0\0\0\0\2\x04\x02"])
    assert (rows, bad[0].reason) == ([], "schema id 2 is none of 'schemas' (1)")
    bodies = [b"\0\0\0\0\1\x02\x04", b"\0\0\0\0\2\x04\x02", b"\0\0\0\0\1\x02\x04", b"\0\0"]
    rows, bad = decode(spec, [*bodies, b"\1\0\0\0\1\x02\x04"])
    assert [(row["offset"], row["a"], row["b"]) for row in rows] == [(0, 1, 2), (56, 1, 2)]
    assert [entry.position for entry in bad] == [1, 3, 4]


def test_columns_of_several_ids_need_a_schema() -> None:
    schemas = {"1": avro_record(a="int"), "2": avro_record(a="long")}
    spec = {"format": "avro", "schemas": schemas}
    assert DecodeSpec.judge(spec) == ["schema: is needed by format 'avro' (or 'schema_file')"]
    assert "schemas: 2: not valid JSON" in DecodeSpec.judge({**spec, "schemas": {"2": "{"}})[0]


_FINGERPRINT, _OTHER = "5240ffea57e2123a", "a4690e8ffe767027"


def test_a_single_object_of_another_schema_is_bad() -> None:
    """The fingerprints are those of Avro's Java library."""
    one, other = avro_record(a="int", b="int"), avro_record(b="int", a="int")
    mark, wrong = (b"\xc3\x01" + bytes.fromhex(text) for text in (_FINGERPRINT, _OTHER))
    spec = {"format": "avro", "schema": one, "skip_bytes": 10}
    rows, bad = decode(spec, [mark + b"\2\4", wrong + b"\2\4", b"h" * 10 + b"\2\4"])
    assert [(row["offset"], row["a"], row["b"]) for row in rows] == [(0, 1, 2), (56, 1, 2)]
    assert f"fingerprint {_OTHER}, 'schema' {_FINGERPRINT}" in bad[0].reason
    rows, bad = decode({**spec, "schema": other}, [mark + b"\2\4", wrong + b"\2\4"])
    assert [(row["offset"], row["a"], row["b"]) for row in rows] == [(28, 2, 1)]


def test_a_default_is_a_value_of_its_type() -> None:
    """Bytes are written as U+0000 to U+00FF, a record's missing members have their own defaults."""
    inner = {
        "type": "record", "name": "Inner", "fields": [
            {"name": "q", "type": "int"}, {"name": "w", "type": "string", "default": "d"},
        ],
    }  # fmt: skip
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    cases: dict[str, tuple[Any, Any, Any]] = {
        "a": ("bytes", "\u00ff\u0001", b"\xff\x01"),
        "b": (logical("fixed", "decimal", size=2, precision=4, scale=2), "\0{", Decimal("1.23")),
        "c": (logical("long", "timestamp-millis"), 1000, at),
        "d": (logical("int", "time-millis"), 1000, time(0, 0, 1)),
        "e": (inner, {"q": 1}, {"q": 1, "w": "d"}),
        "f": (["null", "int"], None, None),
        "g": (["int", "null"], 4, 4),
        "h": ({"type": "map", "values": {"type": "array", "items": "bytes"}}, {"k": ["\u00fe"]},
              [("k", [b"\xfe"])]),
        "i": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        "j": ("double", 2, 2.0),
    }  # fmt: skip
    fields: list[dict[str, Any]] = [{"name": "id", "type": "int"}]
    fields += [
        {"name": name, "type": type_, "default": value} for name, (type_, value, _) in cases.items()
    ]
    reader = json.dumps({"type": "record", "name": "Order", "fields": fields})
    spec = {"format": "avro", "schema": reader, "schemas": {"7": avro_record(id="int")}}
    rows, bad = decode(spec, [b"\0\0\0\0\7\2"])
    assert bad == []
    assert rows == [{"offset": 0, "id": 1, **{name: case[2] for name, case in cases.items()}}]


@pytest.mark.parametrize(
    ("type_", "default"), [("int", 2**31), ("bytes", "\u0100"), ("float", 1e39)]
)
def test_a_default_of_another_type_is_refused(type_: str, default: Any) -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": type_, "default": default}]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    spec = {"format": "avro", "schema": schema, "schemas": {"7": avro_record(a="int")}}
    with pytest.raises(ConfigError, match="schemas: 7: has no field 'b', whose default"):
        RowDecoder(DecodeSpec.parse(spec), RECORDS)


def test_a_field_is_found_by_its_alias_before_its_default_counts() -> None:
    fields = [{"name": "new", "type": ["null", "long"], "aliases": ["old"], "default": None}]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    schemas = {"1": avro_record(old="int"), "2": avro_record(other="int")}
    spec = {"format": "avro", "schema": schema, "schemas": schemas}
    rows, bad = decode(spec, [b"\0\0\0\0\1\6", b"\0\0\0\0\2\6"])
    assert ([row["new"] for row in rows], bad) == ([3, None], [])


def test_a_long_that_is_read_as_a_double_is_the_nearest_one() -> None:
    schemas = {"1": avro_record(a="long")}
    spec = {"format": "avro", "schema": avro_record(a="double"), "schemas": schemas}
    body = avro_bodies(schemas["1"], {"a": 2**53 + 1})[0]
    rows, bad = decode(spec, [b"\0\0\0\0\1" + body])
    assert ([row["a"] for row in rows], bad) == ([float(2**53)], [])


def enum_of(name: str = "Kind", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": ["A", "B"], **more}


def fixed_of(size: int, name: str = "Key") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (fixed_of(4), fixed_of(3), "it has 3 bytes, and 4 in 'schema'"),
        (fixed_of(4), fixed_of(4, "Other"), "the fixed 'shop.Other', and 'shop.Key'"),
        (fixed_of(4), "bytes", "it is bytes, and fixed"),
        ("bytes", fixed_of(4), "it is fixed, and bytes"),
        ("string", enum_of(), "it is enum, and string"),
        (enum_of(), enum_of("Sort"), "the enum 'shop.Sort', and 'shop.Kind'"),
        ({"type": "array", "items": fixed_of(4)}, {"type": "array", "items": fixed_of(3)}, "3 byt"),
        ({"type": "map", "values": "int"}, {"type": "map", "values": ["null", "int"]}, "be null"),
        (
            {"type": "array", "items": enum_of()},
            {"type": "array", "items": enum_of(symbols=["A", "C"])},
            "its symbol 'C' is not in 'schema'",
        ),
        ("string", ["int", "string"], "it is a union of 2 types, of 1"),
    ],
)
def test_types_that_only_look_alike_in_columns_are_refused(
    reader: Any, writer: Any, why: str
) -> None:
    spec = {
        "format": "avro",
        "schema": avro_record(a=reader),
        "schemas": {"7": avro_record(a=writer)},
        "unsupported_fields": "json",
    }
    with pytest.raises(ConfigError, match=f"schemas: 7: field 'a': .*{why}"):
        RowDecoder(DecodeSpec.parse(spec), RECORDS)


def test_named_types_are_the_same_by_alias_and_without_namespace() -> None:
    schemas = {"7": avro_record(a=fixed_of(2, "old.Mark"), b=enum_of("x.Kind"))}
    reader = avro_record(a={**fixed_of(2), "aliases": ["Mark"]}, b=enum_of())
    spec = {"format": "avro", "schema": reader, "schemas": schemas}
    rows, bad = decode(spec, [b"\0\0\0\0\7ab\2"])
    assert (rows, bad) == ([{"offset": 0, "a": b"ab", "b": "B"}], [])


def test_a_null_is_bad_where_the_reader_has_none() -> None:
    schemas = {"7": avro_record(a=["null", "int"])}
    spec = {"format": "avro", "schema": avro_record(a="int"), "schemas": schemas}
    rows, bad = decode(spec, [b"\0\0\0\0\7\2\6", b"\0\0\0\0\7\0", b"\0\0\0\0\7\2\4"])
    assert [(row["offset"], row["a"]) for row in rows] == [(0, 3), (56, 2)]
    assert [(entry.position, entry.reason) for entry in bad] == [
        (1, "field 'a' is null, and in 'schema' it is not")
    ]


@pytest.mark.parametrize("default", [None, "B"])
def test_a_symbol_that_the_reader_lacks_is_its_default_or_bad(default: str | None) -> None:
    schemas = {"7": avro_record(a=enum_of(symbols=["C", "A"]))}
    own = enum_of() if default is None else enum_of(default=default)
    spec = {"format": "avro", "schema": avro_record(a=own), "schemas": schemas}
    rows, bad = decode(spec, [b"\0\0\0\0\7\0", b"\0\0\0\0\7\2"])
    if default:
        assert ([row["a"] for row in rows], bad) == (["B", "A"], [])
    else:
        assert [(row["offset"], row["a"]) for row in rows] == [(28, "A")]
        assert [entry.reason for entry in bad] == ["field 'a': 'C' is no symbol in 'schema'"]


def test_a_record_with_a_field_twice_is_refused() -> None:
    field = {"name": "a", "type": "int"}
    schema = json.dumps({"type": "record", "name": "Order", "fields": [field, field]})
    with pytest.raises(ConfigError, match="record 'Order' has the field 'a' twice"):
        RowDecoder(DecodeSpec.parse({"format": "avro", "schema": schema}), RECORDS)


def test_a_schema_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    """JSON keeps the last one: a field of `int` was read as `string`."""
    twice = '{"type":"record","name":"a","fields":[{"name":"x","type":"int","type":"string"}]}'
    (tmp_path / "a.avsc").write_text(twice)
    for given in ({"schema": twice}, {"schema_file": str(tmp_path / "a.avsc")}):
        with pytest.raises(ConfigError, match="'type' occurs twice"):
            decode({"format": "avro", **given}, [b"\x04ab"])
    assert DecodeSpec.judge({"format": "avro", "schemas": {"1": twice}})


@pytest.mark.parametrize("written", ["bytes", "boolean", "long"])
def test_a_member_of_another_type_is_refused_behind_one_of_the_same_type(written: str) -> None:
    def schema(second: str) -> str:
        members = [{"name": "x", "type": "string"}, {"name": "y", "type": second}]
        row = {"type": "record", "name": "R", "fields": members}
        other = {"type": "record", "name": "S", "fields": [{"name": "k", "type": "long"}]}
        fields = [{"name": "u", "type": [row, other]}]
        return json.dumps({"type": "record", "name": "T", "fields": fields})

    given = {
        "schema": schema("string"),
        "schemas": {"1": schema(written)},
        "unsupported_fields": "json",
    }
    with pytest.raises(ConfigError, match=f"member 'y': it is {written}, and string"):
        AvroBodies(DecodeSpec.parse({"format": "avro", "skip_bytes": 5, **given}))
