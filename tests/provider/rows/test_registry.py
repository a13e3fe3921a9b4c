"""Bodies in a schema registry's frame, with a registry on loopback."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.provider.rows.decoded import decode
from tubemq_client.errors import ConfigError
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
