"""Servers of tests, as fixtures: the meaning of `mq`, `rocketmq`, `memory` and `settings`.

`mq` is an embedded TubeMQ on sockets, `memory` one without any, `rocketmq` an embedded RocketMQ,
and `settings` those of a client of `mq`. A module or a conftest defines its servers and their
scope: ``mq = embedded_tubemq([TopicSpec("orders")], brokers=2)``.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pytest

from tubemq_client import ClientSettings
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec

if TYPE_CHECKING:
    from rocketmq_client.embedded import EmbeddedRocketMQ

__all__ = [
    "client_settings",
    "embedded_rocketmq",
    "embedded_tubemq",
    "memory_tubemq",
    "settings",
    "speaking_otherwise",
]

Scope = Literal["function", "module", "session"]


def embedded_tubemq(
    topics: Iterable[TopicSpec | str],
    *,
    brokers: int = 1,
    scope: Scope = "function",
    by_clock: bool = False,
    http: bool = False,
    switches: Switches | None = None,
) -> Any:
    """Return a fixture `mq`. `by_clock`: its time is that of the fixture `clock`."""
    specs = [*topics]

    @pytest.fixture(scope=scope)
    def mq(request: pytest.FixtureRequest) -> Iterator[EmbeddedTubeMQ]:
        given = {"clock": request.getfixturevalue("clock")} if by_clock else {}
        with EmbeddedTubeMQ(brokers, specs, http=http, switches=switches, **given) as server:
            yield server

    return mq


def memory_tubemq(
    topics: Iterable[TopicSpec], *, brokers: int = 1, switches: Switches | None = None
) -> Any:
    """Return a fixture `memory`: a TubeMQ behind function calls."""
    from tubemq_client.testing.memory import MemoryTubeMQ

    specs = [*topics]

    @pytest.fixture
    def memory() -> MemoryTubeMQ:
        return MemoryTubeMQ(brokers, specs, switches=switches)

    return memory


def embedded_rocketmq(
    queues: int,
    *,
    topic: str = "orders",
    connection: Mapping[str, object] | None = None,
    **options: Any,
) -> Any:
    """Return a fixture `rocketmq` with a topic of `queues` queues on each broker. With members of a
    `connection`, Airflow finds it under the default name."""

    @pytest.fixture
    def rocketmq(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedRocketMQ]:
        from rocketmq_client.embedded import EmbeddedRocketMQ

        with EmbeddedRocketMQ(topics={topic: queues}, **options) as server:
            if connection is not None:
                host, port = server.name_server
                known = {"conn_type": "rocketmq", "host": f"{host}:{port}", **connection}
                monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", json.dumps(known))
            yield server

    return rocketmq


def client_settings(*, scope: Scope = "function", server: str = "mq", **options: Any) -> Any:
    """Return a fixture `settings` for a client of the fixture `server`."""

    @pytest.fixture(scope=scope)
    def settings(request: pytest.FixtureRequest) -> ClientSettings:
        running = request.getfixturevalue(server)
        return ClientSettings(masters=(running.master_address,), **options)

    return settings


settings = client_settings()


class _Other(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(1024)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def speaking_otherwise() -> Iterator[tuple[str, int]]:
    """Yield the address of a server of another protocol, on loopback."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Other) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield ("127.0.0.1", server.server_address[1])
        finally:
            server.shutdown()
            thread.join(5)
