"""One request in, one answer out: where it goes, and what is said when that fails.

Every request gets exactly one answer, unless it is one-way. Failures are answered with codes that
clients act on: 14 (no such broker, or it cannot be reached: producers try another), 2 (no answer in
time, or too much under way), 16 (not on an allow-list), 1 anything else; each remark begins with
``snode:``.
"""

from __future__ import annotations

from rocketmq_client import errors
from rocketmq_client._wire.commands import ANSWER, Command
from rocketmq_client.snode.members import Member
from rocketmq_client.snode.routing import (
    own_cluster_info,
    own_route,
    patience_ms,
    target_of,
    touched,
)
from rocketmq_client.snode.settings import SnodeSettings
from rocketmq_client.snode.upstream import Upstream

__all__ = ["Relay", "refusal"]


def refusal(request: Command, code: int, why: str) -> Command:
    """An answer of the node itself."""
    return Command(code, request.opaque, {}, b"", ANSWER, f"snode: {why}")


class Relay:
    """Answers requests for any client; holds nothing of one."""

    def __init__(self, settings: SnodeSettings, upstream: Upstream) -> None:
        self._settings = settings
        self._upstream = upstream
        self._ports = dict(settings.ports)

    async def answer(
        self, request: Command, member: Member, port_broker: str | None
    ) -> Command | None:
        """The answer; None for a one-way request. Does not raise, except when cancelled."""
        try:
            return await self._answer(request, member, port_broker)
        except errors.Busy as error:
            return refusal(request, 2, str(error))
        except errors.RpcTimeout as error:
            return refusal(request, 2, f"no answer in time: {error}")
        except errors.NetworkError as error:
            return refusal(request, 14, str(error))
        except errors.RocketMQError as error:
            return refusal(request, 1, str(error))
        except Exception as error:  # noqa: BLE001 - a client must get its answer, whatever failed
            return refusal(request, 1, f"internal failure: {type(error).__name__}")

    async def _answer(
        self, request: Command, member: Member, port_broker: str | None
    ) -> Command | None:
        target = target_of(request)
        refused = self._not_served(request)
        if refused is not None or target.kind == "nobody":
            return refused or refusal(request, 3, f"request type {request.code} is not served")
        if target.kind == "broker":
            broker = target.broker or port_broker
            return await self._to_broker(request, member, broker, any_broker=target.any_broker)
        if target.kind == "brokers":
            beats = request.code == 34
            return await (member.heartbeat if beats else member.unregister)(request)
        return await self._to_name_server(request, target.kind)

    def _not_served(self, request: Command) -> Command | None:
        topic, group = touched(request)
        settings = self._settings
        if topic and settings.topics and topic not in settings.topics:
            return refusal(request, 16, f"topic {topic!r} is not served here")
        if group and settings.groups and group not in settings.groups:
            return refusal(request, 16, f"group {group!r} is not served here")
        return None

    async def _to_broker(
        self, request: Command, member: Member, broker: str | None, *, any_broker: bool
    ) -> Command | None:
        if broker is None:
            if not self._upstream.info.brokers:
                await self._upstream.discover()
            masters = sorted(self._upstream.masters())
            if not masters:
                raise errors.ConnectError("no broker is there")
            if len(masters) > 1 and not any_broker:
                return refusal(
                    request,
                    1,
                    "the request names no broker and there are several; use a client of 4.9.5 or "
                    "later, or offer virtual ports (option ports)",
                )
            broker = masters[0]
        address = await self._upstream.address_of(broker)
        timeout_ms = patience_ms(request, self._settings.upstream_timeout_ms)
        bound = member.connection_to(broker)
        if bound is not None:
            return await bound.ask(address, request, timeout_ms)
        return await self._upstream.ask(address, request, timeout_ms)

    async def _to_name_server(self, request: Command, kind: str) -> Command:
        advertise = self._settings.advertise or self._settings.listen
        if kind == "cluster":
            info = await self._upstream.discover()
            body = own_cluster_info(info, advertise, self._ports)
            return Command(0, request.opaque, {}, body, ANSWER)
        if kind == "route":
            fields = {**request.fields, "acceptStandardJsonOnly": "true"}
            plain = Command(105, request.opaque, fields)
            answer = await self._upstream.ask_name_server(plain)
            if answer.code == 0:
                body = own_route(answer.body, advertise, self._ports)
                answer = answer._replace(body=body)
        else:
            answer = await self._upstream.ask_name_server(request)
        return answer._replace(opaque=request.opaque)
