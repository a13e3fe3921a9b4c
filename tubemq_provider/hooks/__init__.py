"""Airflow connections turned into clients, sinks and settings of Spark.

The only room that knows what the fields of a connection mean; other rooms get one from Airflow at
most, and hand it over. `connection` judges the fields; `aio`, `admin` and the modules named after a
kind of source make clients of them and close them; `sink_connection` and `spark_connection` are for
other places. What a window is or where progress lives is not theirs to know.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
