"""Spark data source `format("tubemq")`: exact bounded and streaming reads; and writes.

`options` validates user options, `range_planner` resolves offsets once, `splits` cuts them into
tasks, `reading` and `batch_reader` read them there, `rows` shapes batches. `source` is the entry
point for Spark, `stream` for micro-batches, `writing` for writes, `session` for applications.
`direct_write_tasks` and `frame_write_tasks` run in the tasks of an ingest and write the files
themselves; `attempts` names files of task attempts, `connect_secrets` and `credentials_file` pass
secrets to tasks, `error_hints` explains failures of Spark. Importing this package is light and
imports no pyspark. It must not import airflow.
"""

from tubemq_provider.spark.options import spark_options
from tubemq_provider.spark.session import freeze, register, spark_artifacts

__all__ = ["freeze", "register", "spark_artifacts", "spark_options"]
