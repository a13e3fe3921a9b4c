"""Bodies become columns: every record is a row, several, or reported as bad with its reason."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provider.rows.decoded import batch, decode
from tubemq_client.errors import ConfigError, CorruptRecord
from tubemq_client.model import CorruptRecords
from tubemq_client.tdmsg import TDMsgBuilder
from tubemq_provider.rows.decoding import BadRecord, BadRecords, RowDecoder
from tubemq_provider.rows.from_json import infer_schema
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.windows.errors import CountMismatch

pa = pytest.importorskip("pyarrow")


JSON = {
    "format": "json",
    "schema": "id bigint, name string, at timestamp, d date, s struct<x: int>",
}


def test_json_objects_become_typed_columns_beside_offsets() -> None:
    rows, bad = decode(
        JSON,
        [
            b'{"id": 1, "name": "a", "at": "2026-11-21T08:15:00+02:00", "d": "2026-11-21"}',
            b'{"id": 2, "s": {"x": 5}, "other": [1, 2]}',
            b"{}",
        ],
    )
    assert bad == []
    at = datetime(2026, 11, 21, 6, 15, tzinfo=UTC)
    assert rows[0] == {
        "offset": 0, "id": 1, "name": "a", "at": at, "d": date(2026, 11, 21), "s": None
    }  # fmt: skip
    assert (rows[1]["id"], rows[1]["s"], rows[2]["id"]) == (2, {"x": 5}, None)


def test_bad_bodies_are_reported_with_position_id_bytes_and_reason() -> None:
    bodies = [
        b'{"id": 1}',
        b'{"id": "x"}',
        b"",
        b'{"id": 2}',
        b"null",
        b'{"id": 3}{"id": 4}',
        b"\xff",
    ]
    rows, bad = decode(JSON, bodies)
    assert [row["id"] for row in rows] == [1, 2]
    assert [row["offset"] for row in rows] == [0, 84]
    assert [entry.position for entry in bad] == [1, 2, 4, 5, 6]
    assert [entry.message_id for entry in bad] == [101, 102, 104, 105, 106]
    assert [entry.data for entry in bad] == [bodies[i] for i in (1, 2, 4, 5, 6)]
    assert bad[0].reason == "column 'id' has the JSON type string, and needs number"
    assert "not an object" in bad[2].reason
    assert all(entry.partition.key == "1:0" and entry.reason for entry in bad)


def test_reasons_name_the_column_and_what_it_needs() -> None:
    """Arrow's own words were of changes between rows, though there was one record."""
    _, bad = decode(JSON, [b'{"s": {"x": "k"}}', b'{"name": {}}', b'{"id": '])
    assert [entry.reason for entry in bad] == [
        "column 's.x' has the JSON type string, and needs number",
        "column 'name' has the JSON type object, and needs string",
        "it is not JSON: Invalid value",
    ]


def test_a_pretty_printed_object_and_braces_in_strings_are_sound() -> None:
    rows, bad = decode(
        JSON, [b'{\n  "id": 7,\n  "name": "a\\nb"\n}', b'{"name": "} x {"}', b' {"id":8} ']
    )
    assert bad == []
    assert [(row["id"], row["name"]) for row in rows] == [(7, "a\nb"), (None, "} x {"), (8, None)]


def test_bytes_that_are_no_text_are_bad_in_every_layout() -> None:
    bodies = [b'{"name": "\xff"}', b'{"other":\n"\xff"}', b'{"other": "\xff"}', b'{"id": 1}']
    rows, bad = decode(JSON, bodies)
    assert [row["offset"] for row in rows] == [84]
    assert [entry.position for entry in bad] == [0, 1, 2]
    assert "UTF8" in bad[0].reason
    found = infer_schema(pa.array([*bodies, b'{"\xff": 2}'], pa.binary()))
    assert found.names == ["id"]


