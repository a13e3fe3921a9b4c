"""Processes that are forked off one that has imported what they need: what kill drills start.

A test that starts one takes `CONTEXT` from here: there is one fork server in a process, and the
first to start it decides what it has imported. Starts nothing by itself.
"""

from __future__ import annotations

import multiprocessing
from typing import Final

__all__ = ["CONTEXT"]

CONTEXT: Final = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.provider.windows.kill_child",
        "tests.provider.sinks.windows",
        "tests.rocketmq.windows.child",
        "tubemq_provider.sinks.delta",
        "tubemq_provider.sinks.iceberg",
        "deltalake",
        "pyiceberg.catalog.sql",
        "obstore",
        # Looked for by pyarrow, which takes longer than a window does.
        "pandas",
        "pyarrow.dataset",
        "pyarrow.parquet",
    ]
)
