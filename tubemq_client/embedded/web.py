"""HTTP for the administration: one route, any path, GET or POST, over starlette and uvicorn.

The only module that imports them, and only `runtime` imports it, when HTTP is on. It parses
parameters and writes bodies; their meaning belongs to `http_admin` and `http_broker`. A listener
runs on the embedded server's own event loop and on a socket bound before.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

from tubemq_client.embedded.broker import Broker
from tubemq_client.embedded.http_admin import MasterAdmin
from tubemq_client.embedded.http_broker import BrokerAdmin
from tubemq_client.embedded.master import Master
from tubemq_client.embedded.scripted_replies import ScriptedPages
from tubemq_client.errors import require_extra

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError as exc:
    raise require_extra("embedded", exc) from exc

__all__ = ["WebListener", "broker_app", "master_app"]

_POLL_S = 0.01
_START_POLLS = 500
_MOST_BODY_BYTES = 1 << 20

Reply = Callable[[Mapping[str, str]], tuple[str, str | None]]


def master_app(master: Master) -> Starlette:
    return _app(MasterAdmin(master).reply, master.scripted_pages, lambda: master.standby)


def broker_app(broker: Broker) -> Starlette:
    return _app(BrokerAdmin(broker).reply, broker.scripted_pages)


def _app(
    reply: Reply, orders: ScriptedPages, stands_by: Callable[[], bool] = lambda: False
) -> Starlette:
    async def answer(request: Request) -> Response:
        refused = _refusal(request)
        if refused is not None:
            return Response(f"{refused}\n", 403, media_type="text/plain")
        ordered = orders.take()
        if ordered is not None:
            return Response(ordered.body, ordered.status, headers=ordered.headers)
        if stands_by():
            # Real ones name the active master's host and their own port. All are on one host here.
            return Response(status_code=302, headers={"location": str(request.url)})
        values = dict(request.query_params)
        if request.method == "POST":
            # Parsed by hand: starlette's form parser needs one more package.
            body_bytes = bytearray()
            async for chunk in request.stream():
                body_bytes += chunk
                if len(body_bytes) > _MOST_BODY_BYTES:
                    return Response("the request is too long\n", 413, media_type="text/plain")
            values |= parse_qsl(body_bytes.decode("utf-8", "replace"), keep_blank_values=True)
        body, content_type = reply(values)
        # Real servers send no content type with JSON.
        headers = {"content-type": content_type} if content_type else None
        return Response(body, headers=headers)

    return Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])


def _refusal(request: Request) -> str | None:
    """Return why a request is refused, None if it is served.

    A web page may have sent it from the user's browser, through a DNS name that resolves to this
    machine, or across sites. Browsers are recognised by headers that only they send.
    """
    host = request.headers.get("host", "")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if not _is_loopback(name):
        return "this server is reached by localhost or an address of loopback only (Host)"
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return "pages of other sites are not served (Origin)"
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "pages of other sites are not served (Sec-Fetch-Site)"
    return None


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name.lower().rstrip(".") == "localhost"


class WebListener:
    """An application on a bound socket."""

    def __init__(self, app: Starlette) -> None:
        config = uvicorn.Config(
            app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self, sock: socket.socket) -> None:
        """Wait until requests are accepted."""
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]))
        for _ in range(_START_POLLS):
            if self._server.started or self._task.done():
                break
            await asyncio.sleep(_POLL_S)
        if not self._server.started:
            raise RuntimeError("the HTTP listener did not start")

    async def stop(self) -> None:
        if self._task is None:
            return
        self._server.should_exit = True
        await self._task
        self._task = None
