"""Airflow hooks: connections turned into clients, sinks and settings of Spark.

The only room that interprets the fields of a connection; other rooms only pass a connection on.
`connection` validates the fields; `aio`, `admin` and the modules named after a kind of source
create clients from them and close them; `sink_connection` and `spark_connection` serve sinks and
engines. This room must not know windows or the storage of progress.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
