"""Operators: tasks that move windows of a topic.

Thin over windows, sinks, engines and offset stores: they turn arguments and an Airflow context
into a `WindowRun`, run it, and hand back its result.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
