"""What every conversation shares: name servers in turn, signed requests, routes that are kept.

A name server holds no messages and all of them know the same, so any that answers will do. A route
is asked for again after `route_period_ms`, or when a caller says that it looked stale. One value
serves all threads or tasks of a client; what they may overwrite is replaced whole.

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
"""Before a broker that fails inside is asked again what it says of itself."""


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
        """A request signed with the client's credentials."""
        return Request(signed(fields, body, self.settings.auth), body, wait_ms, one_way)

    def call(
        self, address: Address, method: Method, fields: dict[str, str], body: bytes = b""
    ) -> Conversation[Command]:
        """As `ask`, for a request of these fields."""
        return (yield from self.ask(address, method, self.request(fields, body)))

    def ask(self, address: Address, method: Method, request: Request) -> Conversation[Command]:
        """One request that may be repeated: a look-up, or a change that does nothing twice.

        A connection that breaks is tried once more, because it may have been closed long before (a
        restart, an idle time) and nobody noticed. Raises `errors.ServerError` and
        `errors.NetworkError`."""
        try:
            return cast("Command", (yield Call(address, method, request)))
        except errors.ConnectionLost:
            return cast("Command", (yield Call(address, method, request)))

    def ask_name_server(
        self, method: Method, fields: dict[str, str], body: bytes = b""
    ) -> Conversation[Command]:
        """One request to the first name server that answers; one that has just started knows no
        topics yet, so the others are asked as well. Raises the last one's failure, or that all who
        answered know no such topic."""
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
        """Where the topic is. Raises `errors.UnknownTopic` when no broker says that it has it."""
        now = yield Now()
        known = self._routes.get(topic)
        if known is not None and not fresh and now - known[0] < self.settings.route_period_ms:
            return known[1]
        answer = yield from self.ask_name_server(
            codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        route = parse_route(topic, answer.body)
        self._routes[topic] = (now, route)
        return route

    def knows(self, topic: str) -> bool:
        """Whether a name server has told where the topic is, even if long ago."""
        return topic in self._routes

    def forget_route(self, topic: str) -> None:
        """The next look-up asks a name server."""
        self._routes.pop(topic, None)

    def brokers(self) -> Conversation[ClusterInfo]:
        """All brokers of all clusters."""
        answer = yield from self.ask_name_server(codes.GET_BROKER_CLUSTER_INFO, {})
        return parse_cluster_info(answer.body)

    def runtime_info(self, address: Address, broker: str) -> Conversation[RuntimeInfo]:
        """What a broker says of itself now. In the first second after its start it fails (code 1,
        `NoSuchElementException`), so it is asked again for 3 s. The name is for a service node in
        between, which chooses brokers by it."""
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
        if info.moves_minima:
            self._moving.add((address, broker))
        return info

    def moves_minima(self, address: Address, broker: str) -> bool:
        """Whether the broker is known as one whose minima can be taken at their word (see
        `RuntimeInfo`): asking a 5.x broker what it says of itself costs it a tenth of a second."""
        return (address, broker) in self._moving
