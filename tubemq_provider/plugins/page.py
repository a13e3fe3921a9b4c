"""Plugin class: mount point of the page, and its entries in Airflow's menus.

Airflow loads plugins in every process, tasks included, and silently hides one with a wrong field.
So this module imports only the base class, and the application behind the page is built when the
API server gets the first request for it. ``[tubemq] page = False`` disables the page.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

_MOUNT = "/tubemq"


class Page:
    """ASGI application of the page, built on the first request."""

    _app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request."""
        if self._app is None:
            from tubemq_provider.plugins.app import build

            self._app = build()
        await self._app(scope, receive, send)


def _is_enabled() -> bool:
    """Return True if the page is enabled; needs Airflow 3.3, the first with asset state."""
    return (
        conf.getboolean("tubemq", "page", fallback=True) and find_spec("airflow.state") is not None
    )


def _href(query: str = "") -> str:
    """Return the page's address, below the base path of Airflow."""
    base = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return f"{base}{_MOUNT}/{query}"


class TubeMQPlugin(AirflowPlugin):
    """Plugin with the page under *Browse*, and as a tab on each Dag."""

    name = "tubemq"
    fastapi_apps: list[Any] = (
        [{"app": Page(), "url_prefix": _MOUNT, "name": "TubeMQ windows"}] if _is_enabled() else []
    )
    external_views: list[Any] = (
        [
            {
                "name": "TubeMQ windows",
                "href": _href(),
                "destination": "nav",
                "category": "browse",
                "url_route": "tubemq-windows",
            },
            {
                "name": "TubeMQ windows",
                "href": _href("?dag_id={DAG_ID}"),
                "destination": "dag",
                "url_route": "tubemq-windows-of-dag",
            },
        ]
        if _is_enabled()
        else []
    )
