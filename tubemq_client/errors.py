"""Every exception this client raises, and the table from TubeMQ codes to classes.

The tree shows whose fault it is; each class carries data that callers may act on::

    TubeMQError
    ├── LocalError                 the caller's doing: fix the call
    │   ├── ConfigError            options; lists every problem at once
    │   ├── MissingExtraError      an optional dependency is not installed (also an ImportError)
    │   ├── StaleBatch             a batch confirmed too late: it is delivered again
    │   └── ClosedError            the client was closed
    ├── TooManyInFlight            no room for another record in time; it was not sent (retriable)
    ├── ProtocolViolation          the peer sent bytes or values the protocol does not allow
    │   └── UnreadableTDMsg        a packed message body is malformed, too large or encrypted
    ├── NetworkError               connection refused, lost, or silent past its deadline (retriable)
    │   ├── ConnectError
    │   │   └── TlsError           certificates or TLS itself: nothing a retry would cure
    │   ├── ConnectionLost
    │   └── RpcTimeout
    ├── ServerError                the server refused; `code` is TubeMQ's
    │   ├── BadRequest             400      ├── NotRegistered        401, 411
    │   ├── Forbidden              403      ├── PartitionOccupied    410
    │   ├── NothingToRead          404      ├── PartitionTaken       412
    │   ├── DataMoved              301      ├── AuthenticationFailed 415
    │   ├── Overflow               419      ├── GroupInconsistent    424–430
    │   │                                   │   └── GroupBusy        425, of a look-up (retriable)
    │   ├── UnknownTopic           431      ├── NotAuthorized        450, 455
    │   ├── RateLimited            452      ├── ServerFailure        500
    │   └── ServiceUnavailable     503
    ├── AdminError                 items of an administrative change failed; lists each
    ├── RemoteException            an RPC answered with a Java exception
    │   └── StandbyMaster          this master is not the active one: try the next
    └── RangeError                 an exact range cannot be delivered
        ├── DataLoss               retention has removed part of the range
        ├── LogRegression          the log is not the one that was read before
        │   ├── LogTruncated       it is shorter than the range
        │   └── LogReplaced        it has other records where they were read
        ├── CorruptRecord          a record's checksum or attribute prefix is wrong
        └── RangeStalled           no progress within the deadline

Codes are those of upstream's `TErrCodeConstants.java`; see `docs/protocol/errors.md`.
This module imports nothing of the project.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "NOT_FOUND",
    "SPEED_LIMIT",
    "SUCCESS",
    "AdminError",
    "AuthenticationFailed",
    "BadRequest",
    "ClosedError",
    "ConfigError",
    "ConnectError",
    "ConnectionLost",
    "CorruptRecord",
    "DataLoss",
    "DataMoved",
    "Forbidden",
    "GroupBusy",
    "GroupInconsistent",
    "ItemFailure",
    "LocalError",
    "LogRegression",
    "LogReplaced",
    "LogTruncated",
    "MissingExtraError",
    "NetworkError",
    "NotAuthorized",
    "NotRegistered",
    "NothingToRead",
    "Overflow",
    "PartitionOccupied",
    "PartitionTaken",
    "ProtocolViolation",
    "RangeError",
    "RangeStalled",
    "RateLimited",
    "RemoteException",
    "RpcTimeout",
    "ServerError",
    "ServerFailure",
    "ServiceUnavailable",
    "StaleBatch",
    "StandbyMaster",
    "TlsError",
    "TooManyInFlight",
    "TubeMQError",
    "UnknownTopic",
    "UnreadableTDMsg",
    "class_at",
    "for_code",
    "from_text",
    "require_extra",
    "shown_addresses",
    "without_credentials",
]


SUCCESS = 200
"""Code `errCode` of a successful reply."""

NOT_FOUND = 404
"""Code `errCode` of a fetch with nothing to deliver now (`NothingToRead`)."""

SPEED_LIMIT = 452
"""Code `errCode` of a fetch that is too early under a flow rule (`RateLimited`)."""

_QUOTED = re.compile(r"\b((?:\w+\.)+errors\.\w+): (.+(?:\n  - .+)*)")


class TubeMQError(Exception):
    """Base of all errors that this client raises on purpose.

    `retriable`: the same call may succeed later. `fatal`: it never will until a user changes
    something.
    """

    code: int = 0
    retriable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to pickle the error, for process pools and Spark.

        Many subclasses take other arguments than the message, from which exceptions are rebuilt by
        default.
        """
        return (_restore, (type(self), self.args, self.__dict__))


def _restore(cls: type[TubeMQError], args: tuple[Any, ...], state: dict[str, Any]) -> TubeMQError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def class_at(path: str) -> type[TubeMQError] | None:
    """Return the class of this tree with the dotted path `path`, or None.

    Other distributions may have created it. Its module must be imported already: a text must not
    cause an import.
    """
    module, _, name = path.rpartition(".")
    attribute = getattr(sys.modules.get(module), name, None)
    return attribute if isinstance(attribute, type) and issubclass(attribute, TubeMQError) else None


