"""Fetches under way; slow ones are suspended and continued later.

A fetch is a separate conversation (a request, or a lease renewal and then a request). The receiving
call waits a short time for its answer: if a broker takes longer, the answer is *outstanding* and
other brokers are asked meanwhile. The next receiving call checks outstanding answers every few
milliseconds, until they arrive or time out. State of partitions is kept in `balance_fetch`, not
here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tubemq_client import errors
from tubemq_client._core.effects import Await, Call, Forget, Now, Post, advance
from tubemq_client.model import address_text

if TYPE_CHECKING:
    from tubemq_client._core.balance_partitions import HeldPartition
    from tubemq_client._core.breaker import FetchBreaker
    from tubemq_client._core.effects import Conversation, Ticket

__all__ = ["POLL_MS", "Attempt", "Attempts", "with_timeout"]

T = TypeVar("T")

POLL_MS = 10
"""Interval of checks for an outstanding answer."""


@dataclass(slots=True, eq=False)
class Attempt(Generic[T]):
    """One fetch of a partition: its conversation, and the request that it waits for."""

    held: HeldPartition
    conversation: Conversation[T]
    ticket: Ticket | None = None
    poll_at: int = 0


@dataclass(slots=True)
class Attempts(Generic[T]):
    """Outstanding answers. `breaker` learns which brokers owe one."""

    breaker: FetchBreaker
    _outstanding: list[Attempt[T]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._outstanding)

    def due(self, now: int) -> Attempt[T] | None:
        """Remove and return an attempt whose answer is to be checked now."""
        for attempt in self._outstanding:
            if attempt.poll_at <= now:
                return self._taken(attempt)
        return None

    def of(self, held: HeldPartition) -> Attempt[T] | None:
        """Remove and return the attempt of this partition, or None."""
        for attempt in self._outstanding:
            if attempt.held is held:
                return self._taken(attempt)
        return None

    def run_attempt(self, attempt: Attempt[T], patience_ms: int | None) -> Conversation[T | None]:
        """Run an attempt to its end and return its result.

        Returns None, and keeps the attempt as outstanding, if an answer takes longer than
        `patience_ms`. Closing this conversation ends the attempt, too.
        """
        is_outstanding = False
        answer, failure = None, None
        try:
            while True:
                if attempt.ticket is not None:
                    try:
                        answer = yield Await(attempt.ticket, patience_ms)
                    except errors.TubeMQError as error:
                        failure = error
                    if answer is None and failure is None:
                        is_outstanding = True
                        self._put_aside(attempt, (yield Now()))
                        return None
                    attempt.ticket = None
                try:
                    effect = advance(attempt.conversation, answer, failure)
                except StopIteration as stop:
                    result: T = stop.value
                    return result
                answer, failure = None, None
                try:
                    answer = yield from self._perform(attempt, effect)
                except errors.TubeMQError as error:
                    failure = error
        finally:
            if not is_outstanding:
                attempt.conversation.close()

    def give_up(self) -> Conversation[None]:
        """End all outstanding attempts."""
        while self._outstanding:
            attempt = self._taken(self._outstanding[-1])
            attempt.conversation.close()
            if attempt.ticket is not None:
                yield Forget(attempt.ticket)

    def _perform(self, attempt: Attempt[T], effect: Any) -> Conversation[Any]:
        """Perform an effect: send and note a request, pass any other effect on."""
        if isinstance(effect, Call):
            attempt.ticket = yield Post(effect.address, effect.method, effect.request)
        elif isinstance(effect, Await):
            attempt.ticket = effect.ticket
        else:
            return (yield effect)
        return None

    def _put_aside(self, attempt: Attempt[T], now: int) -> None:
        attempt.poll_at = now + POLL_MS
        self._outstanding.append(attempt)
        self.breaker.answer_overdue(attempt.held.lease.broker)

    def _taken(self, attempt: Attempt[T]) -> Attempt[T]:
        self._outstanding.remove(attempt)
        self.breaker.mark_answered(attempt.held.lease.broker)
        return attempt


def with_timeout(conversation: Conversation[T], patience_ms: int) -> Conversation[T]:
    """Run `conversation` with a timeout of `patience_ms` for each request.

    A request that times out is forgotten with `errors.RpcTimeout`, and may be served late.
    """
    answer: Any = None
    failure: errors.TubeMQError | None = None
    try:
        while True:
            try:
                effect = advance(conversation, answer, failure)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            answer = failure = None
            try:
                answer = yield from _ask_for(effect, patience_ms)
            except errors.TubeMQError as error:
                failure = error
    finally:
        conversation.close()


def _ask_for(effect: Any, patience_ms: int) -> Conversation[Any]:
    if not isinstance(effect, Call):
        return (yield effect)
    ticket = yield Post(effect.address, effect.method, effect.request)
    answer = yield Await(ticket, patience_ms)
    if answer is None:
        yield Forget(ticket)
        where = address_text(effect.address)
        raise errors.RpcTimeout(f"{where}: no answer to {effect.method.name} in {patience_ms} ms")
    return answer
