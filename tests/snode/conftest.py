"""A node in front of an embedded RocketMQ, on its own loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Self

import pytest

from rocketmq_client import ClientSettings
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_snode import Snode, SnodeSettings
from tests.kit.servers import embedded_rocketmq
from tubemq_client.embedded.loop_thread import LoopThread


class Node:
    """Node on another thread, with blocking methods."""

    def __init__(self, settings: SnodeSettings) -> None:
        self._thread = LoopThread("test-snode")
        self._thread.start()
        self.node = self._thread.do(lambda: Snode(settings))

    def __enter__(self) -> Self:
        self._thread.wait(self.node.start)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.wait(self.node.stop)
        self._thread.stop()

    @property
    def address(self):
        return self.node.address

    @property
    def settings(self) -> ClientSettings:
        return ClientSettings((self.address,), route_period_ms=200)

    def do(self, work: Callable[[], Any]) -> Any:
        return self._thread.do(work)

    def kill(self) -> None:
        """Cut every connection and stop listening, without a drain."""
        self._thread.wait(self.node.abandon)


rocketmq = embedded_rocketmq(2, brokers=2)


@pytest.fixture
def start(rocketmq: EmbeddedRocketMQ) -> Iterator[Callable[..., Node]]:
    with ExitStack() as stack:

        def begin(**options: Any) -> Node:
            defaults = {
                "name_servers": (rocketmq.name_server,),
                "listen": ("127.0.0.1", 0),
                "discovery_period_ms": 100,
                "heartbeat_retry_ms": 50,
                "registry_period_ms": 200,
            }
            return stack.enter_context(Node(SnodeSettings(**(defaults | options))))

        yield begin
