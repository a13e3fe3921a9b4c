"""The driver of a streaming job on a cluster, in a separate process.

Run as ``-m tools.drill.stream_driver``.

Its order comes as JSON on standard input: a cluster, options of the source, a sink (`parquet` or
`delta`), a folder, and whether to run forever or up to the present end. In the second case the
table's content is saved in the folder as `content.parquet`, as readers of the sink see it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tubemq_provider.engines.spark_runtime import open_session
from tubemq_provider.spark import register

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["main"]

APP: Final = "drill-stream"
COLUMNS: Final = ["partition", "value"]


def main(order: dict[str, Any]) -> None:
    """Run the query; with `last`, until the present end is read."""
    folder = Path(order["folder"])
    spark, _ = open_session(order["master"], order["conf"])
    register(spark)
    frame = spark.readStream.format("tubemq").options(**order["options"]).load()
    writer = _into(order["sink"], frame.select(*COLUMNS), str(folder / "table"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    trigger = {"availableNow": True} if order["last"] else {"processingTime": "0 seconds"}
    writer.trigger(**trigger).start().awaitTermination()
    if order["last"]:
        import pyarrow.parquet as pq

        pq.write_table(_content(spark, order["sink"], str(folder / "table")), folder / "content")
        (folder / "content").replace(folder / "content.parquet")
    spark.stop()


def _into(sink: str, frame: DataFrame, table: str) -> Any:
    if sink == "parquet":
        return frame.writeStream.format("parquet").option("path", table)
    return frame.writeStream.foreachBatch(delta_batch(table, APP))


def delta_batch(table: str, app: str) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that commits each batch once.

    It uses the table's own record of the last batch of `app`: delta-rs refuses a second transaction
    of one application and version.
    """

    def commit(batch: DataFrame, batch_id: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        if DeltaTable.is_deltatable(table):
            last = DeltaTable(table).transaction_version(app)
            if last is not None and last >= batch_id:
                return
        once = CommitProperties(app_transactions=[Transaction(app, batch_id)])
        write_deltalake(table, batch.toArrow(), mode="append", commit_properties=once)

    return commit


def _content(spark: SparkSession, sink: str, table: str) -> pa.Table:
    if sink == "parquet":
        return spark.read.parquet(table).select(*COLUMNS).toArrow()
    from deltalake import DeltaTable

    return DeltaTable(table).to_pyarrow_table(columns=COLUMNS)


if __name__ == "__main__":
    main(json.load(sys.stdin))
