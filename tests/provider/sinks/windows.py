"""Windows for tests of sinks, from the test kit, with this project's fork server.

There is one fork server in a process, and the first to start it decides its imports.
"""

from tests.kit.forked import CONTEXT
from tubemq_provider.testing.publishing import (
    CHILD_TIMEOUT,
    COLUMNS,
    COUNTS,
    OpenSink,
    ignore,
    plan_of,
    publish,
    stage,
    start,
    told,
)

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
