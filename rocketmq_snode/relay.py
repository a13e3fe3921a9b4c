"""One request in, one answer out: the target of a request, and the answer when it fails.

Every request gets exactly one answer, unless it is one-way. Failures are answered with codes that
clients act on: 14 (no such broker, or it cannot be reached: producers try another), 2 (no answer in
time, or too many requests in flight), 13 (larger than the frame limit), 16 (not on an allow-list),
1 for all others; each remark begins with ``snode:``. Producers read 2 and 14 as "certainly not
stored", so a send that was forwarded and not answered gets code 1: it may have been stored.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_client import errors
from rocketmq_client._wire.bodies import parse_route
from rocketmq_client._wire.commands import ANSWER, Command
from rocketmq_client.model import Address, address_text
from rocketmq_snode.access import Access, AccessDenied
from rocketmq_snode.members import Member
from rocketmq_snode.routing import (
    LITE_PULL,
    PULL,
    PULLS,
    answer_timeout_ms,
    joined_queues,
    node_cluster_info,
    node_route,
    target_of,
)
from rocketmq_snode.settings import SnodeSettings
from rocketmq_snode.upstream import Upstream

__all__ = ["Relay", "refusal", "refusal_of", "unanswered"]

_NOT_SUPPORTED = 3
_STORES = frozenset({10, 36, 37, 310, 320})
"""Sends, send back, end of a transaction: a repeated request stores the record twice."""
_GONE_OUT = (errors.ConnectionLost, errors.RpcTimeout)


def refusal(request: Command, code: int, why: str) -> Command:
    """Build an answer of the node itself."""
    return Command(code, request.opaque, {}, b"", ANSWER, f"snode: {why}")


def refusal_of(request: Command, error: errors.RocketMQError) -> Command:
    """Return the client's answer for a failure."""
    match error:
        case errors.Busy():
            return refusal(request, 2, str(error))
        case errors.RpcTimeout():
            return refusal(request, 2, f"no answer in time: {error}")
        case AccessDenied():
            return refusal(request, 16, str(error))
        case errors.NetworkError():
            return refusal(request, 14, str(error))
        case errors.IllegalRequest():
            return refusal(request, 13, error.detail)
    return refusal(request, 1, str(error))


def unanswered(request: Command, error: errors.RocketMQError) -> Command:
    """Return the client's answer for a failure after its request was sent to a broker."""
    if request.code in _STORES and isinstance(error, _GONE_OUT):
        return refusal(request, 1, f"it may have been stored: {error}")
    return refusal_of(request, error)


