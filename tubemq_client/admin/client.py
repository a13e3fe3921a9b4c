"""A blocking client of the HTTP interfaces of masters (`/webapi.htm`) and brokers (`/broker.htm`).

Both answer 200 with a JSON body that says whether the request succeeded, so the body decides, not
the status. Broker addresses come from the master; their interfaces ask for no credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tubemq_client import errors
from tubemq_client.model import Partition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from types import TracebackType

__all__ = ["AdminClient"]

_NO_RECORD = -2


class AdminClient:
    """Asks masters and brokers over HTTP. A context manager; every call blocks.

    `urls` are HTTP addresses of masters (``http://host:8080``), tried in order; a stand-by answers
    with a redirect, which is followed. Raises `errors.ConnectError` when nobody answers,
    `errors.ServerError` when a request is refused, `errors.ProtocolViolation` for other bodies.
    """

    def __init__(self, urls: Sequence[str], *, timeout_ms: int = 10_000) -> None:
        try:
            import httpx
        except ImportError as exc:
            raise errors.require_extra("admin", exc) from exc
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._http = httpx.Client(timeout=timeout_ms / 1000, follow_redirects=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. Safe to call twice."""
        self._http.close()

    def broker_urls(self) -> dict[int, str]:
        """HTTP address of every configured broker, by broker id."""
        body = self._master("admin_query_broker_configure")
        return {
            int(row["brokerId"]): f"http://{row['brokerIp']}:{row['brokerWebPort']}"
            for row in body.get("data", [])
        }

    def group_offsets(
        self, topic: str, group: str, broker_ids: Collection[int] | None = None
    ) -> dict[Partition, int]:
        """Confirmed positions of `group`, asked of the brokers in `broker_ids` (default: all).

        Partitions without a position are missing. A broker lists a new group up to 5 s late.
        """
        found: dict[Partition, int] = {}
        for broker_id, url in sorted(self.broker_urls().items()):
            if broker_ids is not None and broker_id not in broker_ids:
                continue
            body = self._call(
                f"{url}/broker.htm", "admin_query_offset", topicName=topic, groupName=group
            )
            found.update(_positions(body, broker_id, topic, group))
        return found

    def _master(self, method: str, **parameters: str) -> dict[str, Any]:
        failure: errors.ConnectError | None = None
        for url in self._urls:
            try:
                return self._call(f"{url}/webapi.htm", method, **parameters)
            except errors.ConnectError as exc:
                failure = exc
        raise failure or errors.ConfigError("no HTTP address of a master", subject="admin")

    def _call(self, url: str, method: str, **parameters: str) -> dict[str, Any]:
        import httpx

        try:
            reply = self._http.get(url, params={"method": method, **parameters})
            body = reply.json()
        except httpx.TransportError as exc:
            raise errors.ConnectError(f"{method} at {url}: {exc}") from exc
        except ValueError as exc:
            raise errors.ProtocolViolation(f"{method} at {url}: the answer is not JSON") from exc
        if not isinstance(body, dict) or "result" not in body:
            raise errors.ProtocolViolation(f"{method} at {url}: no result in the answer")
        if not body["result"]:
            code = int(body.get("errCode", 500))
            raise errors.for_code(code, str(body.get("errMsg", "")), where=f"{method} at {url}")
        return body


def _positions(
    body: dict[str, Any], broker_id: int, topic: str, group: str
) -> dict[Partition, int]:
    """Positions in a reply to `admin_query_offset`."""
    return {
        Partition(broker_id, topic, int(row["partitionId"])): int(row["curOffset"])
        for entry in body.get("dataSet", [])
        if entry["groupName"] == group
        for info in entry["subInfo"]
        if info["topicName"] == topic
        for row in info["offsets"]
        if int(row["curOffset"]) != _NO_RECORD
    }
