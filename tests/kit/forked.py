"""Processes forked from one that has imported their needs: the victims of kill drills.

A test that starts one takes `CONTEXT` from here: there is one fork server in a process, and the
first to start it decides its imports. This module starts nothing.
"""

from __future__ import annotations

import multiprocessing
from typing import Final

__all__ = ["CONTEXT"]

CONTEXT: Final = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.provider.windows.kill_child",
        "tubemq_provider.testing.publishing",
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
