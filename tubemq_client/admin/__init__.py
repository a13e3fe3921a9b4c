"""HTTP administration of masters and brokers: what only their web interfaces tell.

Needs the `admin` extra (httpx), imported when a client is made. Reads only, so far; nothing here
registers a consumer or moves a position.
"""

from tubemq_client.admin.client import AdminClient

__all__ = ["AdminClient"]
