"""Apache RocketMQ as a source of windows: ranges of queue offsets, each of them one record.

`space` and `columns` are light, for executors; `source` looks and reads through `rocketmq_client`.
Beside the registry nothing of the provider names this kind.
"""

from typing import Final

__all__ = ["ON_EXECUTORS", "SPARK"]

SPARK: Final = "tubemq_provider.spark.rocketmq"
"""Its half in Spark; see `spark.formats`."""

ON_EXECUTORS: Final = {
    "rocketmq_client": ("_core", "_wire", "config", "sync"),
    "pyspark_rocketmq": (),
}
"""What tasks import beside what tasks of every kind do."""
