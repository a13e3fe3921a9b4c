"""Sensors: tasks that wait until a topic can be read, or until there is something to read.

Thin over the hook. They look at ends exactly as a window would plan them (stable ends by default),
or they would ring for data that a window may not take yet; `coverage` looks at a sink's markers.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
