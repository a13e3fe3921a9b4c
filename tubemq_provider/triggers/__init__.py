"""Triggers: what waits for a topic without holding a worker slot, in Airflow's triggerer.

They ask brokers and asset state on asyncio (`applications` looks at the folder of a Spark
application), read no records and move no offsets. Trouble of brokers and of the API server is
waited out, never raised: Airflow starts a watcher that raises anew every two seconds, for ever.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
