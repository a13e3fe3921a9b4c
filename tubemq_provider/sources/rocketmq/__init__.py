"""Apache RocketMQ as a source of windows: ranges of queue offsets, each of them one record.

`space` and `columns` are light, for executors; `source` looks and reads through `rocketmq_client`.
What puts windows together (`windows`, `ingest`, `files`, `sinks`, `offsets`, `engines`) does not
name this kind; its own hook, operators, sensors, Spark format and Dagster assets do.
"""

from typing import Final

__all__ = ["NOT_ON_EXECUTORS", "ON_EXECUTORS", "SPARK"]

SPARK: Final = "tubemq_provider.spark.rocketmq"
"""Its half in Spark; see `spark.formats`."""

ON_EXECUTORS: Final = {
    "rocketmq_client": ("_core", "_wire", "config", "sync"),
    "pyspark_rocketmq": (),
}
"""What tasks import beside what tasks of every kind do."""

NOT_ON_EXECUTORS: Final = (
    *("rocketmq_client/_core/outgoing.py", "rocketmq_client/_core/sending.py"),
    *("rocketmq_client/sync/admin.py", "rocketmq_client/sync/producer.py"),
    "rocketmq_client/sync/pulling.py",
)
"""Modules of these rooms that they leave alone: what sends, pulls and administers."""
