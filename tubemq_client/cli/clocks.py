"""How far a master's clock is from this machine's, by the date that its web server sends.

Whole seconds: HTTP dates have no more. Asks one page, follows nothing and needs no optional
package. Only `doctor` uses it.
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
    """Seconds that a master is ahead of this machine (negative: behind); None if none tells."""
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
            # A date is cut to its second: its middle is the best guess.
            told = parsedate_to_datetime(date).timestamp() + 0.5
        except (TypeError, ValueError, OverflowError):  # none, or one that is odd
            continue
        return told - (before + time.time()) / 2
    return None
