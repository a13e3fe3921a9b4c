"""A loopback object store that speaks S3: moto's server, one request at a time.

One at a time because moto looks for an object and stores it in two steps, while real stores refuse
the second conditional put of two that overlap. `careless=True` makes it ignore the condition, as
old imitations of S3 do. `conflicts` is how many conditional puts of each object it answers with 409
``ConditionalRequestConflict``, as S3 does while another request for the object is under way.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from tests.kit.forked import CONTEXT

App = Callable[[dict[str, Any], Any], Iterable[bytes]]


@contextmanager
def object_server(
    bucket: str = "lake",
    *,
    careless: bool = False,
    conflicts: int = 0,
    host: str = "127.0.0.1",
) -> Iterator[dict[str, str]]:
    """Storage options for a server with `bucket`, for as long as the context.

    It runs in a separate process: some clients wait for it without letting other threads run. It
    ends with the process that asked for it, also if that is killed.
    """
    receiver, sender = CONTEXT.Pipe(duplex=False)
    args = (sender, bucket, careless, conflicts, host)
    server = CONTEXT.Process(target=_serve, args=args, daemon=True)
    server.start()
    sender.close()
    try:
        # Ends with EOFError if the process does: how long its imports take, the machine decides.
        endpoint = receiver.recv()
        yield {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": "somebody",
            "secret_access_key": "hush-hush",
            "allow_http": "true",
        }
    finally:
        server.terminate()
        server.join(10)


def _serve(sender: Connection, bucket: str, careless: bool, conflicts: int, host: str) -> None:
    from moto.server import create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = _guarded(_conflicting(create_backend_app("s3"), conflicts), careless)
    server = make_server(host, 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://{host}:{server.server_port}"
    create = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
    urllib.request.urlopen(create, timeout=10).close()
    sender.send(endpoint)
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()


def _conflicting(app: App, conflicts: int) -> App:
    answered: Counter[str] = Counter()

    def conflict_first(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        name = environ["PATH_INFO"]
        conditional = "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ
        if environ["REQUEST_METHOD"] != "PUT" or not conditional or answered[name] >= conflicts:
            return app(environ, start_response)
        answered[name] += 1
        start_response("409 Conflict", [("Content-Type", "application/xml")])
        return [b"<Error><Code>ConditionalRequestConflict</Code><Message>again</Message></Error>"]

    return conflict_first


def _guarded(app: App, careless: bool) -> App:
    lock = threading.Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if careless:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with lock:
            return list(app(environ, start_response))

    return one_at_a_time
