"""Lets Spark find `format("rocketmq")` by itself: `DefaultSource` is the data source class.

On its first look-up of an unknown format Spark imports every top-level module whose name starts
with `pyspark_`, and one that fails to import hides the formats of all the others. So this module
imports nothing, and answers "no such attribute" when the real source cannot be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tubemq_provider.spark.rocketmq import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tubemq_provider.spark.rocketmq import RocketMQDataSource
    except Exception as error:  # any failure here would hide the formats of other packages
        raise AttributeError(f'format("rocketmq") cannot be loaded: {error}') from error
    return RocketMQDataSource