@pytest.mark.parametrize("space", ["", " ", "\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_decimals_keep_every_digit_in_every_layout(space: str, encoding: str) -> None:
    spec = {"format": "json", "schema": "a decimal(38,2), b string"}
    text = f'{{"b": "ü}}x",{space}"a": 12345678901234567890.12}}'
    rows, bad = decode(spec, [text.encode(encoding)])
    assert bad == []
    assert (rows[0]["a"], rows[0]["b"]) == (Decimal("12345678901234567890.12"), "ü}x")


@pytest.mark.parametrize("space", ["", " ", "\n"])
@pytest.mark.parametrize("word", ["NaN", "Inf", "Infinity", "-Inf", "-Infinity", "-NaN"])
def test_words_for_no_number_are_bad_in_every_layout(space: str, word: str) -> None:
    spec = {"format": "json", "schema": "a double, b array<float>, c string"}
    bodies = [
        f'{{"a":{space}{word}}}',
        f'{{"a":{space}{word}{space}, "c": "x"}}',
        f'{{"b":{space}[1,{space}{word}]}}',
        f'{{"other":{space}{word}}}',
        f'{{"c":{space}"{word}, NaN, {{"}}',
        '{"a": 1.5}',
    ]
    rows, bad = decode(spec, [body.encode() for body in bodies])
    assert [(row["a"], row["c"]) for row in rows] == [(None, f"{word}, NaN, {{"), (1.5, None)]
    assert [entry.position for entry in bad] == [0, 1, 2, 3]


def test_a_number_that_is_too_big_for_its_column_is_bad() -> None:
    schema = "f float, d double, s struct<f: array<float>>"
    bodies = [
        *(b'{"f": 1e300}', b'{"f": -1e39}', b'{"d": 1e400}', b'{"s": {"f": [1, 1e39]}}'),
        *(b'{"f": 0.5, "d": 1e300, "s": {"f": [1e38]}}', b'{"f": null, "s": null}'),
    ]
    rows, bad = decode({"format": "json", "schema": schema}, bodies)
    assert [(row["f"], row["d"]) for row in rows] == [(0.5, 1e300), (None, None)]
    assert [entry.position for entry in bad] == [0, 1, 2, 3]
    assert bad[0].reason == "a number is too big to be stored in a float; make it a double"


@pytest.mark.parametrize("number", ["1.8e308", "-1.7976931348623159e308", "1" + "0" * 309])
@pytest.mark.parametrize(
    ("schema", "form"),
    [
        ("d double", '{"d": %s}'),
        ("d array<double>", '{"d": [1, %s]}'),
        ("d struct<e: double>", '{"d": {"e": %s}}'),
    ],
)
def test_a_number_that_is_too_big_for_a_double_is_bad(schema: str, form: str, number: str) -> None:
    """Arrow makes it infinite, which JSON cannot even express."""
    bodies = [(form % text).encode() for text in (number, "1.7976931348623157e308")]
    rows, bad = decode({"format": "json", "schema": schema}, bodies)
    assert [row["offset"] for row in rows] == [28]
    assert bad[0].reason == "a number is too big to be stored in a double"


@pytest.mark.parametrize("number", ["1e400", "0e309", "-0E309", "1e99999999999999999999"])
@pytest.mark.parametrize("schema", ["d double", "f float", "a string"])
def test_an_exponent_above_308_is_bad_in_both_readers(schema: str, number: str) -> None:
    """The compiled reader took it where its field has no column, and took zeros."""
    body = f'{{"{schema[0]}": null, "other": [{number}]}}'.encode()
    mine = f'{{"{schema[0]}": {number}}}'.encode()
    rows, bad = decode({"format": "json", "schema": schema}, [body, mine])
    assert (rows, len(bad)) == ([], 2)


def test_dates_are_texts_at_every_depth() -> None:
    spec = {
        "format": "json",
        "schema": "d date, l array<date>, s struct<d: date, l: array<struct<d: date, n: int>>>",
    }
    day = date(2024, 1, 31)
    bodies = [
        b'{"d": "2024-01-31", "l": ["2024-01-31", null], "s": {"d": "2024-01-31"}}',
        b'{"s": {"l": [{"d": "2024-01-31", "n": 1}, null, {"n": 2}]}}',
        b'{"l": [], "s": null}',
        *(b'{"d": 19000}', b'{"l": [19000]}', b'{"s": {"d": 19000}}'),
        *(b'{"l": ["2024-02-31"]}', b'{"s": {"l": [{"d": ""}]}}'),
        b'{"l": null}',
    ]
    rows, bad = decode(spec, bodies)
    assert rows == [
        {"offset": 0, "d": day, "l": [day, None], "s": {"d": day, "l": None}},
        {
            "offset": 28, "d": None, "l": None,
            "s": {"d": None, "l": [{"d": day, "n": 1}, None, {"d": None, "n": 2}]},
        },
        {"offset": 56, "d": None, "l": [], "s": None},
        {"offset": 224, "d": None, "l": None, "s": None},
    ]  # fmt: skip
    assert [entry.position for entry in bad] == [3, 4, 5, 6, 7]


def test_unknown_fields_fail_on_request() -> None:
    rows, bad = decode({**JSON, "unknown_fields": "fail"}, [b'{"id": 1}', b'{"idd": 1}'])
    assert (len(rows), len(bad)) == (1, 1)
    assert "idd" in bad[0].reason or "nexpected" in bad[0].reason


PIECES = st.sampled_from(
    [
        *(
            b'{"id": 1}',
            b'{"id":2,"name":"x"}',
            b"{}",
            b"null",
            b"[]",
            b"5",
            b'"',
            b"\n",
            b" ",
            b"}",
        ),
        *(
            b"\xef\xbb\xbf",
            b"{",
            b",",
            b"a,b",
            b'"a',
            b'1,"b"',
            b"1,x",
            b"2",
            b"\r",
            b"\xff",
            b'{"s":{"x":[null]}}',
        ),
    ]
)
INNER = st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=2))
VALUE = st.one_of(
    st.none(),
    st.integers(),
    st.text(max_size=4),
    st.lists(st.none(), max_size=2),
    st.dictionaries(st.just("x"), INNER),
)
BODY = st.one_of(
    st.lists(PIECES, max_size=4).map(b"".join),
    st.binary(max_size=12),
    st.dictionaries(st.sampled_from(["id", "name", "s", "z"]), VALUE, max_size=3).map(
        lambda found: json.dumps(found).encode()
    ),
)
CSV = {"format": "csv", "schema": "id bigint, name string"}


