"""TubeMQ as a source: what its offsets and keys mean, how it is asked and read.

`space` is the value that all arithmetic goes by, `columns` what a record consists of, `source` what
planning and engines ask. Only here, and in the client, may code know an index entry's size, a store
or a broker's number.
"""

from typing import Final

__all__ = ["SPARK"]

SPARK: Final = "tubemq_provider.spark.source"
"""Its half in Spark; see `spark.formats`."""
