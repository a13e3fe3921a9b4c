"""A loopback object store that speaks as much of Google Cloud Storage's XML API as sinks need.

Objects have generations, and ``x-goog-if-generation-match`` is honoured in one step: 0 means that
there must be none. Entity tags are given and never compared, as Google does for writes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

DATE = "Sat, 21 Nov 2026 12:00:00 GMT"


@contextmanager
def gcs_server() -> Iterator[dict[str, str]]:
    """Storage options for a server with every bucket, for as long as the context."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    key = {
        "gcs_base_url": f"http://127.0.0.1:{server.server_port}",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    try:
        yield {"service_account_key": json.dumps(key), "allow_http": "true"}
    finally:
        server.shutdown()
        server.server_close()
        _Handler.objects.clear()
        thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict[str, tuple[int, bytes]] = {}  # noqa: RUF012 (shared on purpose: the store)
    lock = threading.Lock()
    generations = count(1_700_000_000_000_000)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        wanted = self.headers.get("x-goog-if-generation-match")
        name = unquote(urlsplit(self.path).path)
        with self.lock:
            found = self.objects.get(name, (0, b""))[0]
            if wanted is not None and int(wanted) != found:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            generation = next(self.generations)
            self.objects[name] = (generation, body)
        self._answer(200, b"", generation)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if "list-type" in query:
            self._list(url.path, query.get("prefix", [""])[0])
            return
        found = self.objects.get(unquote(url.path))
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        generation, body = found
        asked = self.headers.get("Range")
        if asked is None:
            self._answer(200, body, generation)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(body) - int(last))
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        where = f"bytes {start}-{end - 1}/{len(body)}"
        self._answer(206, body[start:end], generation, ("Content-Range", where))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        with self.lock:
            gone = self.objects.pop(unquote(urlsplit(self.path).path), None)
        self._answer(204 if gone else 404, b"")

    def _list(self, bucket: str, prefix: str) -> None:
        root = f"{bucket.rstrip('/')}/"
        entries = "".join(
            f"<Contents><Key>{escape(name.removeprefix(root))}</Key><Generation>{generation}"
            f"</Generation><Size>{len(body)}</Size><LastModified>2026-11-21T12:00:00.000Z"
            f'</LastModified><ETag>"e"</ETag></Contents>'
            for name, (generation, body) in sorted(self.objects.items())
            if name.startswith(root + prefix)
        )
        self._answer(200, f"<ListBucketResult>{entries}</ListBucketResult>".encode())

    def _answer(
        self, status: int, body: bytes, generation: int = 0, *headers: tuple[str, str]
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", DATE)
        self.send_header("ETag", '"e"')
        if generation:
            self.send_header("x-goog-generation", str(generation))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
