"""Operators: tasks that move windows of a topic, and administrative tasks.

Airflow's side only: `operators.ingest` holds the ingest operators, which turn their arguments and
an Airflow context into an `ingest.job`, run it and return its result. The meaning of arguments, and
the assembly of source, sink and engine, is in `tubemq_provider.ingest`. `planning` is for your own
tasks, `produce` sends records, `sample` and `offsets` maintain boundaries and progress.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
