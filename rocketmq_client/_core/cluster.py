"""State that all conversations share: name servers, signed requests, cached routes.

A name server holds no messages, and all of them have the same metadata, so any that answers is
used. A route is refreshed after `route_period_ms`, or when a caller found it stale. All threads or
tasks of a client share one instance; shared values are replaced as a whole.

Source: `docs/rocketmq-protocol/wire.md#signatures`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from rocketmq_client import errors
from rocketmq_client._wire import codes
from rocketmq_client._wire.bodies import (
    ClusterInfo,
    RuntimeInfo,
    TopicRoute,
    parse_cluster_info,
    parse_route,
    parse_runtime_info,
)
from rocketmq_client._wire.codec import Request
from rocketmq_client._wire.signature import signed
from tubemq_client._core.effects import Call, Now, Sleep

if TYPE_CHECKING:
    from rocketmq_client._wire.codes import Method
    from rocketmq_client._wire.commands import Command
    from rocketmq_client.model import Address, ClientSettings
    from tubemq_client._core.effects import Conversation

__all__ = ["Cluster"]

_PAUSES_MS: Final = (200, 400, 800, 1_600)
"""Pauses before a broker's runtime info is requested again after an internal failure."""


@dataclass(slots=True)
class Cluster:
    """Name servers, credentials and routes of one client."""

    settings: ClientSettings
    _turn: int = 0
    _routes: dict[str, tuple[int, TopicRoute]] = field(default_factory=dict)
    _moving: set[tuple[Address, str]] = field(default_factory=set)

    def request(
        self,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        wait_ms: int = 0,
        one_way: bool = False,
    ) -> Request:
        """Return a request signed with the client's credentials."""
        return Request(signed(fields, body, self.settings.auth), body, wait_ms, one_way)

    def call(
        self, address: Address, method: Method, fields: dict[str, str], body: bytes = b""
    ) -> Conversation[Command]:
        """Call `ask` with a request of these fields."""
        return (yield from self.ask(address, method, self.request(fields, body)))

    def ask(self, address: Address, method: Method, request: Request) -> Conversation[Command]:
        """Send a request that may be repeated: a look-up, or an idempotent change.

        Retried once after a broken connection, which the server may have closed long before (a
        restart, an idle timeout) without notice to the client. Raises `errors.ServerError` and
        `errors.NetworkError`.
        """
        try:
            return cast("Command", (yield Call(address, method, request)))
        except errors.ConnectionLost:
            return cast("Command", (yield Call(address, method, request)))

    def ask_name_server(
        self, method: Method, fields: dict[str, str], body: bytes = b""
    ) -> Conversation[Command]:
        """Send a request to the first name server that answers. A name server that has just started
        knows no topics yet, so the others are asked as well. Raises the last failure, or that no
        name server that answered knows the topic."""
        servers = self.settings.name_servers
        failure: errors.RocketMQError | None = None
        for _ in servers:
            address = servers[self._turn % len(servers)]
            try:
                return (yield from self.call(address, method, fields, body))
            except (errors.NetworkError, errors.UnknownTopic) as error:
                if not isinstance(failure, errors.UnknownTopic):
                    failure = error
                self._turn += 1
        raise failure or errors.ConfigError("name_servers: none is given")

    def route(self, topic: str, *, fresh: bool = False) -> Conversation[TopicRoute]:
        """Return the route of the topic. Raises `errors.UnknownTopic` if no broker has it."""
        now = yield Now()
        cached = self._routes.get(topic)
        if cached is not None and not fresh and now - cached[0] < self.settings.route_period_ms:
            return cached[1]
        answer = yield from self.ask_name_server(
            codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        route = parse_route(topic, answer.body)
        self._routes[topic] = (now, route)
        return route

    def knows(self, topic: str) -> bool:
        """Return True once a name server has answered with a route of the topic, even a stale
        one."""
        return topic in self._routes

    def forget_route(self, topic: str) -> None:
        """Drop the cached route; the next look-up asks a name server."""
        self._routes.pop(topic, None)

    def brokers(self) -> Conversation[ClusterInfo]:
        """Return all brokers of all clusters."""
        answer = yield from self.ask_name_server(codes.GET_BROKER_CLUSTER_INFO, {})
        return parse_cluster_info(answer.body)

    def runtime_info(self, address: Address, broker: str) -> Conversation[RuntimeInfo]:
        """Return a broker's runtime info. In the first second after its start a broker fails (code
        1, `NoSuchElementException`), so the request is repeated for 3 s. The broker name is for a
        service node in between, which routes by it."""
        method, fields = codes.GET_BROKER_RUNTIME_INFO, {"bname": broker}
        for pause_ms in _PAUSES_MS:
            try:
                answer = yield from self.call(address, method, fields)
                break
            except errors.BrokerFailure:
                yield Sleep(pause_ms)
        else:
            answer = yield from self.call(address, method, fields)
        info = parse_runtime_info(answer.body)
        if info.has_exact_minima:
            self._moving.add((address, broker))
        return info

    def has_exact_minima(self, address: Address, broker: str) -> bool:
        """Return True for a broker whose minimum offsets are known to be exact (see `RuntimeInfo`).
        Cached, because a 5.x broker needs a tenth of a second for its runtime info."""
        return (address, broker) in self._moving
