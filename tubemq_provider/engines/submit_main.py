"""The program that `spark-submit` runs for the engine `submit`: one window, and a result file.

It is told what to do by the order in its application's folder, does what the engine `session` does,
and says how it went in the folder too: neither its exit code nor its output counts. What must stay
secret it reads once, from a file that the order names. This module must not publish anything.
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
from tubemq_provider.engines.exchange import SECRETS_NAME, ClusterOrder
from tubemq_provider.engines.outcome import counts_document, error_document
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.transforms import sql_transform
from tubemq_provider.files.locations import location_of
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.windows.field_ids import FieldIds
from tubemq_provider.windows.partitioning import PartitionBy
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import Document, IngestCounts, Staging

__all__ = ["Employer", "cluster_main", "main", "ordered_engine", "secrets_text", "session_engine"]

log = logging.getLogger(__name__)

_LOOK_S = 1.0


class Employer(Protocol):
    """Where an order comes from and its outcome goes to: `Application`, or a cluster's
    `ClusterOrder`."""

    @property
    def asked_to_stop(self) -> bool:
        """Whether the driver is to end."""

    def tell(self, document: Document) -> None:
        """Replace what is told."""

    def finish(self, document: Document) -> None:
        """The outcome, in one step."""

    def bound_log(self) -> None:
        """Begin a log anew that has become long."""


def main(folder: str) -> None:
    """Do the order in `folder`. Returns when there is a result; it may be an error."""
    application = Application(Path(folder))
    order = application.order
    if order is None:
        raise SystemExit(f"{folder} has no order")
    _work(application, order, secrets_from(order["secrets"]))


def cluster_main() -> None:
    """Do the order that the cluster's manager has brought into this directory; as `main`."""
    here = Path.cwd()
    secrets = secrets_from(str(here / SECRETS_NAME))
    found = ClusterOrder(here, secrets["storage"])
    _work(found, found.order, secrets)


def _work(employer: Employer, order: Document, secrets: Mapping[str, Any]) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    # The submitting task may take the secrets away now.
    teller = _Teller(employer)
    outcome: dict[str, Any] = {"v": 1, "hash": order["plan"]["hash"]}
    try:
        counts = _counts(employer, order, secrets, teller)
    except Exception as error:
        log.exception("window %s", order["plan"]["id"])
        employer.finish({**outcome, "error": error_document(error)})
    else:
        employer.finish({**outcome, "counts": counts_document(counts)})


def _counts(
    employer: Employer, order: Document, secrets: Mapping[str, Any], teller: _Teller
) -> IngestCounts:
    """What the order is about; what has failed is removed."""
    plan = WindowPlan.from_document(order["plan"])
    given = dict(order["staging"])
    apart, numbers = given.pop("partition_by", None), given.pop("field_ids", None)
    by = None if apart is None else PartitionBy.from_json(apart)
    ids = None if numbers is None else FieldIds.from_json(numbers)
    staging = Staging(**given, options=secrets["storage"], partition_by=by, field_ids=ids)
    try:
        engine = ordered_engine(order, secrets["settings"])
        with _obeying(employer, engine):
            return _ingest(engine, plan, staging, teller)
    except Exception:
        _clear(staging)
        raise


def secrets_text(settings: Any, storage: Mapping[str, str]) -> str:
    """What an order must not carry: settings of a source as they are, of whatever kind, and the
    options of a storage. For a `secret_file`."""
    return base64.b64encode(pickle.dumps({"settings": settings, "storage": dict(storage)})).decode()


def secrets_from(path: str) -> dict[str, Any]:
    """What `secrets_text` was given; the file is in memory, or this user's alone."""
    data = base64.b64decode(Path(path).read_text(encoding="utf-8"))
    found: dict[str, Any] = pickle.loads(data)  # noqa: S301 - written by the task, for this process
    return found


def ordered_engine(order: Mapping[str, Any], settings: Any) -> SessionEngine:
    """The engine of `order`, in the driver. A transform may be where only the task looks: Airflow
    adds the folder of Dags to the places of modules by itself."""
    sys.path += [entry for entry in order["path"] if entry not in sys.path]
    return session_engine(settings, order["engine"])


def session_engine(settings: Any, shape: Mapping[str, Any]) -> SessionEngine:
    """The engine of an order: `shape` has its arguments as JSON has them, with `sql` beside
    `transform`."""
    given = dict(shape)
    sql, decode = given.pop("sql", None), given.pop("decode", None)
    if sql is not None:
        given["transform"] = sql_transform(sql)
    if decode is not None:
        given["decode"] = DecodeSpec.parse(decode)
    return SessionEngine(settings, **given)


class _Teller:
    """Keeps what was told, so that every document has all of it."""

    def __init__(self, employer: Employer) -> None:
        self._employer = employer
        self._lock = threading.Lock()
        self._told: dict[str, Any] = {"points": []}
        employer.tell(self._told)

    def point(self, name: str, **more: Any) -> None:
        with self._lock:
            self._told["points"].append(name)
            self._told.update(more)
            self._employer.tell(self._told)

    def tasks(self, done: int, total: int) -> None:
        with self._lock:
            self._told["tasks"] = [done, total]
            self._employer.tell(self._told)


def _ingest(
    engine: SessionEngine, plan: WindowPlan, staging: Staging, teller: _Teller
) -> IngestCounts:
    from pyspark.sql import SparkSession

    # The one that spark-submit has prepared; the engine finds it active.
    spark = SparkSession.builder.getOrCreate()
    teller.point("application", id=spark.sparkContext.applicationId)
    engine.on_tasks = teller.tasks
    began = time.monotonic()
    try:
        counts = engine.ingest(
            plan, staging, lambda point: teller.point(point, ui=spark.sparkContext.uiWebUrl)
        )
    finally:
        spark.stop()
    return replace(counts, took_ms=int((time.monotonic() - began) * 1000))


@contextmanager
def _obeying(employer: Employer, engine: SessionEngine) -> Iterator[None]:
    """The engine is cancelled when the application is asked to stop; its log stays bounded."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            employer.bound_log()
            if employer.asked_to_stop:
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
    """Nobody publishes what has failed."""
    with suppress(Exception):
        location_of(staging).clear()
