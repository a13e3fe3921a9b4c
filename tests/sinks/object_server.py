"""A loopback object store that speaks S3: moto's server, one request at a time.

One at a time because moto looks for an object and stores it in two steps, while real stores refuse
the second conditional put of two that overlap. `careless=True` makes it ignore the condition, as
old imitations of S3 do.
"""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

App = Callable[[dict[str, Any], Any], Iterable[bytes]]


@contextmanager
def object_server(bucket: str = "lake", *, careless: bool = False) -> Iterator[dict[str, str]]:
    """Storage options for a server with `bucket`, for as long as the context. All servers of a
    process show the same buckets."""
    from moto.server import create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(
        "127.0.0.1", 0, _guarded(create_backend_app("s3"), careless), threaded=True
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        urllib.request.urlopen(
            urllib.request.Request(f"{endpoint}/{bucket}", method="PUT"), timeout=10
        ).close()
        yield {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": "somebody",
            "secret_access_key": "hush-hush",
            "allow_http": "true",
        }
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def _guarded(app: App, careless: bool) -> App:
    lock = threading.Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if careless:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with lock:
            return list(app(environ, start_response))

    return one_at_a_time
