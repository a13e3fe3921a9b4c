"""Windows for tests of sinks: small plans, staged files, and one publication in another process.

A sink is opened by a picklable function, as another process would open it. Everything staged is
named after its try, so that a reader can tell whose records it sees.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tubemq_provider.files.columns import columns_of
from tubemq_provider.files.footers import inspect
from tubemq_provider.files.locations import location_of
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts, Publication, Sink, Staging
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

__all__ = [
    "CHILD_TIMEOUT",
    "COLUMNS",
    "CONTEXT",
    "COUNTS",
    "OpenSink",
    "ignore",
    "plan_of",
    "publish",
    "stage",
    "start",
    "told",
]

CONTEXT = multiprocessing.get_context("forkserver")
"""Kind of the processes that are killed: forked from one without threads."""
OpenSink = Callable[[], Sink]
COLUMNS = ("partition", "offset", "msg_time", "attributes", "value")
COUNTS = IngestCounts({"1:0": 2, "1:1": 1}, 21)
CHILD_TIMEOUT = 60


def ignore(_: str) -> None:
    """Ignore progress."""


def plan_of(sink: Sink, seq: int = 1, end: int = 280) -> WindowPlan:
    """Return the plan of a window of two partitions."""
    scope = WindowScope("c1", "orders", "g1", sink.identity)
    return WindowPlan.cursor(scope, seq, {"1:0": (0, end), "1:1": (0, end)})


def stage(staging: Staging, who: str, partitions: Sequence[str] = ("1:0", "1:0", "1:1")) -> None:
    """Write one file of the inline engine's shape, whose values name `who`."""
    rows = len(partitions)
    columns = {
        "partition": list(partitions),
        "offset": [space_of(FIRST_SOURCE).step * index for index in range(rows)],
        "msg_time": [1_700_000_000_000_000 + index for index in range(rows)],
        "attributes": [[("source", who)], *[None] * (rows - 1)][:rows],
        "value": [f"{who} {index}".encode() for index in range(rows)],
    }
    schema = columns_of(FIRST_SOURCE).arrow_schema(COLUMNS)
    arrays = [pa.array(columns[name], schema.field(name).type) for name in COLUMNS]
    output = location_of(staging).create("part-0.parquet")
    pq.write_table(pa.table(arrays, schema=schema), output.stream)
    output.finish()


def told(staging: Staging, counts: IngestCounts = COUNTS) -> IngestCounts:
    """Return `counts` with the facts of the files that are staged."""
    location = location_of(staging)
    stored = location.stored()
    facts = tuple(inspect(location, name, found) for name, found in stored.items())
    return replace(counts, files=facts)


def publish(sink: Sink, plan: WindowPlan, who: str = "a") -> Publication:
    """Begin, stage and publish three records."""
    staging = sink.begin(plan, who)
    stage(staging, who)
    return sink.publish(staging, plan, COUNTS, ignore)


def _publish_in_child(
    open_sink: OpenSink, who: str, window: tuple[int, int], rest: tuple[Barrier | None, str, str]
) -> None:
    sink = open_sink()
    barrier, kill_at, outcome = rest
    plan = plan_of(sink, *window)
    staging = sink.begin(plan, who)
    stage(staging, who)

    def die(point: str) -> None:
        if point == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    if barrier is not None:
        barrier.wait(CHILD_TIMEOUT)
    found = sink.publish(staging, plan, COUNTS, die)
    result = {"won": found.won, "hash": found.marker.plan.hash, "who": who}
    Path(outcome).write_text(json.dumps(result))


def start(
    open_sink: OpenSink,
    who: str,
    outcome: Path,
    *,
    seq: int = 1,
    end: int = 280,
    barrier: Barrier | None = None,
    kill_at: str = "",
) -> ForkServerProcess:
    """Publish in another process, which may kill itself at a point of the publication."""
    child = CONTEXT.Process(
        target=_publish_in_child,
        args=(open_sink, who, (seq, end), (barrier, kill_at, str(outcome))),
    )
    child.start()
    return child
