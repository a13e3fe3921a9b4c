"""Protobuf messages with fields that are no columns, times, and frames of a registry."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.provider.rows.decoded import decode
from tubemq_client.errors import ConfigError
from tubemq_provider.rows.decoding import RowDecoder
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.tubemq.columns import RECORDS

pytest.importorskip("pyarrow")

_ODD = {
    "struct": ".google.protobuf.Struct", "value": ".google.protobuf.Value",
    "list": ".google.protobuf.ListValue", "empty": ".google.protobuf.Empty", "tree": ".x.Tree",
}  # fmt: skip


def _file(syntax: str = "proto3") -> Any:
    from google.protobuf import descriptor_pb2 as pb

    file = pb.FileDescriptorProto(name="x.proto", package="x", syntax=syntax)
    for name in ("timestamp", "struct", "empty"):
        file.dependency.append(f"google/protobuf/{name}.proto")
    return file


def _set(file: Any) -> str:
    from google.protobuf import descriptor_pb2 as pb
    from google.protobuf import empty_pb2, struct_pb2, timestamp_pb2

    known = []
    for module in (timestamp_pb2, struct_pb2, empty_pb2):
        known.append(pb.FileDescriptorProto())
        module.DESCRIPTOR.CopyToProto(known[-1])
    return base64.b64encode(pb.FileDescriptorSet(file=[*known, file]).SerializeToString()).decode()


def odd_spec(**options: str) -> dict[str, Any]:
    """Return messages with every field that no column can hold."""
    file = _file()
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="n", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    tree.field.add(
        name="next", number=2, type="TYPE_MESSAGE", label="LABEL_OPTIONAL", type_name=".x.Tree"
    )
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    for number, (name, type_) in enumerate(_ODD.items(), start=2):
        order.field.add(
            name=name, number=number, type="TYPE_MESSAGE", label="LABEL_OPTIONAL", type_name=type_
        )
    order.field.add(
        name="many", number=9, type="TYPE_MESSAGE", label="LABEL_REPEATED",
        type_name=".google.protobuf.Value",
    )  # fmt: skip
    return {"format": "protobuf", "message": "x.Order", "descriptor": _set(file), **options}


def _odd_body() -> bytes:
    """Return `id` 7, a struct {"a": [null, 1.5]}, an empty message, a tree of two, two values."""
    from google.protobuf import struct_pb2

    held = struct_pb2.Struct()
    held.update({"a": [None, 1.5]})
    data = held.SerializeToString()
    value = struct_pb2.Value(string_value="é").SerializeToString()
    tree = b"\x08\x01\x12\x02\x08\x02"
    return (
        b"\x08\x07\x12" + bytes([len(data)]) + data + b"\x2a\x00\x32" + bytes([len(tree)]) + tree
        + (b"\x4a" + bytes([len(value)]) + value) * 2
    )  # fmt: skip


def test_fields_without_a_column_are_all_named_with_the_option() -> None:
    with pytest.raises(ConfigError) as caught:
        RowDecoder(DecodeSpec.parse(odd_spec()), RECORDS)
    said = str(caught.value)
    for name in ("value", "list", "empty", "many", "tree.next", "struct"):
        assert f"(field '{name}'" in said, name
    assert "unsupported_fields to 'json'" in said


def test_fields_without_a_column_are_left_out_or_json_on_request() -> None:
    rows, bad = decode(odd_spec(unsupported_fields="leave_out"), [_odd_body()])
    assert bad == []
    assert rows == [{"offset": 0, "id": 7, "tree": {"n": 1}}]
    rows, bad = decode(odd_spec(unsupported_fields="json"), [_odd_body(), b"\x08\x07"])
    assert bad == []
    first, second = rows
    assert first["struct"] == '{"a": [null, 1.5]}'
    assert (first["empty"], first["value"], first["many"]) == ("{}", None, '["é", "é"]')
    assert first["tree"] == {"n": 1, "next": '{"n": 2}'}
    assert (second["struct"], second["many"], second["tree"]) == (None, "[]", None)


def test_a_time_that_microseconds_cannot_say_is_bad_or_cut() -> None:
    file = _file()
    message = file.message_type.add(name="M")
    message.field.add(
        name="at", number=1, type="TYPE_MESSAGE", label="LABEL_OPTIONAL",
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    spec = {"format": "protobuf", "message": "x.M", "descriptor": _set(file)}
    bodies = [b"\x0a\x04\x08\x05\x10\x07", b"\x0a\x05\x08\x05\x10\xe8\x07"]
    bodies.append(b"\x0a\x0b\x10" + b"\xff" * 9 + b"\x01")
    bodies.append(b"\x0a\x08\x08\xff\xff\xff\xff\xff\xff\x7f")
    rows, bad = decode(spec, bodies)
    assert [row["at"] for row in rows] == [datetime(1970, 1, 1, 0, 0, 5, 1, UTC)]
    assert [entry.position for entry in bad] == [0, 2, 3]
    assert "set nanoseconds='cut'" in bad[0].reason
    assert "-1 nanoseconds" in bad[1].reason
    rows, _ = decode({**spec, "nanoseconds": "cut"}, bodies)
    assert rows[0]["at"] == datetime(1970, 1, 1, 0, 0, 5, 0, UTC)


def test_a_message_without_a_required_field_is_bad() -> None:
    file = _file("proto2")
    message = file.message_type.add(name="M")
    message.field.add(name="a", number=1, type="TYPE_INT32", label="LABEL_REQUIRED")
    message.field.add(name="b", number=2, type="TYPE_INT32", label="LABEL_OPTIONAL")
    spec = {"format": "protobuf", "message": "x.M", "descriptor": _set(file)}
    rows, bad = decode(spec, [b"\x08\x01", b"\x10\x01"])
    assert rows == [{"offset": 0, "a": 1, "b": None}]
    assert bad[0].reason == "a required field is missing"


def test_the_frame_of_a_registry_names_the_message() -> None:
    file = _file()
    for name in ("First", "Second"):
        message = file.message_type.add(name=name)
        message.field.add(name="a", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
        inner = message.nested_type.add(name="Inner")
        inner.field.add(name="a", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    spec = {"format": "protobuf", "descriptor": _set(file), "skip_bytes": 5}
    frame, data = b"\0\0\0\0\x07", b"\x08\x05"
    forms = {
        "x.First": [b"\0", b"\x02\x00"],
        "x.Second": [b"\x02\x02"],
        "x.First.Inner": [b"\x04\x00\x00"],
        "x.Second.Inner": [b"\x04\x02\x00"],
    }
    every = [form for named in forms.values() for form in named]
    for name, own in forms.items():
        bodies = [frame + form + data for form in every]
        rows, bad = decode({**spec, "message": name}, bodies)
        assert [every[row["offset"] // 28] for row in rows] == own
        assert all(row["a"] == 5 for row in rows)
        assert len(bad) == len(every) - len(own)
        assert "names another message" in bad[0].reason
    rows, bad = decode({**spec, "message": "x.First"}, [frame + data, frame, b"\1\0\0\0\0" + data])
    assert ([row["a"] for row in rows], bad) == ([5, 0, 5], [])


def test_a_spec_with_the_options_travels_as_text() -> None:
    spec = DecodeSpec.parse(odd_spec(unsupported_fields="json", nanoseconds="cut"))
    assert DecodeSpec.parse(json.loads(spec.to_json())) == spec
    with pytest.raises(ConfigError, match="unsupported_fields: 'drop' is none of 'fail', 'json'"):
        DecodeSpec.parse(odd_spec(unsupported_fields="drop"))
