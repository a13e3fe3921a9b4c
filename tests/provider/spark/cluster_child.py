"""Driver of a window on a Spark cluster, in a separate process: ``python cluster_child.py``.

The job comes as JSON on standard input, so that no secret appears on a command line; the result is
written as JSON to a file that it names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tubemq_client.config import ClientConfig
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.transforms import sql_transform
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestCounts, IngestWatch


def main(order: dict[str, Any]) -> dict[str, Any]:
    """Write one explicit window into an object store, and collect what Spark shows of it."""
    settings = ClientConfig.parse({"masters": order["masters"]}).settings()
    sink = sink_for(order["sink"], storage_options=order["storage_options"])
    scope = WindowScope("local", order["topic"], "etl", sink.identity)
    plan = WindowPlan.explicit(scope, {key: tuple(r) for key, r in order["ranges"].items()})
    engine = SessionEngine(
        settings,
        master=order["master"],
        conf=order["conf"],
        ship_package=order.get("ship", False),
        options={"minPartitions": str(order["tasks"])},
        transform=sql_transform(order["sql"]) if order["sql"] else None,
    )
    staging = sink.begin(plan, "driver")
    counts: IngestCounts = engine.ingest(
        plan, staging, IngestWatch(lambda point: print(point, flush=True))
    )
    found = sink.publish(staging, plan, counts, lambda _: None)
    sink.tidy(plan.window_id)
    shown = _shown_plans()
    engine.stop()
    return {
        "won": found.won,
        "window_id": plan.window_id,
        "records": dict(found.marker.counts.records),
        "files": list(found.marker.files),
        "shown": shown,
        "staging": repr(staging),
    }


def _shown_plans() -> list[str]:
    """Return Spark's web pages of every query."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession.getActiveSession()
    store = session._jsparkSession.sharedState().statusStore()
    queries = store.executionsList()
    return [queries.apply(n).physicalPlanDescription() for n in range(queries.size())]


if __name__ == "__main__":
    told = json.load(sys.stdin)
    Path(told["answer"]).write_text(json.dumps(main(told)))
