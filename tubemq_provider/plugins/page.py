"""The plugin: where the page is mounted, and where Airflow's menus show it.

Airflow loads plugins in every process, tasks included, and hides one with a wrong field without a
word. So this module imports nothing but the base class, and the application behind the page is
built when the API server is first asked for it. ``[tubemq] page = False`` leaves the page out.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

__all__ = ["Page", "TubeMQPlugin"]

_MOUNT = "/tubemq"


class Page:
    """The page as an ASGI application, which is built when it is first asked for something."""

    _app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if self._app is None:
            from tubemq_provider.plugins.app import build

            self._app = build()
        await self._app(scope, receive, send)


def _wanted() -> bool:
    """Whether there shall be a page; not before Airflow 3.3, the first with asset state."""
    return (
        conf.getboolean("tubemq", "page", fallback=True) and find_spec("airflow.state") is not None
    )


def _href(query: str = "") -> str:
    """The page's address, below the path that Airflow is served at."""
    base = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return f"{base}{_MOUNT}/{query}"


class TubeMQPlugin(AirflowPlugin):
    """The page under *Browse*, and as a tab on each Dag."""

    name = "tubemq"
    fastapi_apps: list[Any] = (
        [{"app": Page(), "url_prefix": _MOUNT, "name": "TubeMQ windows"}] if _wanted() else []
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
        if _wanted()
        else []
    )
