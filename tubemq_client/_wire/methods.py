"""Table of the RPCs that a TubeMQ client calls: id, service, request and reply classes.

`envelope` takes a `Method` to write a request and to read its reply, so a call and its classes
cannot be paired wrongly. `_core` knows the meaning of the calls, and when to make them.

Methods 7 to 9 belong to brokers; 11, 12, 14 and 19 exist as numbers only. Neither is here.

Source: `docs/protocol/wire.md#methods-methods`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tubemq_client import _pb
from tubemq_client._wire.fetching import FetchReply

__all__ = [
    "BROKER_READ_SERVICE",
    "BROKER_WRITE_SERVICE",
    "BY_ID",
    "CLOSE_CONSUMER",
    "CLOSE_PRODUCER",
    "COMMIT_OFFSET",
    "GET_MESSAGES",
    "GET_MESSAGES_UNPARSED",
    "GET_PARTITION_META",
    "HEARTBEAT_BROKER",
    "HEARTBEAT_CONSUMER",
    "HEARTBEAT_CONSUMER_V2",
    "HEARTBEAT_PRODUCER",
    "MASTER_SERVICE",
    "OP_REGISTER",
    "OP_UNREGISTER",
    "REGISTER_CONSUMER",
    "REGISTER_CONSUMER_V2",
    "REGISTER_PARTITION",
    "REGISTER_PRODUCER",
    "SEND_MESSAGE",
    "Method",
    "is_legal",
]

MASTER_SERVICE: Final = 1
BROKER_READ_SERVICE: Final = 2
BROKER_WRITE_SERVICE: Final = 3

OP_REGISTER: Final = 31
"""`opType` of `REGISTER_PARTITION` that takes a partition."""

OP_UNREGISTER: Final = 32
"""`opType` of `REGISTER_PARTITION` that gives it back."""


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: numeric `id`, readable `name`, `service` it is sent to, and its two classes."""

    id: int
    name: str
    service: int
    request: type[Any]
    response: type[Any]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


REGISTER_PRODUCER = Method(
    1, "register producer", MASTER_SERVICE, _pb.RegisterRequestP2M, _pb.RegisterResponseM2P
)
HEARTBEAT_PRODUCER = Method(
    2, "producer heartbeat", MASTER_SERVICE, _pb.HeartRequestP2M, _pb.HeartResponseM2P
)
CLOSE_PRODUCER = Method(
    3, "close producer", MASTER_SERVICE, _pb.CloseRequestP2M, _pb.CloseResponseM2P
)
REGISTER_CONSUMER = Method(
    4, "register consumer", MASTER_SERVICE, _pb.RegisterRequestC2M, _pb.RegisterResponseM2C
)
HEARTBEAT_CONSUMER = Method(
    5, "consumer heartbeat", MASTER_SERVICE, _pb.HeartRequestC2M, _pb.HeartResponseM2C
)
CLOSE_CONSUMER = Method(
    6, "close consumer", MASTER_SERVICE, _pb.CloseRequestC2M, _pb.CloseResponseM2C
)
SEND_MESSAGE = Method(
    13,
    "send message",
    BROKER_WRITE_SERVICE,
    _pb.SendMessageRequestP2B,
    _pb.SendMessageResponseB2P,
)
REGISTER_PARTITION = Method(
    15, "register partition", BROKER_READ_SERVICE, _pb.RegisterRequestC2B, _pb.RegisterResponseB2C
)
HEARTBEAT_BROKER = Method(
    16, "broker heartbeat", BROKER_READ_SERVICE, _pb.HeartBeatRequestC2B, _pb.HeartBeatResponseB2C
)
GET_MESSAGES = Method(
    17, "get messages", BROKER_READ_SERVICE, _pb.GetMessageRequestC2B, _pb.GetMessageResponseB2C
)
GET_MESSAGES_UNPARSED = Method(
    GET_MESSAGES.id,
    GET_MESSAGES.name,
    BROKER_READ_SERVICE,
    _pb.GetMessageRequestC2B,
    FetchReply,
)
"""`GET_MESSAGES` for callers that act on a reply before parsing it."""

COMMIT_OFFSET = Method(
    18,
    "commit offset",
    BROKER_READ_SERVICE,
    _pb.CommitOffsetRequestC2B,
    _pb.CommitOffsetResponseB2C,
)
REGISTER_CONSUMER_V2 = Method(
    20, "register consumer v2", MASTER_SERVICE, _pb.RegisterRequestC2MV2, _pb.RegisterResponseM2CV2
)
HEARTBEAT_CONSUMER_V2 = Method(
    21, "consumer heartbeat v2", MASTER_SERVICE, _pb.HeartRequestC2MV2, _pb.HeartResponseM2CV2
)
GET_PARTITION_META = Method(
    22, "get partition meta", MASTER_SERVICE, _pb.GetPartMetaRequestC2M, _pb.GetPartMetaResponseM2C
)

BY_ID: Final[dict[int, Method]] = {
    method.id: method
    for method in (
        REGISTER_PRODUCER,
        HEARTBEAT_PRODUCER,
        CLOSE_PRODUCER,
        REGISTER_CONSUMER,
        HEARTBEAT_CONSUMER,
        CLOSE_CONSUMER,
        SEND_MESSAGE,
        REGISTER_PARTITION,
        HEARTBEAT_BROKER,
        GET_MESSAGES,
        COMMIT_OFFSET,
        REGISTER_CONSUMER_V2,
        HEARTBEAT_CONSUMER_V2,
        GET_PARTITION_META,
    )
}
"""Methods that a client may call, by their number on the wire."""

_LEGAL: Final = {
    MASTER_SERVICE: frozenset((*range(1, 10), 20, 21, 22)),
    BROKER_READ_SERVICE: frozenset((11, 12, 13, *range(15, 20))),
    BROKER_WRITE_SERVICE: frozenset(range(11, 15)),
}


def is_legal(service: int, method_id: int) -> bool:
    """Return whether a server accepts this method number under this service type.

    Wider than `BY_ID`: it covers broker-only and unimplemented numbers, as real servers do before
    they look for a handler.
    """
    return method_id in _LEGAL.get(service, ())
