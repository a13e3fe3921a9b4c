"""Requests of an upload to an object store: one for a small file, parts for a large one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq

from tubemq_provider.files import locations
from tubemq_provider.files.locations import Stored, location_at

LARGE = locations._PART_BYTES * 2 + 5

BEGUN = (
    b"<InitiateMultipartUploadResult><Bucket>lake</Bucket><Key>k</Key><UploadId>u</UploadId>"
    b"</InitiateMultipartUploadResult>"
)
DONE = (
    b"<CompleteMultipartUploadResult><Location>l</Location><Bucket>lake</Bucket><Key>k</Key>"
    b'<ETag>"whole"</ETag></CompleteMultipartUploadResult>'
)


class Store:
    """A store that accepts uploads: its requests, and the bytes of each object or part."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.bodies: dict[str, bytes] = {}


@contextmanager
def accepting() -> Iterator[tuple[Store, dict[str, str]]]:
    """Run a store on loopback; yields what it was sent, and the options that reach it."""
    store = Store()

    class Accepting(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            store.requests.append(self.command)
            reply, size = b"", 0
            if self.command == "PUT":
                store.bodies[self.path] = body
            elif self.command == "POST":
                reply = BEGUN if "uploads" in self.path else DONE
            elif self.command == "HEAD":
                size = sum(map(len, store.bodies.values()))
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply) or size))
            self.send_header("ETag", '"whole"')
            self.send_header("Last-Modified", "Fri, 27 Nov 2026 00:00:00 GMT")
            self.end_headers()
            self.wfile.write(reply)

        do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815 (names of http.server)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Accepting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield (
            store,
            {
                "endpoint": f"http://127.0.0.1:{server.server_port}",
                "region": "us-east-1",
                "access_key_id": "lake-writer",
                "secret_access_key": "secret",
                "allow_http": "true",
            },
        )
    finally:
        server.shutdown()
        server.server_close()


def test_a_small_file_is_one_request() -> None:
    table = pa.table({"body": ["a", "b"]})
    with accepting() as (store, options):
        output = location_at("s3://lake/orders", options).create("part-0.parquet")
        pq.write_table(table, output.stream)
        stored = output.finish()

        assert store.requests == ["PUT"]
        (body,) = store.bodies.values()
        assert stored == Stored(len(body), '"whole"')
        assert pq.read_table(pa.BufferReader(body)) == table


def test_a_file_that_is_given_up_is_no_request() -> None:
    with accepting() as (store, options):
        output = location_at("s3://lake/orders", options).create("part-0.parquet")
        output.stream.write(b"PAR1")
        output.abandon()
        output.stream.write(b"late")

        assert store.requests == []


def test_a_large_file_is_parts_and_one_look() -> None:
    content = bytes(range(251)) * (LARGE // 251 + 1)
    with accepting() as (store, options):
        output = location_at("s3://lake/orders", options).create("part-0.parquet")
        for start in range(0, len(content), 1 << 20):
            output.stream.write(content[start : start + (1 << 20)])
        stored = output.finish()

        parts = sorted(
            store.bodies, key=lambda path: int(path.split("partNumber=")[1].split("&")[0])
        )
        assert b"".join(store.bodies[path] for path in parts) == content
        assert stored.size == len(content)
        assert sorted(store.requests) == ["HEAD", "POST", "POST", *["PUT"] * len(parts)]
