"""The compiled readers of bodies against the reference; `decode` compares both in other tests."""

from __future__ import annotations

import json
import os
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.provider.rows.decoded import batch, decode, decoded_both_ways
from tubemq_client.model import CorruptRecords
from tubemq_client.tdmsg import TDMsgBuilder, TDMsgPacketBuilder
from tubemq_provider.rows import compiled
from tubemq_provider.rows.decoding import BadRecords, RowDecoder
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.tubemq.columns import RECORDS

pa = pytest.importorskip("pyarrow")

installed = pytest.mark.skipif(
    compiled.compiled_unpack() is None, reason="needs the compiled module (make setup, with cargo)"
)
VALUES = "i bigint, n smallint, f float, d double, p decimal(12,2), s string, t timestamp, day date"


def test_the_environment_turns_the_compiled_readers_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUBEMQ_NATIVE", "0")
    assert compiled.compiled_unpack() is None
    assert compiled.compiled_reader("json", ([], False), pa.schema([])) is None


@installed
def test_a_table_that_the_compiled_module_does_not_know_is_left_to_the_reference() -> None:
    schema = pa.schema([("a", pa.int32())])
    assert compiled.compiled_reader("avro", [("of another version",)], schema) is None
    assert compiled.compiled_reader("xml", [], schema) is None


@installed
@pytest.mark.parametrize("format_", ["json", "csv"])
def test_usual_bodies_are_not_left_to_the_reference(format_: str) -> None:
    """Else they would be read at the reference's speed, which no other test would notice."""
    values = {
        "i": -(10**17), "n": -7, "f": 0.5, "d": 1e-3, "p": 12.34, "s": "né", "day": "2024-02-29",
        "t": "2026-11-21T08:15:00.125Z",
    }  # fmt: skip
    row = [values[name.split()[0]] for name in VALUES.split(", ")]
    line = ",".join(map(str, row))
    body = json.dumps(values) if format_ == "json" else line
    reader = _reader({"format": format_, "schema": VALUES})
    assert reader.read(*_buffers([body.encode()] * 3))[1] == []


def _reader(spec: Any) -> Any:
    body = RowDecoder(DecodeSpec.parse(spec), RECORDS)._body  # type: ignore[attr-defined]
    return body._compiled._reader  # type: ignore[attr-defined]


def _buffers(bodies: list[bytes]) -> tuple[Any, Any, int, int]:
    _, offsets, data = pa.array(bodies, pa.binary()).buffers()
    return offsets, data, 0, len(bodies)


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?[0-9]{0,25}(\.[0-9]{0,12})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
MOMENTS = st.one_of(
    st.datetimes().map(lambda at: at.isoformat(timespec="microseconds")),
    st.from_regex(
        r"[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]"
        r"([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,9})?)?)?"
        r"(Z|\+01:00)?",
        fullmatch=True,
    ),
)
TEXTS = st.text(max_size=6)
FIELDS = st.sampled_from(["i", "n", "f", "d", "p", "s", "t", "day", "other"])
JSON_TEXTS = st.one_of(TEXTS.map(json.dumps), TEXTS.map(lambda text: f'"{text}"'))
JSON_VALUES = st.one_of(
    NUMBERS, MOMENTS.map(json.dumps), JSON_TEXTS, NUMBERS.map(json.dumps),
    st.sampled_from(["null", "true", "[]", "{}", '{"a": [1, {"b": "\\u00e9"}]}', "", '""', "01"]),
)  # fmt: skip
OBJECTS = st.lists(st.tuples(FIELDS, JSON_VALUES), max_size=5).map(
    lambda pairs: "{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}"
)
EXAMPLES = int(os.environ.get("TUBEMQ_EXAMPLES", "40"))


@installed
@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=12))
def test_json_is_read_alike(bodies: list[str]) -> None:
    encoded = [body.encode("utf-8", "surrogatepass") for body in bodies]
    decode({"format": "json", "schema": VALUES}, encoded)
    decode({"format": "json", "schema": VALUES, "unknown_fields": "fail"}, encoded)


CELLS = st.one_of(NUMBERS, MOMENTS, TEXTS, TEXTS.map(lambda text: '"' + text + '"'), st.just("-"))


@installed
@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=8, max_size=8), min_size=1, max_size=12))
def test_csv_is_read_alike(rows: list[list[str]]) -> None:
    encoded = [",".join(row).encode("utf-8", "surrogatepass") for row in rows]
    decode({"format": "csv", "schema": VALUES, "null_values": ["-", ""]}, encoded)
    for place, name in enumerate(VALUES.split(", ")):
        cells = [row[place].encode("utf-8", "surrogatepass") for row in rows]
        decode({"format": "csv", "schema": name}, cells)


def _pack(random: Random) -> bytes:
    version = random.randrange(5)
    compress = random.random() < 0.5
    builder: Any
    if version == 4:
        builder = TDMsgPacketBuilder(data_time_s=1_700_000_000, compress=compress)
        for _ in range(random.randrange(1, 4)):
            builder.add(random.randbytes(3))
        packed = builder.build()
    else:
        builder = TDMsgBuilder(version, compress=compress)
        for _ in range(random.randrange(5)):
            own = {"record_attributes": random.choice(["k=1", "k= 2 &k=3"])} if version == 3 else {}
            body = random.choice([b"x" * 200, random.randbytes(4)])
            builder.add(random.choice(["streamId=a&dt=1", "é=\0", "m=\U0001f600"]), body, **own)
        times = [0, 1_700_000_000_123, -5, 2**62, 8_589_934_592_000, 253_402_300_800_000]
        packed = builder.build(random.choice(times) if version else None)
    where = random.randrange(len(packed))
    damaged = packed[:where] + random.randbytes(1) + packed[where + 1 :]
    return random.choice([packed, packed, packed, damaged, packed[:where]])


@installed
def test_packs_are_unpacked_alike() -> None:
    random = Random(7)
    for _ in range(EXAMPLES):
        bodies = [_pack(random) for _ in range(8)]
        rows, bad = decoded_both_ways("tdmsg", bodies)
        assert rows.num_rows or bad
    then = {"format": "json", "schema": "a bigint"}
    builder = TDMsgBuilder()
    for body in (b'{"a": 1}', b"[]", b'{"a": 2}'):
        builder.add("streamId=a", body)
    pack = builder.build(1)
    rows, bad = decode(
        {"format": "tdmsg", "then": then}, [b"", pack, TDMsgBuilder().build(1), pack]
    )
    assert [row["a"] for row in rows] == [1, 2, 1, 2]
    assert [(one.position, one.data) for one in bad] == [(0, b""), (1, b"[]"), (3, b"[]")]


@installed
def test_a_part_of_an_array_is_read_from_its_own_start() -> None:
    decoder = RowDecoder(DecodeSpec.parse({"format": "json", "schema": "a bigint"}), RECORDS)
    bodies = [f'{{"a": {number}}}'.encode() for number in range(20)]
    bodies[9] = b"{"
    records = batch(bodies, decoder.read_schema).slice(7, 4)
    bad: list[Any] = []
    rows = decoder.rows(records, BadRecords(CorruptRecords.QUARANTINE, bad.append))
    assert rows.column("a").to_pylist() == [7, 8, 10]
    assert [one.position for one in bad] == [2]
