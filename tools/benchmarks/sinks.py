"""Cost of publishing a window in each sink: `python -m tools.benchmarks.sinks`.

A hundred windows of three records, one after the other, into a temporary directory: the sinks' own
cost, without reading or Spark. For object stores pass an empty prefix and its options: ``--place
s3://bucket/x --option endpoint=http://127.0.0.1:9000 --option allow_http=true``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

from tubemq_provider.files.locations import location_of
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.iceberg import IcebergSink
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts, Sink

WINDOWS = 100
COUNTS = IngestCounts({"1:0": 3})


def main() -> int:
    """Measure every sink and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.sinks", description=__doc__)
    parser.add_argument("--place", help="prefix in an object store, empty")
    parser.add_argument("--option", action="append", default=[], help="key=value for the place")
    arguments = parser.parse_args()
    options = dict(option.split("=", 1) for option in arguments.option)
    print(f"{WINDOWS} windows of {COUNTS.total} records, ms: median and slowest fifth's median")
    print(f"{'sink':24} {'publish':>14} {'marker found':>14} {'marker missing':>15}")
    with tempfile.TemporaryDirectory() as directory:
        for name, open_sink in _sinks(Path(directory), arguments.place, options):
            _measure(name, open_sink())
    return 0


def _sinks(
    root: Path, place: str | None, options: dict[str, str]
) -> Iterator[tuple[str, Callable[[], Sink]]]:
    yield "parquet", lambda: sink_for(root / "parquet")
    yield "delta", lambda: sink_for(f"delta:{root}/delta")
    yield "iceberg (SQLite)", lambda: _iceberg(root)
    staging = root / "staging"
    database = f"sqlite:///{root}/lake.db?table=orders"
    yield "database (SQLite)", lambda: sink_for(database, staging_root=staging)
    if place:
        yield (
            f"{place[:12]}…",
            lambda: sink_for(f"{place}/files", storage_options=options, staging_root=staging),
        )
        yield (
            f"delta:{place[:12]}…",
            lambda: sink_for(f"delta:{place}/delta", storage_options=options, staging_root=staging),
        )


def _iceberg(root: Path) -> Sink:
    properties = {"uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/iceberg"}
    return IcebergSink(
        "bench.orders",
        catalog="bench",
        catalog_properties={"type": "sql", **properties},
        staging_root=root / "staging",
    )


def _measure(name: str, sink: Sink) -> None:
    published, existing, missing = [], [], []
    for seq in range(1, WINDOWS + 1):
        plan = _plan(sink, seq)
        published.append(_timed(lambda plan=plan: _publish(sink, plan)))
        existing.append(_timed(lambda plan=plan: sink.marker(plan.window_id)))
        missing.append(_timed(lambda seq=seq: sink.marker(_plan(sink, seq + 1).window_id)))
    columns = [_shown(times) for times in (published, existing, missing)]
    print(f"{name:24} {columns[0]:>14} {columns[1]:>14} {columns[2]:>15}", flush=True)


def _plan(sink: Sink, seq: int) -> WindowPlan:
    scope = WindowScope("bench", "orders", "bench", sink.identity)
    return WindowPlan.cursor(scope, seq, {"1:0": ((seq - 1) * 280, seq * 280)})


def _publish(sink: Sink, plan: WindowPlan) -> None:
    staging = sink.begin(plan, "bench")
    table = pa.table({"partition": ["1:0"] * 3, "value": [b"a", b"b", b"c"]})
    output = location_of(staging).create("part-0.parquet")
    pq.write_table(table, output.stream)
    output.finish()
    sink.publish(staging, plan, COUNTS, lambda _: None)


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def _shown(times: list[float]) -> str:
    slowest = sorted(times)[-len(times) // 5 :]
    return f"{median(times):.1f} / {median(slowest):.1f}"


if __name__ == "__main__":
    raise SystemExit(main())
