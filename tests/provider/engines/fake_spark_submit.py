"""Fake `spark-submit`: a process that gets an application's folder and behaves as requested.

The environment variable FAKE_SUBMIT selects the behaviour: ``good`` counts a record for each
partition, ``bad`` has a corrupt record, ``silent`` succeeds without a result, ``slow`` waits for a
file ``go`` next to the order, and is good then; ``mute`` waits before it reads its secrets;
``lingers`` is good and does not end. ``holds`` and ``fails`` wait as ``slow`` does; one writes the
records then, the other is bad.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kit.engines import inline_engine
from tubemq_client.errors import CorruptRecord
from tubemq_provider.engines.applications import Application
from tubemq_provider.engines.outcome import counts_document, error_document
from tubemq_provider.engines.submit_main import ordered_engine, secrets_from
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestCounts, IngestWatch, Staging


def staging_of(order: Mapping[str, Any], options: Mapping[str, str]) -> Staging:
    """Return the staging place of the order."""
    known = {k: v for k, v in order["staging"].items() if k != "partition_by"}
    return Staging(**known, options=options)


def reported(plan: WindowPlan, refused: Mapping[str, str]) -> dict[str, Any]:
    """Return what a task reports that has read a record of "orders" from each partition, and has
    written none of them: they are of a table that wants no rows, or set aside if `refused`."""
    aside = int("orders" in refused)
    empty: dict[str, Any] = {"bytes": 1, "notices": {}}
    reads = [
        {"partition": key, "start": start, "end": end, "read": 1, "gaps": [], "corrupt": aside,
         "last": [], "unrouted": {key: aside}, "quarantined": "", **empty}
        for key, (start, end) in plan.ranges.items()
    ]  # fmt: skip
    read = dict.fromkeys(plan.ranges, 1)
    table = {"route": 0, "key": "0:orders", "values": ["orders"], "read": read, "rows": {},
             "failed": None, "files": [], "pieces": [], **empty}  # fmt: skip
    return {"reads": reads, "tables": [] if aside else [table]}


def main(program: str) -> None:
    """Behave as FAKE_SUBMIT says."""
    application, todo = Application(Path(program).parent), os.environ["FAKE_SUBMIT"]
    order = application.order
    assert order is not None
    print(f"fake application, {todo}", flush=True)
    if todo == "silent":
        return
    if todo == "mute":
        time.sleep(60)
    secrets = secrets_from(order["secrets"])
    settings = secrets["settings"]
    ordered_engine(order, settings)
    application.write_report(
        {"points": ["application", "session started"], "id": "app-1", "tasks": [1, 2]}
    )
    for _ in range(6_000):
        if todo not in ("slow", "holds", "fails") or (application.folder / "go").exists():
            break
        time.sleep(0.01)
    plan = WindowPlan.from_document(order["plan"])
    outcome = {"v": 1, "hash": plan.hash}
    if todo in ("bad", "fails"):
        error = CorruptRecord("1:0 at 28: wrong\nchecksum")
        application.finish({**outcome, "error": error_document(error)})
        raise SystemExit(1)
    counts = IngestCounts(records=dict.fromkeys(plan.ranges, 1))
    if todo == "holds":
        staging = staging_of(order, secrets["storage"])
        reading = inline_engine(settings, kind=plan.source, policies=Policies())
        counts = reading.ingest(plan, staging, IngestWatch(print))
    if "tables" in order:
        refused = json.loads(order["tables"])["refused"]
        application.finish({**outcome, "tables": [reported(plan, refused)]})
        return
    application.finish({**outcome, "counts": counts_document(counts)})
    if todo == "lingers":
        time.sleep(60)
    raise SystemExit(3)  # which must not be believed


if __name__ == "__main__":
    main(sys.argv[-1])
