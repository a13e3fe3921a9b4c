"""Bodies in a schema registry's frame, with a registry on loopback."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.provider.rows.decoded import decode
from tubemq_client.errors import ConfigError
from tubemq_client.tdmsg import TDMsgBuilder
from tubemq_provider.rows.registry import RegistryUnavailable, SchemaRegistry, register
from tubemq_provider.rows.spec import DecodeSpec

fastavro = pytest.importorskip("fastavro")


def record(*fields: tuple[str, str]) -> str:
    return json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields]}
    )


SCHEMAS = {
    1: {"schema": record(("id", "long"), ("name", "string"))},
    2: {"schema": record(("name", "string"), ("id", "int"))},
    3: {"schema": '{"type": "object"}', "schemaType": "JSON"},
    4: {"schema": record(("other", "string"))},
}


class FakeRegistry:
    def __init__(self) -> None:
        self.asked: list[int] = []
        self.broken = False
        self.authorization: str | None = None
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                id_ = int(self.path.rsplit("/", 1)[1])
                fake.asked.append(id_)
                fake.authorization = self.headers.get("Authorization")
                known = SCHEMAS.get(id_)
                self.send_response(500 if fake.broken else 404 if known is None else 200)
                self.end_headers()
                self.wfile.write(json.dumps(known or {"error_code": 40403}).encode())

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()
    register("reg", SchemaRegistry(fake.url, "user", "pass word"))
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def framed(id_: int, body: bytes) -> bytes:
    return b"\0" + id_.to_bytes(4, "big") + body


def avro(id_: int, **row: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(SCHEMAS[id_]["schema"])), row)
    return framed(id_, out.getvalue())


AVRO = {"format": "avro", "schema": SCHEMAS[1]["schema"], "schema_registry": "reg"}


def test_each_avro_body_is_read_with_the_schema_that_wrote_it(registry: FakeRegistry) -> None:
    bodies = [avro(1, id=1, name="a"), avro(2, id=2, name="b"), avro(1, id=3, name="c")]
    rows, bad = decode(AVRO, [*bodies, framed(99, b"x"), b"{}", framed(3, b"{}")])
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, "b"), (3, "c")]
    assert [entry.position for entry in bad] == [3, 4, 5]
    assert "no schema of id 99" in bad[0].reason
    assert "JSON, not AVRO" in bad[2].reason
    assert sorted(registry.asked) == [1, 2, 3, 99]
    decode(AVRO, bodies)
    assert sorted(registry.asked) == [1, 2, 3, 99]
    expected = base64.b64encode(b"user:pass word").decode()
    assert registry.authorization == f"Basic {expected}"


def test_a_writer_that_does_not_resolve_to_the_table_fails_the_read(
    registry: FakeRegistry,
) -> None:
    with pytest.raises(ConfigError, match="schema 4: has no field 'id'"):
        decode(AVRO, [avro(4, other="x")])


def test_a_registry_that_does_not_answer_fails_the_read_and_a_retry_asks_again(
    registry: FakeRegistry,
) -> None:
    registry.broken = True
    with pytest.raises(RegistryUnavailable, match="answered 500") as error:
        decode(AVRO, [avro(1, id=1, name="a")])
    assert error.value.retriable
    assert "pass word" not in str(error.value)
    registry.broken = False
    assert len(decode(AVRO, [avro(1, id=1, name="a")])[0]) == 1


def test_json_schema_and_changes_in_frames(registry: FakeRegistry) -> None:
    spec = {"format": "json", "schema": "id bigint", "schema_registry": "reg"}
    rows, bad = decode(spec, [framed(3, b'{"id": 1}'), b'{"id": 2}', framed(1, b'{"id": 3}')])
    assert [row["id"] for row in rows] == [1]
    assert "AVRO, and the bodies are decoded as JSON" in bad[1].reason
    change = b'{"op": "c", "before": null, "after": {"id": 5}, "source": {}}'
    rows, bad = decode({**spec, "format": "debezium"}, [framed(3, change), framed(3, b"[]")])
    assert ([row["id"] for row in rows], [entry.position for entry in bad]) == ([5], [1])
    assert bad[0].data == framed(3, b"[]")


def test_options_of_registries() -> None:
    framed_by_hand = {"format": "avro", "schema": SCHEMAS[1]["schema"], "skip_bytes": 5}
    assert "schema_registry=<connection id>" in DecodeSpec.judge(framed_by_hand)[0]
    assert DecodeSpec.judge({**AVRO, "schemas": {"1": "{}"}})
    spec = DecodeSpec.parse(AVRO)
    assert DecodeSpec.parse(spec.to_json()) == spec
    with pytest.raises(ConfigError, match="was not opened in this process"):
        decode({**AVRO, "schema_registry": "nowhere"}, [avro(1, id=1, name="a")])


VALUE: dict[str, Any] = {
    "type": "record", "name": "Value", "namespace": "shop.public.goods", "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": ["null", {
            "type": "bytes", "scale": 2, "precision": 10, "logicalType": "decimal",
            "connect.name": "org.apache.kafka.connect.data.Decimal"}], "default": None},
        {"name": "free", "type": ["null", {
            "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
            "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
            "connect.name": "io.debezium.data.VariableScaleDecimal"}], "default": None},
        {"name": "day", "type": ["null", {
            "type": "int", "connect.name": "io.debezium.time.Date"}], "default": None},
        {"name": "at", "type": ["null", {
            "type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}], "default": None},
        {"name": "made", "type": ["null", {
            "type": "long", "logicalType": "timestamp-millis",
            "connect.name": "org.apache.kafka.connect.data.Timestamp"}], "default": None},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "more", "type": ["null", {"type": "map", "values": "string"}], "default": None},
    ],
}  # fmt: skip
ENVELOPE: dict[str, Any] = {
    "type": "record", "name": "Envelope", "namespace": "shop.public.goods", "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source",
            "namespace": "io.debezium.connector.postgresql", "fields": [
                {"name": "db", "type": "string"}, {"name": "schema", "type": "string"},
                {"name": "table", "type": "string"}, {"name": "ts_ms", "type": "long"},
                {"name": "lsn", "type": ["null", "long"], "default": None}]}},
        {"name": "op", "type": "string"},
        {"name": "transaction", "type": ["null", {"type": "record", "name": "block",
            "namespace": "event", "fields": [{"name": "id", "type": "string"}]}], "default": None},
    ],
}  # fmt: skip
SCHEMAS |= {
    10: {"schema": json.dumps(ENVELOPE)},
    11: {"schema": record(("ts_ms", "long"))},
    12: {"schema": '{"type": "object"}', "schemaType": "JSON"},
}
GOODS = (
    "id bigint, name string, price decimal(10,2), free decimal(9,3), day date, at timestamp_ntz, "
    "made timestamp, raw binary, more map<string,string>"
)


def in_avro(id_: int, schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return framed(id_, out.getvalue())


def test_debezium_in_avro_is_read_as_its_json_is(registry: FakeRegistry) -> None:
    at = datetime(2020, 1, 1, 1, 2, 3, 456_000, UTC)
    row = {
        "id": 1, "name": "ä", "price": Decimal("12.34"), "free": {"scale": 3, "value": b"\x05"},
        "day": 18_262, "at": 1_577_840_523_456_789, "made": at, "raw": b"\0\xff",
        "more": {"a": "b"},
    }  # fmt: skip
    source = {"db": "shop", "schema": "public", "table": "goods", "ts_ms": 5, "lsn": 7}
    nothing = dict.fromkeys(row)
    datums = [
        {"before": None, "after": row, "source": source, "op": "c", "transaction": {"id": "x"}},
        {"before": row, "after": {**nothing, "id": 1}, "source": source, "op": "u"},
        {"before": {**row, "raw": b"__debezium_unavailable_value"}, "source": source, "op": "d"},
    ]
    bodies = [in_avro(10, ENVELOPE, datum) for datum in datums]
    heartbeat = in_avro(11, json.loads(str(SCHEMAS[11]["schema"])), {"ts_ms": 1})
    framed_json = b"\0\0\0\0\x0c" + json.dumps({"op": "c", "after": {"id": 2}}).encode()
    spec = {"format": "debezium", "schema": GOODS, "schema_registry": "reg", "before": True}
    rows, bad = decode(
        spec, [*bodies, heartbeat, b"", framed_json, bodies[0][:-1], b"\0\0\0\0\x63x"]
    )
    expected = {
        "id": 1, "name": "ä", "price": Decimal("12.34"), "free": Decimal("0.005"),
        "day": date(2020, 1, 1), "at": datetime(2020, 1, 1, 1, 2, 3, 456_789),  # noqa: DTZ001
        "made": at, "raw": b"\0\xff", "more": [("a", "b")],
    }  # fmt: skip
    assert {name: rows[0][name] for name in expected} == expected
    assert rows[1]["_before"] == expected
    assert [(row["_op"], row["id"]) for row in rows] == [("c", 1), ("u", 1), ("d", 1), ("c", 2)]
    assert rows[2]["raw"] is None
    assert rows[0]["_transaction_id"] == "x"
    assert (rows[0]["_database"], rows[0]["_table"]) == ("shop", "public.goods")
    assert rows[0]["_source_position"] == "7".zfill(20)
    assert [one.reason for one in bad][1] == "the schema registry has no schema of id 99"
    assert len(bad) == 2
    assert registry.asked.count(10) == 1


def test_debezium_in_avro_inside_packs(registry: FakeRegistry) -> None:
    source = {"db": "shop", "schema": "public", "table": "goods", "ts_ms": 5, "lsn": 7}
    row = {"id": 1, "name": "a"}
    builder = TDMsgBuilder()
    builder.add(
        {"streamId": "s"}, in_avro(10, ENVELOPE, {"after": row, "source": source, "op": "r"})
    )
    then = {"format": "debezium", "schema": "id bigint, name string", "schema_registry": "reg"}
    rows, bad = decode({"format": "tdmsg", "then": then}, [builder.build(0)])
    assert (rows[0]["id"], rows[0]["name"], rows[0]["_op"], bad) == (1, "a", "r", [])
