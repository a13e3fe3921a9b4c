"""`airflow` with the modules of a usual task imported first.

    python -m tools.devkit.airflow.preloaded scheduler …

The scheduler forks a process for each task and the Dag processor one for each file; what these two
have imported, those need not import again, which is most of what a small task costs.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

_MODULES: Final = (
    "airflow.dag_processing.dagbag",
    "airflow.sdk.execution_time.task_runner",
    "pyarrow.parquet",
    "tubemq_provider.hooks.tubemq",
    "tubemq_provider.operators.ingest",
    "tubemq_provider.sensors.lag",
    "tubemq_provider.sinks.parquet",
)


def main() -> None:
    """Import the modules, and be `airflow` with the words of the command line."""
    run_airflow = importlib.import_module("airflow.__main__").main
    for name in _MODULES:
        importlib.import_module(name)
    sys.argv[0] = "airflow"
    run_airflow()


if __name__ == "__main__":
    main()
