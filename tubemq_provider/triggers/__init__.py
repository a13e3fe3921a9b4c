"""Triggers: wait for a topic without a worker slot, in Airflow's triggerer.

They query brokers and asset state on asyncio (`applications` polls the folder of a Spark
application), read no windows and move no offsets. Errors of brokers and of the API server are
waited out, never raised: Airflow restarts a watcher that raises every two seconds, for ever.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
