"""The few HTTP administration calls that the launcher needs, through the standard library.

The real administration client is `tubemq_client.admin`; it needs httpx, and starting a server for a
test must not. Requests go straight to a loopback address, ignoring proxies of the environment.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tubemq_client.errors import ServerError, for_code

__all__ = ["WebApi", "WebUnreachable"]

# Per-item codes of modifications: done, nothing to do, exists already.
_ITEM_OK = frozenset({0, 200, 201, 402})


class WebUnreachable(OSError):
    """No JSON answer: no server listens yet, or it is still starting."""


class WebApi:
    """One server's HTTP administration. `path` is ``webapi.htm`` or ``broker.htm``."""

    def __init__(self, host: str, port: int, path: str, token: str = "") -> None:
        self._url = f"http://{host}:{port}/{path}"
        self._token = token
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def query(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the answer of a read. Raises `WebUnreachable`, or `ServerError` if refused."""
        return self._get(method, parameters, timeout_s=5.0)

    def modify(self, method: str, **parameters: object) -> None:
        """Send a change. An item that exists already counts as done; others raise."""
        words = {"confModAuthToken": self._token, **parameters}
        answer = self._get(method, words, timeout_s=30.0)
        for item in answer.get("data") or []:
            code = int(item.get("errCode", 0))
            if code not in _ITEM_OK:
                raise for_code(code, str(item.get("errInfo", "")), where=method)

    def _get(
        self, method: str, parameters: Mapping[str, object], *, timeout_s: float
    ) -> dict[str, Any]:
        words = {"method": method} | {key: str(value) for key, value in parameters.items()}
        url = f"{self._url}?{urllib.parse.urlencode(words)}"
        try:
            with self._opener.open(url, timeout=timeout_s) as response:
                answer = json.load(response)
        except (OSError, http.client.HTTPException, ValueError) as exc:
            reason = exc.reason if isinstance(exc, urllib.error.URLError) else exc
            raise WebUnreachable(f"{method}: {reason}") from exc
        if not isinstance(answer, dict) or not answer.get("result"):
            raise _refusal(method, answer)
        return answer


def _refusal(method: str, answer: object) -> ServerError:
    if not isinstance(answer, dict):
        return for_code(500, f"unexpected answer {answer!r:.200}", where=method)
    return for_code(int(answer.get("errCode", 500)), str(answer.get("errMsg", "")), where=method)
