"""The Spark data source `format("tubemq")`: bounded and streaming reads, exact; and writes.

`options` checks what users write, `range_planner` fixes offsets once, `splits` cuts them into
tasks, `reading` and `batch_reader` read them there, `rows` shapes batches. `source` is what Spark
calls, `stream` for micro-batches, `writing` for writes, `session` what applications call.
`direct_write_tasks` and `frame_write_tasks` are what tasks of an ingest run: they write the files
themselves; `attempts` keeps tries of a task apart, `carried` and `credentials_file` bring them what
must stay secret, `mends` says what failures of Spark mean. Importing this package is light and
imports no pyspark. It must not import airflow.
"""

from tubemq_provider.spark.session import freeze, register, spark_artifacts, spark_options

__all__ = ["freeze", "register", "spark_artifacts", "spark_options"]
