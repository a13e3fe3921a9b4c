"""What a conversation may ask of the world: call, post, await, sleep, the time, deliver a value.

A conversation is a generator that yields these values and is resumed with the answer (or with an
exception thrown in). It never touches a socket or a clock itself, so the same code runs under the
blocking shell, the asyncio shell and a scripted test. Requests and replies are strictly paired by
the protocol, so effects at RPC level are enough; nothing is ever pushed by a server.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tubemq_client._wire.methods import Method
    from tubemq_client.model import Address

__all__ = ["Await", "Call", "Conversation", "Deliver", "Effect", "Now", "Post", "Sleep", "Ticket"]

T = TypeVar("T")


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
class Ticket:
    """A request on the wire; `handle` belongs to the shell."""

    address: Address
    method: Method
    handle: Any


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for the reply of a posted request. Answered with the reply message."""

    ticket: Ticket


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait `ms` milliseconds."""

    ms: int


@dataclass(frozen=True, slots=True)
class Now:
    """Answered with a monotonic time in milliseconds."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand a batch or a receipt to the user. Resumed when the user asks for more."""

    value: Any


Effect = Call | Post | Await | Sleep | Now | Deliver
Conversation = Generator[Effect, Any, T]