@pytest.mark.parametrize("spec", [JSON, CSV], ids=["json", "csv"])
@settings(max_examples=150, deadline=None)
@given(bodies=st.lists(BODY, max_size=7))
def test_a_body_decodes_alike_alone_and_among_others(
    spec: dict[str, Any], bodies: list[bytes]
) -> None:
    rows, bad = decode(spec, bodies)
    assert sorted(
        [row["offset"] // 28 for row in rows] + [entry.position for entry in bad]
    ) == list(range(len(bodies)))
    for row in rows:
        alone, none = decode(spec, [bodies[row["offset"] // 28]])
        assert none == []
        assert [{**row, "offset": 0}] == alone
    for entry in bad:
        no_rows, alone_bad = decode(spec, [bodies[entry.position]])
        assert (no_rows, len(alone_bad)) == ([], 1)


def descriptors() -> str:
    """`demo.Order`, built without protoc."""
    from google.protobuf import descriptor_pb2 as pb
    from google.protobuf import timestamp_pb2

    file = pb.FileDescriptorProto(name="demo.proto", package="demo", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    item = file.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type="TYPE_UINT64", label="LABEL_OPTIONAL")
    order.field.add(
        name="items", number=2, type="TYPE_MESSAGE", label="LABEL_REPEATED", type_name=".demo.Item"
    )
    order.field.add(
        name="at", number=3, type="TYPE_MESSAGE", label="LABEL_OPTIONAL",
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    known = pb.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    return base64.b64encode(pb.FileDescriptorSet(file=[known, file]).SerializeToString()).decode()


def test_protobuf_messages_become_columns(tmp_path: Path) -> None:
    (tmp_path / "set").write_bytes(base64.b64decode(descriptors()))
    spec = DecodeSpec.parse(
        {"format": "protobuf", "message": "demo.Order", "schema_file": str(tmp_path / "set")}
    )
    sound = b"\x08\x07\x12\x03\x0a\x01a\x1a\x02\x08\x0a"
    rows, bad = decode(json.loads(spec.to_json()), [sound, b"\x08", b"", sound])
    at = datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert rows[0] == {"offset": 0, "id": Decimal(7), "items": [{"sku": "a"}], "at": at}
    assert (rows[1]["id"], rows[1]["at"], rows[1]["offset"]) == (Decimal(0), None, 56)
    assert [entry.position for entry in bad] == [1]
    with pytest.raises(ConfigError, match=r"has no message 'demo\.Nothing'"):
        RowDecoder(
            DecodeSpec.parse({**json.loads(spec.to_json()), "message": "demo.Nothing"}), RECORDS
        )


def test_a_protobuf_message_without_fields_is_named_when_the_set_is_read() -> None:
    from google.protobuf import descriptor_pb2 as pb

    file = pb.FileDescriptorProto(name="demo.proto", package="demo", syntax="proto3")
    file.message_type.add(name="Nothing")
    order = file.message_type.add(name="Order")
    order.field.add(
        name="ping",
        number=1,
        type="TYPE_MESSAGE",
        label="LABEL_OPTIONAL",
        type_name=".demo.Nothing",
    )
    files = base64.b64encode(pb.FileDescriptorSet(file=[file]).SerializeToString()).decode()
    for message in ("demo.Order", "demo.Nothing"):
        spec = DecodeSpec("protobuf", message=message, descriptor=files)
        with pytest.raises(ConfigError, match=r"message: demo\.Nothing has no fields"):
            RowDecoder(spec, RECORDS)


def packed(*bodies: bytes, attributes: str = "streamId=a&dt=1") -> bytes:
    builder = TDMsgBuilder()
    for body in bodies:
        builder.add(attributes, body)
    return builder.build(1_700_000_000_000)


def test_a_pack_is_a_row_for_each_of_its_records() -> None:
    rows, bad = decode("tdmsg", [packed(b"x", b"y"), b"no pack", packed(b"z")])
    assert [row["value"] for row in rows] == [b"x", b"y", b"z"]
    assert [row["packed_index"] for row in rows] == [0, 1, 0]
    assert [row["offset"] for row in rows] == [0, 0, 56]
    assert dict(rows[0]["packed_attributes"]) == {"streamId": "a", "dt": "1"}
    assert rows[0]["packed_time"] == datetime.fromtimestamp(1_700_000_000, UTC)
    assert [(entry.position, entry.data) for entry in bad] == [(1, b"no pack")]


def test_a_pack_of_more_records_than_memory_should_hold_is_a_bad_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tubemq_provider.rows.from_tdmsg._MOST_RECORDS", 2)
    rows, bad = decode("tdmsg", [packed(b"x", b"y", b"z"), packed(b"x", b"y")])
    assert [row["packed_index"] for row in rows] == [0, 1]
    assert [(entry.position, entry.reason) for entry in bad] == [
        (0, "a pack of 3 records; at most 2 are read")
    ]


def test_records_of_a_pack_are_decoded_further_and_bad_ones_named_by_themselves() -> None:
    spec = {"format": "tdmsg", "then": {"format": "csv", "schema": "id int, name string"}}
    rows, bad = decode(spec, [packed(b"1,a", b"oops", b"2,b"), packed(b"3,c")])
    assert [(row["offset"], row["packed_index"], row["id"]) for row in rows] == [
        (0, 0, 1),
        (0, 2, 2),
        (28, 0, 3),
    ]
    assert [(entry.position, entry.data) for entry in bad] == [(0, b"oops")]
    assert bad[0].reason.startswith("record 1 of the pack: ")


def lengths(records: Any, *, least: int = 0) -> Any:
    """Decode as a user's function would."""
    import pyarrow.compute as pc

    sizes = pc.binary_length(records.column("value"))
    too_short = pc.less(sizes, least)
    return pa.RecordBatch.from_pydict(
        {"n": sizes, "more": sizes, "_error": pc.if_else(too_short, "too short", None)}
    )


def test_a_users_function_decodes_and_marks_bad_bodies() -> None:
    spec = {
        "format": "function", "function": f"{__name__}.lengths", "schema": "n bigint",
        "arguments": {"least": 2},
    }  # fmt: skip
    rows, bad = decode(spec, [b"abc", b"a", b"ab"])
    assert rows == [{"offset": 0, "n": 3}, {"offset": 56, "n": 2}]
    assert [(entry.position, entry.reason) for entry in bad] == [(1, "too short")]


def test_a_function_that_loses_records_is_refused() -> None:
    spec = {"format": "function", "function": f"{__name__}.loses", "schema": "n bigint"}
    with pytest.raises(ConfigError, match="gave 1 rows for 2 records"):
        decode(spec, [b"a", b"b"])


def loses(records: Any) -> Any:
    return pa.RecordBatch.from_pydict({"n": [1]})


def test_a_decoder_that_does_not_account_for_a_record_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = RowDecoder(DecodeSpec.parse(JSON), RECORDS)
    honest = decoder._body.decode

    def forgetful(records: Any) -> Any:
        found = honest(records)
        found.rows, found.origin = found.rows.slice(1), found.origin[1:]
        return found

    monkeypatch.setattr(decoder._body, "decode", forgetful)
    with pytest.raises(CountMismatch, match="of 2 records"):
        decoder.rows(batch([b"{}", b"{}"], decoder.read_schema), BadRecords(CorruptRecords.DROP))


def test_without_a_policy_a_bad_record_fails_the_read_with_its_place() -> None:
    decoder = RowDecoder(DecodeSpec.parse(JSON), RECORDS)
    with pytest.raises(CorruptRecord) as caught:
        decoder.rows(batch([b"{}", b"oops"], decoder.read_schema), BadRecords(CorruptRecords.FAIL))
    said = str(caught.value)
    assert "record 1 of the batch at offset 0 of partition 1:0 (message id 101)" in said
    assert "corruptRecords=drop" in said


def test_columns_and_a_prefix_resolve_names_that_clash() -> None:
    spec = {"format": "json", "schema": "topic string, value string"}
    with pytest.raises(ConfigError, match="columns: 'topic' is decoded too; leave it"):
        RowDecoder(DecodeSpec.parse(spec), RECORDS)
    kept = RowDecoder(DecodeSpec.parse({**spec, "columns": ["partition", "offset"]}), RECORDS)
    assert kept.schema.names == ["partition", "offset", "topic", "value"]
    prefixed = RowDecoder(DecodeSpec.parse({**spec, "columns": ["topic"], "prefix": "j_"}), RECORDS)
    assert prefixed.schema.names == ["topic", "j_topic", "j_value"]
    assert prefixed.ddl == "`topic` string, `j_topic` string, `j_value` string"


def one_record(*names: str) -> str:
    fields = [{"name": name, "type": "int"} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"format": "json", "schema": "id int, Partition string"},
            "columns: 'partition' is decoded too, as 'Partition'; leave it out of 'columns'",
        ),
        ({**CSV, "columns": ["offset", "offset"]}, "columns: 'offset' is named twice"),
        ({"format": "avro", "schema": one_record("id", "ID")}, "'id' and 'ID' are both decoded"),
        ({"format": "csv", "schema": "id int", "prefix": "msg_", "columns": ["offset"]}, None),
        ({"format": "csv", "schema": "time int", "prefix": "Msg_"}, "as 'Msg_time'"),
        (
            {"format": "tdmsg", "then": {"format": "csv", "schema": "Packed_Index int"}},
            "then: column 'Packed_Index' has the name of one of packs",
        ),
        ({"format": "tdmsg", "columns": ["partition", "value"]}, "'value' is decoded too; leave"),
    ],
)
def test_names_that_a_table_cannot_tell_apart_are_refused(
    spec: dict[str, Any], sentence: str | None
) -> None:
    parsed = DecodeSpec.parse(spec)
    if sentence is None:
        assert RowDecoder(parsed, RECORDS).schema.names == ["offset", "msg_id"]
        return
    with pytest.raises(ConfigError) as caught:
        RowDecoder(parsed, RECORDS)
    assert sentence in str(caught.value)


def test_a_schema_is_given_once_and_what_is_no_decode_is_named() -> None:
    twice = DecodeSpec.judge({"format": "json", "schema": "a int", "schema_file": "/s.ddl"})
    assert twice == ["schema_file: has no effect beside 'schema', which says the same; give one"]
    assert DecodeSpec.judge({"format": "tdmsg", "then": 5}) == [
        "then: 5 is neither a mapping nor a text"
    ]


def test_an_empty_batch_has_the_schema_too() -> None:
    for spec in (JSON, CSV, "tdmsg"):
        assert decode(spec, []) == ([], [])


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("xml", "format: 'xml' is none of avro, canal, csv"),
        ("json", "schema: is needed by format 'json'"),
        (
            {"format": "csv", "schema": "a int", "skip_bytes": 5},
            "skip_bytes: is not used by format",
        ),
        ({"format": "protobuf"}, "message: is needed"),
        ({"format": "csv", "schema": "a int", "delimiter": "||"}, "is not one ASCII character"),
        ({**CSV, "delimiter": "\n"}, r"delimiter: '\n' cannot be one: a line break or NUL"),
        ({**CSV, "quote": "\r"}, r"quote: '\r' cannot be one: a line break or NUL"),
        ({**CSV, "quote": "\0"}, r"quote: '\x00' cannot be one: a line break or NUL"),
        ({**CSV, "delimiter": 1}, "delimiter: 1 is not one ASCII character"),
        ({**CSV, "delimiter": '"'}, "quote: is the same as 'delimiter'"),
        ({**CSV, "delimiter": "|", "quote": "|"}, "quote: is the same as 'delimiter'"),
        ({**CSV, "null_values": "NULL"}, "null_values: 'NULL' is not a list of texts"),
        ({**CSV, "null_values": [0]}, "null_values: [0] is not a list of texts"),
        ({**CSV, "columns": "partition"}, "columns: 'partition' is not a list of texts"),
        ({**CSV, "columns": None}, "columns: None is not a list of texts"),
        (
            {"format": "tdmsg", "then": {**CSV, "null_values": "NULL"}},
            "null_values: 'NULL' is not a list of texts",
        ),
        ("{oops", "not valid JSON"),
        ({"format": "avro", "schema_file": "/nowhere"}, "schema_file: /nowhere"),
        ({"format": "tdmsg", "then": "tdmsg"}, "packed bodies do not hold packed bodies"),
        ({"format": "tdmsg", "then": {**CSV, "columns": ["offset"]}}, "then: columns: has no"),
        ({"format": "tdmsg", "then": {**CSV, "prefix": "x_"}}, "then: prefix: has no effect"),
        (
            {"format": "tdmsg", "then": {"format": "json", "schema_file": "/nowhere"}},
            "then: schema_file: /nowhere is not there, and schemas are not inferred from packed",
        ),
    ],
)
def test_a_wrong_spec_is_named(spec: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DecodeSpec.parse(spec)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"format": "json", "schema": "a map<string,int>"}, "is a map, which JSON bodies cannot"),
        ({"format": "csv", "schema": "a array<int>"}, "is nested, which delimited text cannot"),
        (
            {"format": "json", "schema": "a int", "columns": ["ofset"]},
            "columns: 'ofset' is none of",
        ),
        ({"format": "json", "schema": "a itn"}, "'itn' is no type"),
        ({"format": "avro", "schema": '{"type": "string"}'}, "is not a record's"),
        ({"format": "avro", "schema": "{"}, "no Avro schema"),
        ({"format": "function", "function": "nowhere.f", "schema": "a int"}, "No module named"),
    ],
)
def test_a_schema_that_cannot_be_filled_is_named(spec: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RowDecoder(DecodeSpec.parse(spec), RECORDS)
    assert sentence in str(caught.value)


def test_a_spec_travels_as_text() -> None:
    spec = DecodeSpec.parse(
        {"format": "tdmsg", "then": {**CSV, "null_values": ["-"]}, "prefix": "x"}
    )
    assert DecodeSpec.parse(spec.to_json()) == spec


@dataclass
class _Fetched:
    bodies: list[bytes]

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.bodies))

    def to_arrow(self, schema: Any) -> Any:
        return batch(self.bodies, schema)


