"""Sensors: tasks that wait until a topic can be read, or until there is something to read.

Thin layer over the hook. They use the ends that a window would be planned with (stable ends by
default), since others would report data that a window may not read yet; `coverage` reads a sink's
markers.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
