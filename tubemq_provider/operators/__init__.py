"""Operators: tasks that move windows of a topic, and what belongs around them.

Airflow's side only: `operators.ingest` holds the ingest operators, which turn their arguments and
an Airflow context into an `ingest.job`, run it and hand back its result. What arguments mean, and
how source, sink and engine come together, is in `tubemq_provider.ingest`. `planning` is for tasks
of one's own, `produce` sends, `sample` and `offsets` look after boundaries and progress.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
