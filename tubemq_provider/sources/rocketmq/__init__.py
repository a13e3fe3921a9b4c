"""Apache RocketMQ as a source of windows: ranges of queue offsets, each of them one record.

`space` and `columns` are light, for executors; `source` uses `rocketmq_client`. Rooms that build
windows (`windows`, `ingest`, `files`, `sinks`, `offsets`, `engines`) do not name this kind; only
its
hook, operators, sensors, Spark format and Dagster assets do.
"""

from typing import Final

__all__ = ["NOT_ON_EXECUTORS", "ON_EXECUTORS", "SPARK"]

SPARK: Final = "tubemq_provider.spark.rocketmq"
"""Module of its Spark format; see `spark.formats`."""

ON_EXECUTORS: Final = {
    "rocketmq_client": ("_core", "_wire", "config", "sync"),
    "pyspark_rocketmq": (),
}
"""Imports of tasks in addition to those of every kind."""

NOT_ON_EXECUTORS: Final = (
    *("rocketmq_client/_core/membership.py", "rocketmq_client/_core/administration.py"),
    *("rocketmq_client/_core/outgoing.py", "rocketmq_client/_core/sending.py"),
    *("rocketmq_client/sync/admin.py", "rocketmq_client/sync/producer.py"),
    *("rocketmq_client/sync/pulling.py", "rocketmq_client/sync/transactions.py"),
    *("rocketmq_client/_core/transactions.py", "rocketmq_client/local_offsets.py"),
    *("rocketmq_client/_core/requests.py", "rocketmq_client/sync/requests.py"),
    *("rocketmq_client/_core/sending_limits.py", "rocketmq_client/_core/trace.py"),
)
"""Modules of these rooms that tasks do not import: sending, pulling and administration."""
