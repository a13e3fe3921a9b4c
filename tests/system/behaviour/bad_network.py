"""A network that breaks every few seconds between all clients of this process and their servers.

Every address that a client gets, masters and brokers alike, is reached through a fault proxy.
Servers announce their usual addresses: the route is changed where clients open connections, which
is the same for embedded and genuine servers. Only connections opened meanwhile are affected.
"""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import pytest

from tubemq_client import ClientSettings, Metadata
from tubemq_client._io import asyncio_pool, pool
from tubemq_client.testing.proxy import FaultProxy

Address = tuple[str, int]

_BYTES_TO_LIVE = (None, None, (50_000, 1_000_000))
"""Some connections end in the middle of a reply, whenever that is."""


def servers_of(settings: ClientSettings, topic: str) -> list[Address]:
    """Return the masters, and the brokers that have the topic."""
    with Metadata(settings) as metadata:
        brokers = metadata.topic(topic).brokers.values()
    return [*settings.masters, *((node.host, node.port) for node in brokers)]


class BadNetwork:
    """Cuts connections until its context is left; `every_s` is the mean time between two cuts."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, servers: list[Address], every_s: float, seed: int = 1
    ) -> None:
        self._proxies = {address: FaultProxy(address) for address in servers}
        self._every_s = every_s
        self._random = random.Random(seed)
        self._calm = threading.Event()
        self._thread = threading.Thread(target=self._keep_cutting, daemon=True)
        self._stack = ExitStack()
        for module in (pool, asyncio_pool):
            monkeypatch.setattr(module, "connect", self._detour(module.connect))

    def __enter__(self) -> Self:
        for proxy in self._proxies.values():
            self._stack.enter_context(proxy)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.calm()
        self._stack.close()

    @property
    def cuts(self) -> int:
        """Connections that were cut."""
        return sum(proxy.cuts for proxy in self._proxies.values())

    def begin(self) -> None:
        """Cut from now on."""
        self._thread.start()

    def calm(self) -> None:
        """Cut no more."""
        self._calm.set()
        if self._thread.is_alive():
            self._thread.join(10)
        for proxy in self._proxies.values():
            proxy.faults.cut_after = None

    def cut(self) -> None:
        """End the connections to all servers, once."""
        for proxy in self._proxies.values():
            proxy.cut()

    def swallow(self) -> int:
        """Silently drop the bytes of all open connections; return their number."""
        return sum(proxy.swallow() for proxy in self._proxies.values())

    def _keep_cutting(self) -> None:
        while not self._calm.wait(self._every_s * self._random.uniform(0.5, 1.5)):
            for proxy in self._random.choices(list(self._proxies.values()), k=2):
                limits = self._random.choice(_BYTES_TO_LIVE)
                proxy.faults.cut_after = limits and self._random.randrange(*limits)
                proxy.cut()

    def _detour(self, connect: Any) -> Any:
        def connect_elsewhere(address: Address, *how: Any) -> Any:
            proxy = self._proxies.get(address)
            return connect(proxy.address if proxy else address, *how)

        return connect_elsewhere
