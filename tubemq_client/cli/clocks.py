"""Difference between a master's clock and this machine's, from the date its web server sends.

In whole seconds, the resolution of HTTP dates. Requests one page, follows no redirect and needs no
optional package. Only `doctor` uses it.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime

from tubemq_client.admin import web_urls

__all__ = ["clock_difference_s"]

_PAGE = "/webapi.htm?method=admin_query_server_version"


def clock_difference_s(admin: str, timeout_s: float) -> float | None:
    """Return the seconds a master is ahead of this machine (negative: behind), None if unknown."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for url in web_urls(admin):
        before = time.time()
        try:
            with opener.open(f"{url}{_PAGE}", timeout=timeout_s) as reply:
                date = reply.headers.get("date")
        except urllib.error.HTTPError as error:
            date = error.headers.get("date")
        except (OSError, ValueError, http.client.HTTPException):  # no web server, perhaps
            continue
        try:
            # A date is truncated to its second: the middle is the best guess.
            server_time = parsedate_to_datetime(date).timestamp() + 0.5
        except (TypeError, ValueError, OverflowError):  # missing or malformed
            continue
        return server_time - (before + time.time()) / 2
    return None
