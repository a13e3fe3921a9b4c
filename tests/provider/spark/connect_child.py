"""Window through Spark Connect in a separate process, which may be killed: ``python
connect_child.py``. The job comes as JSON on standard input; its progress is printed."""

from __future__ import annotations

import json
import sys
from typing import Any

from tubemq_client.config import ClientConfig
from tubemq_provider.engines.connect import ConnectEngine
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import IngestWatch


def main(order: dict[str, Any]) -> None:
    """Read the window, or wait for ever."""
    settings = ClientConfig.parse({"masters": order["masters"]}).settings()
    plan = WindowPlan.from_document(order["plan"])
    staging = sink_for(order["sink"], storage_options=order["storage"]).begin(plan, "killed")
    engine = ConnectEngine(settings, remote=order["remote"], ship_package=True)
    engine.belong_to(order.get("task", ""))
    engine.ingest(plan, staging, IngestWatch(lambda point: print(point, flush=True)))


if __name__ == "__main__":
    main(json.load(sys.stdin))
