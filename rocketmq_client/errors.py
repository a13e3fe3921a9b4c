"""Every exception of the RocketMQ client, and the table from response codes to classes.

Networks, options and exact ranges fail in the same way with both brokers, and both clients share
the code that detects it: those branches *are* the classes of `tubemq_client.errors`, so windows,
sensors and engines handle both sources with one tree. Refusals are specific to RocketMQ::

    RocketMQError                   base of everything raised on purpose (both clients')
    ├── LocalError                  ConfigError, MissingExtraError, ClosedError, StaleBatch
    ├── ProtocolViolation           the peer sent bytes or values the protocol does not allow
    ├── NetworkError                ConnectError (TlsError), ConnectionLost, RpcTimeout
    ├── ServerError                 the server refused; `code` is RocketMQ's
    │   ├── UnknownTopic            17, or a queue that the topic does not have
    │   ├── NoPermission            16, and 1 with an access-control exception (4.x)
    │   ├── TopicForbids            16 of a topic that is write-only or read-only
    │   ├── UnknownGroup            24, 26           ├── IllegalRequest      13, 23, 25, 29
    │   ├── Unsupported             3                ├── NotFound            22
    │   ├── Busy                    2, 14, 215       ├── NotLeader           501
    │   └── BrokerFailure           1
    ├── UnsupportedTopic            a kind of topic whose offsets are not one record each
    ├── NoReply                     no reply to a request in time
    ├── TooManyInFlight             no room for another record in time; it was not sent
    ├── TimeNotFinal                a boundary in time that records may still fall below
    └── RangeError                  DataLoss, LogTruncated, CorruptRecord, RangeStalled

Codes: `docs/rocketmq-protocol/wire.md`. This module imports nothing else of the package.
"""

from __future__ import annotations

from tubemq_client.errors import (
    ClosedError,
    ConfigError,
    ConnectError,
    ConnectionLost,
    CorruptRecord,
    DataLoss,
    LocalError,
    LogTruncated,
    MissingExtraError,
    NetworkError,
    NotAuthorized,
    ProtocolViolation,
    RangeError,
    RangeStalled,
    RpcTimeout,
    ServerError,
    StaleBatch,
    TlsError,
    TooManyInFlight,
    TubeMQError,
    UnknownTopic,
    require_extra,
    shown_addresses,
)

__all__ = [
    "BrokerFailure",
    "Busy",
    "ClosedError",
    "ConfigError",
    "ConnectError",
    "ConnectionLost",
    "CorruptRecord",
    "DataLoss",
    "GroupDisabled",
    "IllegalRequest",
    "LocalError",
    "LogTruncated",
    "MissingExtraError",
    "NetworkError",
    "NoPermission",
    "NoReply",
    "NotFound",
    "NotLeader",
    "ProtocolViolation",
    "RangeError",
    "RangeStalled",
    "RocketMQError",
    "RpcTimeout",
    "ServerError",
    "StaleBatch",
    "TimeNotFinal",
    "TlsError",
    "TooManyInFlight",
    "TopicForbids",
    "UnknownGroup",
    "UnknownTopic",
    "Unsupported",
    "UnsupportedTopic",
    "for_code",
    "require_extra",
    "shown_addresses",
]

RocketMQError = TubeMQError
"""Base of everything raised on purpose, with `code`, `retriable`, `fatal`."""


class NoPermission(NotAuthorized):
    """Access control refuses: the keys, the signature, or the right to this topic or group."""


class TopicForbids(ServerError):
    """Write-only or read-only topic or broker (`perm`, `brokerPermission`), for all clients.
    Operators set it to take a broker out of service for a while."""

    retriable = True


class GroupDisabled(ServerError):
    """An operator has disabled the group: it gets no records until it is enabled again."""

    retriable = True


class UnknownGroup(ServerError):
    """The broker knows no such group, or no subscription of it, and may not create it."""

    fatal = True


class IllegalRequest(ServerError):
    """The broker finds the request or the record illegal: too large, malformed, out of bounds."""

    fatal = True


class Unsupported(ServerError):
    """The server does not know this request; servers of another version may."""

    fatal = True


class NotFound(ServerError):
    """Missing item: a key, a stored offset."""


class Busy(ServerError):
    """The broker cannot serve now: overloaded, shutting down, limiting."""

    retriable = True


class NotLeader(ServerError):
    """The queue has moved to another broker."""

    retriable = True


class BrokerFailure(ServerError):
    """Internal failure of the broker; a retry mostly succeeds."""

    retriable = True


class UnsupportedTopic(TubeMQError):
    """The topic is of a kind whose offsets do not count one record each; `kind` says which."""

    fatal = True

    def __init__(self, message: str, *, kind: str) -> None:
        self.kind = kind
        super().__init__(message)


class NoReply(TubeMQError):
    """The broker has stored the request, and no reply came in time; one that comes later is
    dropped."""


class TimeNotFinal(TubeMQError):
    """Records with an earlier store time may still arrive; ask again later."""

    retriable = True


_BY_CODE: dict[int, type[ServerError]] = {
    1: BrokerFailure,
    2: Busy,
    3: Unsupported,
    13: IllegalRequest,
    14: Busy,
    16: NoPermission,
    17: UnknownTopic,
    22: NotFound,
    23: IllegalRequest,
    24: UnknownGroup,
    25: IllegalRequest,
    26: UnknownGroup,
    29: IllegalRequest,
    215: Busy,
    501: NotLeader,
}

_SIGNS: tuple[tuple[str, type[ServerError]], ...] = (
    ("AclException", NoPermission),
    ("queueId[", UnknownTopic),
    ("does not support consumer to filter message by", IllegalRequest),
    ("subscription group no permission", GroupDisabled),
    ("pulling message is forbidden", TopicForbids),
    ("sending message is forbidden", TopicForbids),
)
"""Errors by a text in the remark of codes 1, 16 and 29, more exact than the code; the first text
that occurs decides."""


def for_code(code: int, remark: str = "", *, where: str = "") -> ServerError:
    """Return the exception for a response code; an unknown code gives a plain `ServerError`.

    Code 1 stands for any failure in 4.x, 29 for any bad argument in 5.x, and 16 also for a topic
    that was made write-only: their remarks decide.
    """
    cls = _BY_CODE.get(code, ServerError)
    if code in {1, 16, 29}:
        cls = next((by_sign for sign, by_sign in _SIGNS if sign in remark), cls)
    return cls(code, remark, where=where)
