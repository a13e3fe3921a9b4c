"""Discovery of `format("tubemq")` by Spark: `DefaultSource` is the data source class.

On its first look-up of an unknown format Spark imports every top-level module whose name starts
with `pyspark_`, and one that fails to import hides the formats of all the others. So this module
imports nothing, and raises `AttributeError` when the real source cannot be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tubemq_provider.spark.source import TubeMQDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tubemq_provider.spark.source import TubeMQDataSource
    except ModuleNotFoundError as error:
        from tubemq_client.errors import require_extra

        reason = require_extra("spark", error)
        raise AttributeError(f'format("tubemq") cannot be loaded: {reason}') from error
    except Exception as error:  # any other exception would hide the formats of other packages
        raise AttributeError(f'format("tubemq") cannot be loaded: {error}') from error
    return TubeMQDataSource
