"""Apache Kafka as a source of windows: ranges of offsets, read as `read_committed` reads them.

`space` and `columns` are light; the other modules use `confluent_kafka`.
"""

from typing import Final

__all__ = ["SPARK"]

SPARK: Final = "tubemq_provider.spark.windows"
"""Executors read a window through the source itself; they need this distribution."""