def from_text(text: str) -> TubeMQError | None:
    """Return the error of this tree that `text` quotes as ``<module>.errors.<Class>: <message>``.

    For errors that crossed a process boundary as a traceback, as Spark's do: the last one quoted,
    with its class (and so `fatal` and `retriable`) and message, including lines of problems,
    without other data. None if there is none.
    """
    last, at = None, 0
    while quoted := _QUOTED.search(text, at):
        cls = class_at(quoted[1])
        at = quoted.end(1)
        if cls is not None:
            last, at = _restore(cls, (quoted[2],), {}), quoted.end()
    return last


class LocalError(TubeMQError):
    """The call or its options are wrong; nothing was sent."""

    fatal = True


class ConfigError(LocalError, ValueError):
    """Options are wrong. `problems` lists all of them, one line each."""

    def __init__(self, problems: list[str] | str, *, subject: str = "options") -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"invalid {subject}:{lines}")


class MissingExtraError(LocalError, ImportError):
    """An optional dependency is missing; the message is the install line."""


class ClosedError(LocalError):
    """The client was closed."""


class StaleBatch(LocalError):
    """The batch can no longer be confirmed: it is delivered again unless it was confirmed.

    Its partition was taken away, its `confirm_timeout_ms` is over, or it was confirmed or rejected
    before.
    """


class TooManyInFlight(TubeMQError):
    """The limit of records in flight is reached, and none was answered in time.

    The record was not sent; the same call may succeed as soon as a receipt arrives.
    """

    retriable = True


class ProtocolViolation(TubeMQError):
    """The peer broke the protocol; the connection is unusable."""


class UnreadableTDMsg(ProtocolViolation):
    """A packed body cannot be parsed, and nothing of it was returned; the connection is usable.

    `offset` is the byte of the message at which the error was found.
    """

    fatal = True

    def __init__(self, what: str, *, offset: int) -> None:
        self.offset = offset
        super().__init__(f"packed body, byte {offset}: {what}")


class NetworkError(TubeMQError):
    """The peer could not be reached or went silent."""

    retriable = True


class ConnectError(NetworkError):
    """No connection could be opened: the server is down, or has moved."""


class TlsError(ConnectError):
    """TLS failed, on this side or the other: certificates, host name, or a port without TLS."""

    retriable = False


class ConnectionLost(NetworkError):
    """The connection broke with calls in flight; whether they took effect is unknown."""


class RpcTimeout(NetworkError):
    """No answer within the deadline; whether the call took effect is unknown."""


class ServerError(TubeMQError):
    """A normal reply with a code other than 200. `code` and `detail` are the server's."""

    def __init__(self, code: int, detail: str = "", *, where: str = "") -> None:
        self.code = code
        self.detail = detail
        self.where = where
        prefix = f"{where}: " if where else ""
        super().__init__(f"{prefix}code {code}: {detail or type(self).__name__}")


class BadRequest(ServerError):
    """The server refuses the request as malformed (400): a mistake here or in the options."""

    fatal = True


class NotRegistered(ServerError):
    """This client holds no registration (401 on commit, 411 elsewhere): register again."""

    retriable = True


class Forbidden(ServerError):
    """Topic or partition missing on this broker, or closed."""


class NothingToRead(ServerError):
    """Nothing to deliver *from here, now*; the position may have moved nevertheless."""

    retriable = True


class DataMoved(ServerError):
    """The requested data has moved (301): look the topic up again."""

    retriable = True


class PartitionOccupied(ServerError):
    """Another client of the group holds the partition (a lost one for 30 to 35 s)."""

    retriable = True


class PartitionTaken(ServerError):
    """Another client of the group took the partition while this one held it."""

    retriable = True


class AuthenticationFailed(ServerError):
    """The server does not authenticate this client; the message names the option to check."""

    fatal = True

    def __init__(self, code: int, detail: str = "", *, where: str = "") -> None:
        super().__init__(code, detail, where=where)
        self.args = (f"{self.args[0]} ({_how_to_get_in(detail)})",)


def _how_to_get_in(detail: str) -> str:
    """Return the option to change, from the texts of upstream's `SimpleCertificate…Handler`."""
    if "is Blank" in detail:
        return "the cluster requires a user: set the options auth.username and auth.password"
    if "timestamp" in detail:
        return "the clocks of this machine and the server differ by more than 20 s"
    if "Visit Authorized Token" in detail:
        return "the broker does not know the visit token that the master gave last"
    return "check the options auth.username and auth.password"


class Overflow(ServerError):
    """The store's memory is full; the record was not stored."""

    retriable = True


class GroupInconsistent(ServerError):
    """The group's other members use another topic set, filter set or consume type."""

    fatal = True


class GroupBusy(GroupInconsistent):
    """The group of a look-up, or of a cursor shown at brokers, is registered for another topic.

    A concurrent look-up has it there for a moment; if that was killed, until the master forgets it
    (30 s).
    """

    retriable = True
    fatal = False


class UnknownTopic(ServerError):
    """The topic is not deployed, or has no usable partition (431)."""

    fatal = True


