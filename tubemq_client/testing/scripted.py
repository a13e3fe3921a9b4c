"""Runs conversations without sockets, threads or waiting: every effect is answered by a function.

The third driver, next to the blocking and the asyncio one. Requests go to the function at once, as
plain messages; sleeping moves a `ManualClock`, and so does waiting for a reply that never comes.
Requests and their times are kept as a trace. A test can therefore hold the rare branches of a
conversation (leases that expire, replies that are lost, deadlines) to their exact course.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tubemq_client import errors
from tubemq_client._core.effects import (
    Await,
    AwaitAll,
    Call,
    Forget,
    Now,
    Post,
    PostAll,
    Reach,
    Sleep,
    Ticket,
    VerifyPeer,
    WallClock,
    drive,
    result_of,
)
from tubemq_client._wire.fetching import FetchReply
from tubemq_client.testing.clock import ManualClock

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation, Effect
    from tubemq_client.model import Address

__all__ = ["ScriptedDriver", "TracedRequest"]

T = TypeVar("T")


class TracedRequest(NamedTuple):
    """One request of a trace. `method` is the RPC's readable name, as in "get messages"."""

    at_ms: int
    address: Address
    method: str
    request: Any


Answer = Callable[[TracedRequest], Any]
"""Function that returns the reply message, or None for no reply at all, or raises a
`TubeMQError`."""


@dataclass(slots=True)
class _Posted:
    reply: Any = None
    failure: errors.TubeMQError | None = None
    deadline: int = 0


class ScriptedDriver:
    """Driver that performs effects with `answer`; the same methods as the drivers of both APIs.

    `trace` grows by one `TracedRequest` per request and by the number of ms of each sleep. More
    than `max_effects` effects raise `AssertionError`, because nothing else would stop an endless
    conversation: no real time passes here.
    """

    def __init__(
        self,
        answer: Answer,
        clock: ManualClock | None = None,
        *,
        rpc_timeout_ms: int = 10_000,
        max_effects: int = 100_000,
    ) -> None:
        self.clock = clock or ManualClock()
        self.trace: list[TracedRequest | int] = []
        self._answer = answer
        self._rpc_timeout_ms = rpc_timeout_ms
        self._effects_left = max_effects

    @property
    def asked(self) -> list[str]:
        """Methods of the requests, in order."""
        return [step.method for step in self.trace if isinstance(step, TracedRequest)]

    @property
    def slept(self) -> list[int]:
        """Sleeps, in ms, in order."""
        return [step for step in self.trace if isinstance(step, int)]

    def run(self, conversation: Conversation[T]) -> T:
        """Run to the end and return its result; deliveries are dropped."""
        return result_of(drive(conversation, self._perform))

    def stream(
        self, conversation: Conversation[None], release: Conversation[None] | None = None
    ) -> Iterator[Any]:
        """Run and yield delivered values. `release` runs last, also on failure and on close."""
        try:
            yield from drive(conversation, self._perform)
        finally:
            conversation.close()
            if release is not None:
                self.run(release)

    def _perform(self, effect: Effect) -> Any:
        self._effects_left -= 1
        if self._effects_left < 0:
            raise AssertionError(f"the conversation does not end; last: {self.trace[-5:]}")
        if isinstance(effect, Post):
            posted = self._post(effect)
            return Ticket(effect.address, effect.method, posted)
        if isinstance(effect, PostAll | AwaitAll):
            return self._perform_all(effect)
        if isinstance(effect, Await):
            method = effect.ticket.method
            reply = self._receive(effect.ticket.handle, method.name, effect.patience_ms)
            return _as_received(method, reply)
        if isinstance(effect, Call):
            return self._receive(self._post(effect), effect.method.name)
        return self._perform_simple(effect)

    def _perform_simple(self, effect: Effect) -> Any:
        if isinstance(effect, Sleep):
            self.trace.append(effect.ms)
            self.clock.advance(effect.ms)
            return None
        if isinstance(effect, Now | WallClock):
            return self.clock()
        if isinstance(effect, VerifyPeer | Reach | Forget):
            return isinstance(effect, Reach)  # addresses never change, every server is reachable
        raise TypeError(f"unknown effect {effect!r}")

    def _post(self, effect: Post | Call) -> _Posted:
        """Answer a request at once; errors are raised by the call that waits for the reply."""
        traced = TracedRequest(self.clock(), effect.address, effect.method.name, effect.request)
        self.trace.append(traced)
        posted = _Posted(deadline=self.clock() + self._rpc_timeout_ms)
        try:
            posted.reply = self._answer(traced)
        except errors.ConnectError:
            raise  # nothing was sent
        except errors.TubeMQError as error:
            posted.failure = error
        return posted

    def _perform_all(self, effect: PostAll | AwaitAll) -> Any:
        if isinstance(effect, PostAll):
            posts = [Post(effect.address, effect.method, request) for request in effect.requests]
            return Ticket(effect.address, effect.method, [self._post(post) for post in posts])
        posted = [
            (one, ticket.method.name)
            for ticket in effect.tickets
            for one in (ticket.handle if isinstance(ticket.handle, list) else [ticket.handle])
        ]
        return [self._receive_or_error(one, method) for one, method in posted]

    def _receive_or_error(self, posted: _Posted, method: str) -> Any:
        try:
            return self._receive(posted, method)
        except errors.TubeMQError as error:
            return error

    def _receive(self, posted: _Posted, method: str, patience_ms: int | None = None) -> Any:
        if posted.failure is not None:
            raise posted.failure
        if posted.reply is None:
            left = posted.deadline - self.clock()
            if patience_ms is not None and patience_ms < left:
                self.clock.advance(patience_ms)
                return None
            self.clock.advance(max(0, posted.deadline - self.clock()))
            raise errors.RpcTimeout(
                f"no answer to {method} within {self._rpc_timeout_ms} ms (option rpc_timeout_ms)"
            )
        return posted.reply


def _as_received(method: Any, reply: Any) -> Any:
    """Return the reply in the form in which a connection would return it."""
    if method.response is FetchReply and reply is not None:
        return FetchReply(reply.SerializePartialToString())
    return reply