@pytest.mark.parametrize("joined", [True, False])
def test_a_bad_record_is_named_by_its_place_in_the_batch_as_read(joined: bool) -> None:
    """Small batches are decoded together, except by a function."""
    fetched = [_Fetched([b"[]"]), _Fetched([]), _Fetched([b'{"id": 1}', b"{"]), _Fetched([b"{}"])]
    spec: dict[str, Any] = {"format": "json", "schema": "id bigint"}
    if not joined:
        spec |= {"format": "function", "function": f"{__name__}.identified"}
    decoder = RowDecoder(DecodeSpec.parse(spec), RECORDS)
    bad: list[BadRecord] = []
    bad_records = BadRecords(CorruptRecords.QUARANTINE, bad.append)
    groups = [decoder.rows_of(group, bad_records) for group in decoder.groups(fetched)]
    assert [read for _, read in groups] == ([4] if joined else [1, 0, 2, 1])
    assert [cell for rows, _ in groups for cell in rows["id"].to_pylist()] == [1, None]
    assert [(one.position, one.data) for one in bad] == [(0, b"[]"), (1, b"{")]


def test_batches_are_decoded_together_until_they_have_some_megabytes() -> None:
    decoder = RowDecoder(DecodeSpec.parse({"format": "json", "schema": "id bigint"}), RECORDS)
    fetched = [_Fetched([bytes(800_000)]) for _ in range(7)]
    assert [len(group) for group in decoder.groups(fetched)] == [3, 3, 1]


def identified(records: Any) -> Any:
    found: list[Any] = []
    for body in records.column("value").to_pylist():
        try:
            found.append((json.loads(body).get("id"), None))
        except (ValueError, AttributeError) as error:
            found.append((None, str(error)))
    ids, errors = ([one[place] for one in found] for place in (0, 1))
    return pa.RecordBatch.from_pydict(
        {"id": pa.array(ids, pa.int64()), "_error": pa.array(errors, pa.string())}
    )