class NotAuthorized(ServerError):
    """The group may not consume this topic, or not under these filters (450, 455)."""

    fatal = True


class RateLimited(ServerError):
    """The request exceeds the flow rules of the cluster (452)."""

    retriable = True


class ServerFailure(ServerError):
    """The server failed internally (500): its effect is unknown."""

    retriable = True


class ServiceUnavailable(ServerError):
    """The server does not serve this now (503)."""

    retriable = True


_BY_CODE: dict[int, type[ServerError]] = {
    301: DataMoved,
    400: BadRequest,
    401: NotRegistered,
    403: Forbidden,
    NOT_FOUND: NothingToRead,
    410: PartitionOccupied,
    411: NotRegistered,
    412: PartitionTaken,
    415: AuthenticationFailed,
    419: Overflow,
    424: GroupInconsistent,
    425: GroupInconsistent,
    426: GroupInconsistent,
    427: GroupInconsistent,
    428: GroupInconsistent,
    429: GroupInconsistent,
    430: GroupInconsistent,
    431: UnknownTopic,
    450: NotAuthorized,
    SPEED_LIMIT: RateLimited,
    455: NotAuthorized,
    500: ServerFailure,
    503: ServiceUnavailable,
}


def for_code(code: int, detail: str = "", *, where: str = "") -> ServerError:
    """Return the exception for a server's `errCode`; a plain `ServerError` for unknown codes."""
    return _BY_CODE.get(code, ServerError)(code, detail, where=where)


class ItemFailure(NamedTuple):
    """Item of a change that failed.

    `code` is one of upstream's `DataOpErrCode.java`, which are not the codes of RPCs: 401 not
    found, 402 exists, 404 something depends on it, 405 and 406 not in this state, 407 value, 408
    conflict, 5xx a failure of the master.
    """

    item: str
    code: int
    reason: str


class AdminError(TubeMQError):
    """A change was accepted as a whole, but `failures` of its items failed; `done` took effect."""

    fatal = True

    def __init__(
        self, failures: Sequence[ItemFailure], *, done: Sequence[str] = (), where: str = ""
    ) -> None:
        self.failures = tuple(failures)
        self.done = tuple(done)
        self.code = self.failures[0].code if self.failures else 0
        told = "; ".join(f"{f.item or 'request'}: code {f.code}: {f.reason}" for f in self.failures)
        rest = f" (took effect for: {', '.join(self.done)})" if self.done else ""
        super().__init__(f"{where}: {told}{rest}" if where else told + rest)


class RemoteException(TubeMQError):
    """The RPC layer answered with an exception instead of a reply. `name` is the Java class."""

    retriable = True

    def __init__(self, name: str, detail: str = "", *, where: str = "") -> None:
        self.name = name
        self.detail = detail
        prefix = f"{where}: " if where else ""
        super().__init__(f"{prefix}{name}: {detail}".rstrip(": "))


class StandbyMaster(RemoteException):
    """The master that was asked is a stand-by."""


class RangeError(TubeMQError):
    """An exact range cannot be delivered. The last line of the message says what to change."""


class DataLoss(RangeError):
    """Retention removed offsets `[start, available)` of the range before they were read."""

    fatal = True

    def __init__(self, message: str, *, start: int, available: int) -> None:
        self.start = start
        self.available = available
        super().__init__(message)


class LogRegression(RangeError):
    """The log is not, or not entirely, the one in which an offset was recorded.

    A topic was recreated, a disk was lost or restored from a backup. Base of the ways to notice it.
    """

    fatal = True


class LogTruncated(LogRegression):
    """The broker's log ends before the range does: records were lost, or the topic rebuilt."""


class LogReplaced(LogRegression):
    """The log is as long as before, but has other records where some were read before."""


class CorruptRecord(RangeError):
    """A record failed its checksum, or its attributes are malformed (`corrupt_records="fail"`)."""

    fatal = True


class RangeStalled(RangeError):
    """A read made no progress until its deadline (option `deadline_ms`)."""

    retriable = True


def require_extra(extra: str, error: ImportError) -> MissingExtraError:
    """Return the error to raise `from` an `ImportError` of an optional dependency of `extra`."""
    missing = error.name or "a dependency"
    return MissingExtraError(
        f"{missing} is needed here; install it with: pip install 'airflow-provider-tubemq[{extra}]'"
    )


def without_credentials(addresses: str) -> str:
    """Return one or several addresses for a message, without passwords or tokens.

    Drops all text before the last ``@``, commas included, and all text after a ``?`` or ``#``.
    """
    _, at, rest = addresses.rpartition("@")
    visible = re.split("[?#]", rest)[0]
    cut = "" if visible == rest else f"{rest[len(visible)]}…"
    return f"{'…@' if at else ''}{visible}{cut}"


def shown_addresses(items: Sequence[str]) -> str:
    """Return the items of a list of addresses for a message.

    A comma in a password splits one address into two items: if one item has an ``@``, nothing
    before the last ``@`` is shown.
    """
    text = ",".join(items)
    return (
        repr(without_credentials(text))
        if "@" in text
        else ", ".join(repr(without_credentials(item)) for item in items)
    )
