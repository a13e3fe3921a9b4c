"""Operators: tasks that move windows of a topic.

Airflow's side only: `operators.ingest` holds the ingest operators, which turn their arguments and
an Airflow context into an `ingest.job`, run it and hand back its result. What arguments mean, and
how source, sink and engine come together, is in `tubemq_provider.ingest`.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
