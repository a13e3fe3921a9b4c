"""What every blocking client object has: settings, a driver, an identity, a closing brace.

Private to `sync`. Process id and wall clock are read here, once, so that `_core` need not.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from typing import TYPE_CHECKING, Self

from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession
from tubemq_client._io.driver import BlockingDriver

if TYPE_CHECKING:
    from types import TracebackType

    from tubemq_client.model import ClientSettings

__all__ = ["BlockingClient"]


_NUMBERS = itertools.count(1)
"""Shared by all clients of the process; a forked child differs by its process id."""


def local_ipv4() -> str:
    """An IPv4 address of this machine in text form; loopback if the name does not resolve."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


class BlockingClient:
    """Base of the blocking shell's classes. Opens nothing until first used."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._driver = BlockingDriver(settings)
        host = local_ipv4()
        self._ids = ClientIds(host, os.getpid(), time.time_ns() // 1_000_000, _NUMBERS)
        self._session = MasterSession(settings.masters, host)

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
        self._driver.close()
