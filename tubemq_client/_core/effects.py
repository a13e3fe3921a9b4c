"""Effects of conversations: call, post, await, sleep, the time, deliver a value.

A conversation is a generator that yields these values and is resumed with the answer (or with an
exception thrown in). It never touches a socket or a clock itself, so the same code runs under the
blocking driver, the asyncio driver and a scripted test. Requests and replies are strictly paired by
the protocol, so effects at RPC level are enough; a server never pushes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from tubemq_client import errors

if TYPE_CHECKING:
    from tubemq_client.model import Address

__all__ = [
    "Await",
    "AwaitAll",
    "AwaitAny",
    "Call",
    "Connect",
    "Conversation",
    "Deliver",
    "Effect",
    "Forget",
    "Method",
    "Now",
    "Post",
    "PostAll",
    "Reach",
    "Sleep",
    "Ticket",
    "VerifyPeer",
    "WallClock",
    "advance",
    "drive",
    "result_of",
    "run_to_end",
]

T = TypeVar("T")


class Method(Protocol):
    """Method of a server, as the codec of the protocol knows it."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Call:
    """Send a request and wait for its reply. Answered with the reply message."""

    address: Address
    method: Method
    request: Any


@dataclass(frozen=True, slots=True)
class Post:
    """Send a request without waiting. Answered with a `Ticket`."""

    address: Address
    method: Method
    request: Any


@dataclass(frozen=True, slots=True)
class PostAll:
    """Send several requests to one peer at once, without waiting.

    Answered with one `Ticket` for all; if it fails otherwise than by `errors.ConnectError`, some
    may have been sent. With `soon` they may be delayed for some milliseconds to be sent with
    others, in any state of the conversation.
    """

    address: Address
    method: Method
    requests: Sequence[Any]
    soon: bool = False


class Ticket(NamedTuple):
    """Request that was sent, or all requests of one `PostAll`; `handle` belongs to the driver."""

    address: Address
    method: Method
    handle: Any


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for the reply of a posted request. Answered with the reply message.

    With `patience_ms` answered with None if there is no reply in that time. The request is then
    still under way; another conversation may wait for it, or must `Forget` it.
    """

    ticket: Ticket
    patience_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the reply of this ticket: no conversation waits for it any more."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class AwaitAll:
    """Wait for the replies of all requests of these tickets.

    Answered with one list in their order, of reply messages and, instead of a missing reply, the
    `TubeMQError` that `Await` would raise.
    """

    tickets: Sequence[Ticket]


@dataclass(frozen=True, slots=True)
class AwaitAny:
    """Wait up to `patience_ms` until one of these tickets, of one peer, is answered or has failed.

    Answered with the tickets whose `Await` does not wait, none if the time is over. Meanwhile the
    connection is read, also without a ticket: requests of the peer reach the codec.
    """

    address: Address
    tickets: Sequence[Ticket]
    patience_ms: int


@dataclass(frozen=True, slots=True)
class Connect:
    """Begin to connect to these addresses, which are needed soon.

    Answered at once; an unreachable server is noticed when something is sent there.
    """

    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """Ask if there is a connection to the address; if not, open one in the background.

    Raises the failure of opening it since the last question.
    """

    address: Address


@dataclass(frozen=True, slots=True)
class VerifyPeer:
    """Look up the host name of a peer that is not an active master.

    Answered with True if it leads to another host too: then the next request goes there, on a new
    connection.
    """

    address: Address


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait `ms` milliseconds."""

    ms: int


@dataclass(frozen=True, slots=True)
class Now:
    """Ask for a monotonic time in milliseconds."""


@dataclass(frozen=True, slots=True)
class WallClock:
    """Ask for the time of day, milliseconds since the epoch.

    For values that servers compare with their own clocks (signatures, flow-control hours).
    Durations are measured with `Now`.
    """


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass a batch or receipts to the user. Resumed when the user asks for more."""

    value: Any


Effect = (
    Call
    | Post
    | PostAll
    | Await
    | AwaitAll
    | AwaitAny
    | Forget
    | Connect
    | Reach
    | VerifyPeer
    | Sleep
    | Now
    | WallClock
    | Deliver
)
Conversation = Generator[Effect, Any, T]


def advance(
    conversation: Conversation[T], answer: Any, failure: errors.TubeMQError | None
) -> Effect:
    """Return the next effect, after the answer to the one before or its failure."""
    return conversation.send(answer) if failure is None else conversation.throw(failure)


def drive(
    conversation: Conversation[T], perform: Callable[[Effect], Any]
) -> Generator[Any, None, T]:
    """Run a conversation: yield the values that it delivers and return its result.

    `perform` answers every other effect; a `TubeMQError` it raises is thrown into the conversation,
    any other exception ends it.
    """
    answer: Any = None
    failure: errors.TubeMQError | None = None
    while True:
        try:
            effect = conversation.send(answer) if failure is None else conversation.throw(failure)
        except StopIteration as stop:
            return cast("T", stop.value)
        answer = failure = None
        if isinstance(effect, Deliver):
            yield effect.value
            continue
        try:
            answer = perform(effect)
        except errors.TubeMQError as error:
            failure = error


def run_to_end(conversation: Conversation[T], perform: Callable[[Effect], Any]) -> T:
    """Return the result of a conversation, dropping the values that it delivers.

    Equals `result_of(drive(…))`, in one loop because each request passes here.
    """
    answer: Any = None
    failure: errors.TubeMQError | None = None
    while True:
        try:
            effect = conversation.send(answer) if failure is None else conversation.throw(failure)
        except StopIteration as stop:
            return cast("T", stop.value)
        answer = failure = None
        if not isinstance(effect, Deliver):
            try:
                answer = perform(effect)
            except errors.TubeMQError as error:
                failure = error


def result_of(stream: Generator[Any, None, T]) -> T:
    """Run a driven conversation to its end, dropping the values that it delivers."""
    while True:
        try:
            next(stream)
        except StopIteration as stop:
            return cast("T", stop.value)
