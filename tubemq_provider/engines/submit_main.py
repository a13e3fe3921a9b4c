"""Program that `spark-submit` runs for the engine `submit`: one window, and a result file.

It reads its order from the application's folder, does what the engine `session` does, and reports
in the folder too: neither its exit code nor its output counts. Secrets are read once, from a file
that the order names. This module must not publish anything.
"""

from __future__ import annotations

import base64
import logging
import pickle
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from tubemq_provider.engines.applications import Application
from tubemq_provider.engines.cluster_documents import SECRETS_NAME, ClusterTask
from tubemq_provider.engines.outcome import counts_document, error_document
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.transforms import sql_transform
from tubemq_provider.files.locations import location_of
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.spark.routed_write_tasks import RoutedWriteTask
from tubemq_provider.windows.field_ids import FieldIds
from tubemq_provider.windows.following import Following
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Document, IngestWatch, Staging

__all__ = ["JobChannel", "cluster_main", "main", "ordered_engine", "secrets_text", "session_engine"]

log = logging.getLogger(__name__)

_POLL_S = 1.0


class JobChannel(Protocol):
    """Channel to the submitting task, for order, progress and outcome: `Application`, or a
    cluster's `ClusterTask`."""

    @property
    def stop_requested(self) -> bool:
        """True if the driver must stop."""

    def write_report(self, document: Document) -> None:
        """Replace the progress document."""

    def finish(self, document: Document) -> None:
        """Write the outcome, atomically."""

    def bound_log(self) -> None:
        """Rotate a log that has grown long."""


def main(folder: str) -> None:
    """Execute the order in `folder`. Returns when there is a result, which may be an error."""
    application = Application(Path(folder))
    order = application.order
    if order is None:
        raise SystemExit(f"{folder} has no order")
    _execute(application, order, secrets_from(order["secrets"]))


def cluster_main() -> None:
    """Execute the order that the cluster's manager has placed in this directory; as `main`."""
    folder = Path.cwd()
    secrets = secrets_from(str(folder / SECRETS_NAME))
    order = ClusterTask(folder, secrets["storage"])
    _execute(order, order.order, secrets)


def _execute(channel: JobChannel, order: Document, secrets: Mapping[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    # The first report: the submitting task may remove the secrets now.
    teller = _ProgressReporter(channel)
    outcome: dict[str, Any] = {"v": 1, "hash": order["plan"]["hash"]}
    try:
        result = _result(channel, order, secrets, teller)
    except Exception as error:
        log.exception("window %s", order["plan"]["id"])
        channel.finish({**outcome, "error": error_document(error)})
    else:
        channel.finish({**outcome, **result})


def _result(
    channel: JobChannel, order: Document, secrets: Mapping[str, Any], teller: _ProgressReporter
) -> Document:
    """Run the order's window; return its counts, or what tasks report of many tables. Remove its
    files if it fails."""
    plan = WindowPlan.from_document(order["plan"])
    fields = dict(order["staging"])
    partition_by, field_ids = fields.pop("partition_by", None), fields.pop("field_ids", None)
    by = None if partition_by is None else PartitionBy.from_json(partition_by)
    ids = None if field_ids is None else FieldIds.from_json(field_ids)
    staging = Staging(**fields, options=secrets["storage"], partition_by=by, field_ids=ids)
    try:
        engine = ordered_engine(order, secrets["settings"])
        with _stopping_on_request(channel, engine):
            return _ingest(engine, plan, staging, teller, order.get("tables"), secrets["tables"])
    except Exception:
        _clear(staging)
        raise


def secrets_text(
    settings: Any, storage: Mapping[str, str], tables: Mapping[str, str] | None = None
) -> str:
    """Serialise what an order must not carry, for a `secret_file`: settings of a source of any
    kind, the options of a storage, and those of the places of many tables (JSON by path)."""
    secrets = {"settings": settings, "storage": dict(storage), "tables": dict(tables or {})}
    return base64.b64encode(pickle.dumps(secrets)).decode()


def secrets_from(path: str) -> dict[str, Any]:
    """Load the result of `secrets_text`; the file is in memory, or readable by this user only."""
    data = base64.b64decode(Path(path).read_text(encoding="utf-8"))
    secrets: dict[str, Any] = pickle.loads(data)  # noqa: S301 - written by the task, for this process
    return secrets


def ordered_engine(order: Mapping[str, Any], settings: Any) -> SessionEngine:
    """Create the engine of `order` in the driver. A transform may be in a module on the task's path
    only: Airflow adds the folder of Dags to `sys.path` by itself."""
    sys.path += [entry for entry in order["path"] if entry not in sys.path]
    return session_engine(settings, order["engine"])


def session_engine(settings: Any, shape: Mapping[str, Any]) -> SessionEngine:
    """Create the engine of an order: `shape` has its arguments as JSON values, with `sql` as an
    alternative to `transform`."""
    arguments = dict(shape)
    sql, decode = arguments.pop("sql", None), arguments.pop("decode", None)
    following = arguments.pop("following", None)
    if sql is not None:
        arguments["transform"] = sql_transform(sql)
    if decode is not None:
        arguments["decode"] = DecodeSpec.parse(decode)
    if following is not None:
        arguments["following"] = Following.from_json(following)
    return SessionEngine(settings, **arguments)


class _ProgressReporter:
    """Progress reporter: accumulates the progress, so that every document is complete."""

    def __init__(self, channel: JobChannel) -> None:
        self._employer = channel
        self._lock = threading.Lock()
        self._progress: dict[str, Any] = {"points": []}
        channel.write_report(self._progress)

    def point(self, name: str, **more: Any) -> None:
        with self._lock:
            self._progress["points"].append(name)
            self._progress.update(more)
            self._employer.write_report(self._progress)

    def tasks(self, done: int, total: int) -> None:
        with self._lock:
            self._progress["tasks"] = [done, total]
            self._employer.write_report(self._progress)


def _ingest(
    engine: SessionEngine,
    plan: WindowPlan,
    staging: Staging,
    teller: _ProgressReporter,
    tables: str | None,
    storage: Mapping[str, str],
) -> Document:
    from pyspark.sql import SparkSession

    # The session that spark-submit has prepared; the engine finds it active.
    spark = SparkSession.builder.getOrCreate()
    teller.point("application", id=spark.sparkContext.applicationId)
    began = time.monotonic()
    try:
        watch = IngestWatch(
            lambda point: teller.point(point, ui=spark.sparkContext.uiWebUrl),
            on_tasks=lambda _, done, total: teller.tasks(done, total),
        )
        if tables is not None:
            task = RoutedWriteTask.from_json(tables)
            return {"tables": engine.ingest_tables(plan, task, storage, watch)}
        counts = engine.ingest(plan, staging, watch)
    finally:
        spark.stop()
    took_ms = int((time.monotonic() - began) * 1000)
    return {"counts": counts_document(replace(counts, took_ms=took_ms))}


@contextmanager
def _stopping_on_request(channel: JobChannel, engine: SessionEngine) -> Iterator[None]:
    """Cancel the engine when the application is asked to stop; keep its log bounded."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL_S):
            channel.bound_log()
            if channel.stop_requested:
                engine.cancel()
                return

    thread = threading.Thread(target=watch, name="tubemq-stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _clear(staging: Staging) -> None:
    """Remove the files of a failed try, which is never published."""
    with suppress(Exception):
        location_of(staging).clear()
