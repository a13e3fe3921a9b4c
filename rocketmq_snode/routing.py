"""Target of a request, from the request alone; and routes that name the node.

Pure. A broker is chosen by its *name*, which clients since 4.9.5 send with every request, never by
an address from a client. The name server resolves names to addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from rocketmq_client._wire.bodies import ClusterInfo
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.json_text import read_json, write_json
from rocketmq_client.errors import ProtocolViolation
from rocketmq_client.model import Address, address_text

__all__ = [
    "ADMINISTRATION",
    "FORWARDED",
    "LITE_PULL",
    "PULL",
    "PULLS",
    "Target",
    "answer_timeout_ms",
    "broker_in",
    "joined_queues",
    "may_wait",
    "node_cluster_info",
    "node_route",
    "target_of",
]

PULL: Final = 11
LITE_PULL: Final = 361


_TO_BROKER: Final = frozenset(
    {
        *(10, 310, 320, 324, 325, 36, 37),  # sends, replies, send back, end of a transaction
        *(11, 361),  # pulls
        *(14, 15, 29, 30, 31, 32),  # offsets, times, ends
        *(38, 41, 42, 46),  # members, locks, the check of a client's subscription
        *(12, 28, 33, 43, 201, 202, 203, 208, 351),  # look-ups
    }
)
FORWARDED: Final = _TO_BROKER - {38, 41, 42, 46}
"""Requests that are forwarded by their header alone, if that names a broker."""
_TO_ALL_BROKERS: Final = frozenset({34, 35})
ADMINISTRATION: Final = frozenset({17, 200, 207, 215, 216, 222})
"""Changes that Java's tools send to every broker of a route or a cluster, at the broker's address:
`updateTopic`, `resetOffsetByTime`, `updateSubGroup` …. A route names the node for all, so the node
asks all brokers. A topic is deleted at brokers (215), then at name servers (216)."""
_TO_NAME_SERVERS: Final = frozenset({216})
_TO_NAME_SERVER: Final = frozenset({101, 206, 219})
_ANY_WILL_DO: Final = frozenset({38, 46})
_ANY_OF_TOPIC: Final = frozenset({351})
_SENDS: Final = frozenset({310, 320, 325})
_LOCKS: Final = frozenset({41, 42})
PULLS: Final = frozenset({PULL, LITE_PULL})

_OFFSETS: Final = re.compile(rb'\{\s*"offsetTable"\s*:\s*\{(.*)\}\s*\}', re.DOTALL)
_MASTER: Final = "0"
_MAY_WAIT: Final = 2
_BEYOND_WAIT_MS: Final = 10_000


class Target(NamedTuple):
    """`kind` is the target; `broker` is a name, or None if the request gives none. Then any broker
    is used, or any that has the topic."""

    kind: Literal[
        "broker",
        "brokers",
        "administration",
        "name server",
        "name servers",
        "route",
        "cluster",
        "nobody",
    ]
    broker: str | None = None
    any_broker: bool = False
    any_of_topic: bool = False


def target_of(request: Command) -> Target:
    """Return the target of a request; an unknown code has none and is answered with code 3."""
    code = request.code
    if code == 105:
        return Target("route")
    if code == 106:
        return Target("cluster")
    if code in _TO_NAME_SERVER:
        return Target("name server")
    if code in _TO_ALL_BROKERS:
        return Target("brokers")
    if code in _TO_NAME_SERVERS:
        return Target("name servers")
    if code in ADMINISTRATION:
        return Target("administration", _broker_named(request))
    if code in _TO_BROKER:
        named = _broker_named(request)
        return Target("broker", named, code in _ANY_WILL_DO, code in _ANY_OF_TOPIC)
    return Target("nobody")


def broker_in(code: int, fields: Mapping[str, Any]) -> Any:
    """Return the broker that a header names, or None."""
    broker = fields.get("n") if code in _SENDS else None
    return broker or fields.get("bname") or fields.get("brokerName")


def _broker_named(request: Command) -> str | None:
    broker: str | None = broker_in(request.code, request.fields)
    if broker is None and request.code in _LOCKS:
        try:
            queues = read_json(request.body, "the queues to lock").get("mqSet") or []
        except ProtocolViolation:
            return None
        names = {item.get("brokerName") for item in queues if isinstance(item, dict)}
        return str(names.pop()) if len(names) == 1 else None
    return broker


def answer_timeout_ms(code: int, fields: Mapping[str, Any], usual_ms: int) -> int:
    """Return the timeout of an answer, ms: for a pull the time that the broker may hold it, plus 10
    s."""
    if not may_wait(code, fields):
        return usual_ms
    try:
        wait = int(fields.get("suspendTimeoutMillis", "0"))
    except (ValueError, TypeError):
        return usual_ms  # the broker reports the error
    return max(0, min(wait, 600_000)) + _BEYOND_WAIT_MS


def may_wait(code: int, fields: Mapping[str, Any]) -> bool:
    """Return True for a pull that the broker may hold."""
    try:
        return code in PULLS and bool(int(fields.get("sysFlag", "0")) & _MAY_WAIT)
    except (ValueError, TypeError):
        return False


def joined_queues(bodies: Sequence[bytes]) -> bytes:
    """Return one body with the queues of all: a reset is answered with ``{"offsetTable":{queue:
    offset, …}}``, in which a queue is an object, so it is no JSON that could be parsed."""
    match = [_OFFSETS.fullmatch(body.strip()) for body in bodies]
    if not all(match):
        return bodies[0]
    tables = [found[1] for found in match if found is not None and found[1].strip()]
    return b'{"offsetTable":{' + b",".join(tables) + b"}}"


def node_route(body: bytes, advertise: Address, ports: dict[str, int]) -> bytes:
    """Return the route with the node in place of every broker. Replicas are left out, and so are
    brokers without a master and their queues: no client could reach these through the node."""
    route = read_json(body, "a route")
    brokers = route.get("brokerDatas") or ()
    with_master = [item for item in brokers if _MASTER in (item.get("brokerAddrs") or ())]
    for item in with_master:
        item["brokerAddrs"] = _own_address(str(item.get("brokerName")), advertise, ports)
    names = {item.get("brokerName") for item in with_master}
    queues = [item for item in route.get("queueDatas") or () if item.get("brokerName") in names]
    return write_json({**route, "brokerDatas": with_master, "queueDatas": queues})


def node_cluster_info(info: ClusterInfo, advertise: Address, ports: dict[str, int]) -> bytes:
    """Return cluster info in standard JSON, with the node in place of every broker."""
    table: dict[str, Any] = {
        name: {
            "brokerAddrs": _own_address(name, advertise, ports),
            "brokerName": name,
            "cluster": data.cluster,
        }
        for name, data in info.brokers.items()
        if data.master is not None
    }
    clusters = {
        name: [member for member in members if member in table]
        for name, members in info.clusters.items()
    }
    return write_json({"brokerAddrTable": table, "clusterAddrTable": clusters})


def _own_address(broker: str, advertise: Address, ports: dict[str, int]) -> dict[str, str]:
    return {_MASTER: address_text((advertise[0], ports.get(broker, advertise[1])))}
