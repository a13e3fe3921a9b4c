"""Airflow connections turned into TubeMQ clients.

The only room that reads an Airflow connection. Hooks validate, build clients and close them; what
a window is or where progress lives is not theirs to know.
"""

from tubemq_client.errors import require_extra

try:
    import airflow.sdk  # noqa: F401 - its absence is answered here, once for the whole room
except ImportError as error:
    raise require_extra("airflow", error) from error
