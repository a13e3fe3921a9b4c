"""Errors of sinks when an object store refuses: the cause, and nothing of the reply.

Stores quote the access key, the string to sign and session tokens in what they answer, and a task's
log is read by many.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.provider.sinks.windows import COUNTS, ignore, plan_of
from tubemq_client.errors import ConfigError
from tubemq_provider.files.footers import count_rows
from tubemq_provider.files.locations import Location, ObjectLocation, _Download, location_at
from tubemq_provider.files.objects import StoreFailed
from tubemq_provider.sinks._object_storage import ObjectStorage
from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.delta.errors import gist
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.windows.protocols import Marker

BODY = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SignatureDoesNotMatch</Code><Message>The signature is HUSH</Message>
<AWSAccessKeyId>AKIAHUSH</AWSAccessKeyId>
<StringToSign>AWS4-HMAC-SHA256 HUSH x-amz-security-token:HUSH</StringToSign></Error>"""


@contextmanager
def refusing(status: int) -> Iterator[dict[str, str]]:
    """Options for a store that answers everything with `status` and `BODY`."""

    class Refusing(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(BODY)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815 (names of http.server)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {
            "endpoint": f"http://127.0.0.1:{server.server_port}",
            "region": "us-east-1",
            "access_key_id": "AKIAHUSH",
            "secret_access_key": "HUSH",
            "session_token": "HUSH",
            "allow_http": "true",
        }
    finally:
        server.shutdown()
        server.server_close()


Opened = dict[str, Callable[[], Any]]


def told_of_sinks(options: dict[str, str]) -> Opened:
    objects = ObjectStoreSink("s3://lake/orders", storage_options=options)
    table = DeltaSink("s3://lake/table", storage_options=options)
    plan = plan_of(objects)
    marker = Marker(plan, COUNTS, "", ("data/x.parquet",))
    return {
        "marker": lambda: objects.marker("w"),
        "window_ids": lambda: list(objects.window_ids()),
        "begin": lambda: objects.begin(plan, "a"),
        "recount": lambda: objects.recount(marker),
        "read_windows": lambda: read_windows(objects),
        "delta marker": lambda: table.marker("w"),
        "delta window_ids": lambda: list(table.window_ids()),
        "delta publish": lambda: published(table),
    }


def published(table: DeltaSink) -> None:
    plan = plan_of(table)
    table.publish(table.begin(plan, "a"), plan, COUNTS, ignore)


def told_of_storage(options: dict[str, str], source: Path) -> Opened:
    source.write_bytes(b"PAR1")
    storage = ObjectStorage("s3://lake/orders", options)
    return {
        "read": lambda: storage.read("x.json"),
        "create": lambda: storage.create("x.json", {}),
        "swap": lambda: storage.swap("x.json", {}, {"a": 1}),
        "put_file": lambda: storage.put_file(source, "x"),
        "rename": lambda: storage.rename("x", "y"),
        "names": lambda: list(storage.names("data")),
        "remove": lambda: storage.remove(["x"]),
        "upload": lambda: uploaded(location_at("s3://lake/orders", options)),
    }


def uploaded(location: Location) -> None:
    """Upload a small file, which is one request when it is finished."""
    output = location.create("x")
    output.stream.write(b"PAR1")
    output.finish()


@pytest.mark.parametrize("status", [400, 401, 403])
def test_no_reply_of_a_store_goes_out(status: int, tmp_path: Path) -> None:
    expected, said = {
        400: (OSError, "400 Bad Request"),
        401: (ConfigError, "refuses this process .*storage_options"),
        403: (ConfigError, "refuses this process .*storage_options"),
    }[status]
    with refusing(status) as options:
        asked = {**told_of_sinks(options), **told_of_storage(options, tmp_path / "x")}
        for name, ask in asked.items():
            with pytest.raises(expected) as caught:
                ask()
            caught.match(said)
            shown = "".join(traceback.format_exception(caught.value))
            assert "HUSH" not in shown, name
            assert "StringToSign" not in shown, name


def test_a_file_that_is_missing_is_missing_still(tmp_path: Path) -> None:
    with refusing(404) as options:
        storage = ObjectStorage("s3://lake/orders", options)
        assert storage.read("x.json") is None
        storage.remove(["x"])
        for ask in (
            lambda: storage.swap("x.json", {}, {}),
            lambda: uploaded(location_at("s3://lake/orders", options)),
        ):
            with pytest.raises(FileNotFoundError, match="404 Not Found") as caught:
                ask()
            assert "HUSH" not in "".join(traceback.format_exception(caught.value))


def test_a_store_that_fails_while_a_window_is_counted_damages_none() -> None:
    """A footer takes several requests. `SinkDamaged` ends the task for good."""
    with refusing(400) as options, pytest.raises(StoreFailed, match="400 Bad Request"):
        count_rows(_HalfThere(options), ["data/x.parquet"], "w", {})


class _HalfThere(ObjectLocation):
    """A prefix whose objects answer for their size, and for no more."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__("s3://lake/orders", options)

    def open(self, name: str) -> Any:
        download = object.__new__(_Download)
        download._store, download._name, download._url = self._store, name, self.url
        download._size, download._at, download.closed = 1000, 0, False
        return pa.PythonFile(download, mode="r")


@pytest.mark.parametrize("name", ["new#1", "new?1", "#"])
def test_an_address_that_means_another_prefix_is_refused(name: str) -> None:
    """obstore leaves out what is behind these signs, so that a try of `s3://lake/new#1` that was
    discarded took away all that is under `s3://lake/new`."""
    url = f"s3://lake/{name}"
    for open_place in (ObjectStoreSink, DeltaSink, lambda place: location_at(place, {}).stored()):
        with pytest.raises(ConfigError, match=r"question mark|without the characters @ \? #"):
            open_place(url)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"Generic S3 error: Error performing PUT http://s?sig=HUSH in 1ms: {BODY!r}",
            "Generic S3",
        ),
        ("Kernel error -> Generic S3 error\n  \x1b[31m↳\x1b[0m HUSH", "Kernel error -> Generic S3"),
        ("Transaction failed: another came first", "Transaction failed: another came first"),
    ],
)
def test_an_error_of_delta_is_reported_in_a_line(text: str, told: str) -> None:
    assert "HUSH" not in gist(OSError(text))
    assert gist(OSError(text)).startswith(f"OSError: {told}")
