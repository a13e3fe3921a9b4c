"""TubeMQ as a source: meaning of its offsets and keys, queries and reads.

`space` defines the arithmetic of offsets, `columns` the columns of a record, `source` serves
planning and engines. Only here, and in the client, may code depend on an index entry's size, a
store or a broker's number.
"""

from typing import Final

__all__ = ["SPARK"]

SPARK: Final = "tubemq_provider.spark.source"
"""Module of its Spark format; see `spark.formats`."""