class Relay:
    """Answers requests of all clients; keeps no state of a client."""

    def __init__(
        self,
        settings: SnodeSettings,
        upstream: Upstream,
        access: Access,
        clients: Callable[[], int],
    ) -> None:
        self._settings = settings
        self.clients = clients
        self._upstream = upstream
        self._access = access
        self._ports = dict(settings.ports)

    async def answer(
        self, request: Command, member: Member, port_broker: str | None, slot: int
    ) -> Command | None:
        """Return the answer; None for a one-way request. Does not raise, except when cancelled."""
        try:
            return await self._answer(request, member, port_broker, slot)
        except errors.RocketMQError as error:
            return refusal_of(request, error)
        except Exception as error:  # noqa: BLE001 - a client must get its answer, whatever failed
            return refusal(request, 1, f"internal failure: {type(error).__name__}")

    async def _answer(
        self, request: Command, member: Member, port_broker: str | None, slot: int
    ) -> Command | None:
        target = target_of(request)
        self._access.authorize(request.code, request.fields)
        self._access.authorize_body(request)
        if target.kind == "nobody":
            why = "is not served by a node: ask the brokers themselves"
            return refusal(request, 3, f"request type {request.code} {why}")
        if target.kind == "name servers":
            await self._upstream.send_to_name_servers(request)
            return Command(0, request.opaque, {}, flag=ANSWER)
        if target.kind == "administration":
            named = target.broker or port_broker
            return await self._to_all(request, member, [named] if named else None, slot)
        if target.kind == "broker":
            broker = target.broker or port_broker
            if broker is None and target.any_of_topic:
                return await self._to_holder(request, member, slot)
            broker = broker or await self._only_broker(target.any_broker)
            return await self._to_broker(request, member, broker, slot)
        if target.kind == "brokers":
            beats = request.code == 34
            return await (member.heartbeat if beats else member.unregister)(request)
        return await self._to_name_server(request, target.kind)

    async def _only_broker(self, any_broker: bool) -> str:  # noqa: FBT001 - one caller
        """Return the broker of a request that names none."""
        if not self._upstream.info.brokers:
            await self._upstream.discover()
        masters = sorted(self._upstream.masters())
        if not masters:
            raise errors.ConnectError("no broker is available")
        if len(masters) > 1 and not any_broker:
            raise errors.LocalError(
                "the request names no broker and there are several; use a client of 4.9.5 or "
                "later, or offer virtual ports (option ports)"
            )
        return masters[0]

    async def _to_broker(
        self, request: Command, member: Member, broker: str, slot: int
    ) -> Command | None:
        address = await self._upstream.address_of(broker)
        if request.code not in PULLS:
            return await self._ask_broker(request, member, broker, address, slot)
        others = member.pulls - 1  # the client counts this one already
        if not self._upstream.admits_pull(address_text(address), others, self.clients()):
            raise errors.Busy(2, "too many pulls are in flight to this broker")
        load = self._upstream.load_of(address_text(address))
        load.pulls += 1
        try:
            return await self._ask_broker(request, member, broker, address, slot)
        finally:
            load.pulls -= 1

    async def _ask_broker(
        self, request: Command, member: Member, broker: str, address: Address, slot: int
    ) -> Command | None:
        wait_ms = answer_timeout_ms(
            request.code, request.fields, self._settings.upstream_timeout_ms
        )
        bound = member.connection_to(broker)

        async def ask(asked: Command) -> Command | None:
            try:
                if bound is not None:
                    return await bound.ask(address, asked, wait_ms)
                return await self._upstream.ask(address, asked, wait_ms, slot)
            except _GONE_OUT as error:
                if asked.code not in _STORES:
                    raise
                return unanswered(asked, error)

        if request.code != LITE_PULL:
            return await ask(request)
        # Brokers of 4.9 do not know lite pulls; they know the same request as code 11.
        without_lite, name = self._upstream.without_lite, address_text(address)
        if without_lite.get(name) is not True:
            answer = await ask(request)
            without_lite[name] = answer is not None and answer.code == _NOT_SUPPORTED
            if not without_lite[name]:
                return answer
        return await ask(request._replace(code=PULL))

    async def _to_all(
        self, request: Command, member: Member, brokers: list[str] | None, slot: int
    ) -> Command | None:
        """Return one answer for a request to several brokers (None: all): the first refusal, else
        a success with the queues of all."""
        if brokers is None:
            await self._upstream.discover()
            brokers = sorted(self._upstream.masters())
        if not brokers:
            raise errors.ConnectError("no broker is available")
        answers = []
        for broker in brokers:
            answer = await self._to_broker(request, member, broker, slot)
            if answer is None:
                continue
            if answer.code != 0:
                return answer._replace(remark=f"{broker}: {answer.remark or 'no reason given'}")
            answers.append(answer)
        if not answers:
            return None
        return answers[0]._replace(body=joined_queues([answer.body for answer in answers]))

    async def _to_holder(self, request: Command, member: Member, slot: int) -> Command | None:
        """Return the answer of the first reachable broker that has the topic."""
        topic = request.fields.get("topic", "")
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = await self._upstream.ask_name_server(Command(105, 0, fields))
        if answer.code != 0:
            return answer._replace(opaque=request.opaque)
        failure: errors.RocketMQError = errors.ConnectError("no broker of this topic is available")
        for broker in sorted(parse_route(topic, answer.body).masters()):
            try:
                return await self._to_broker(request, member, broker, slot)
            except errors.NetworkError as error:
                failure = error
        raise failure

    async def _to_name_server(self, request: Command, kind: str) -> Command:
        advertise = self._settings.advertise or self._settings.listen
        if kind == "cluster":
            info = await self._upstream.discover()
            body = node_cluster_info(info, advertise, self._ports)
            return Command(0, request.opaque, {}, body, ANSWER)
        if kind == "route":
            fields = {**request.fields, "acceptStandardJsonOnly": "true"}
            plain = Command(105, request.opaque, fields)
            answer = await self._upstream.ask_name_server(plain)
            if answer.code == 0:
                body = node_route(answer.body, advertise, self._ports)
                answer = answer._replace(body=body)
        else:
            answer = await self._upstream.ask_name_server(request)
        return answer._replace(opaque=request.opaque)
