"""The Spark data source `format("tubemq")`: bounded, exact reads of TubeMQ topics.

`options` checks what users write, `planning` fixes offsets once, `splits` cuts them into tasks,
`rows` shapes batches, `source` is what Spark calls, `session` is what applications call. Importing
this package is light and imports no pyspark. It must not import airflow.
"""

from tubemq_provider.spark.session import freeze, register, spark_artifacts, spark_options

__all__ = ["freeze", "register", "spark_artifacts", "spark_options"]
