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
    from tubemq_client._core.breaker import Breaker
    from tubemq_client._core.effects import Conversation, Ticket

__all__ = ["LOOK_MS", "Attempt", "Attempts", "impatient"]

T = TypeVar("T")

LOOK_MS = 10
"""Interval of checks for an outstanding answer."""


@dataclass(slots=True, eq=False)
class Attempt(Generic[T]):
    """One fetch of a partition: its conversation, and the request that it waits for."""

    held: HeldPartition
    course: Conversation[T]
    ticket: Ticket | None = None
    look_at: int = 0


@dataclass(slots=True)
class Attempts(Generic[T]):
    """Outstanding answers. `breaker` learns which brokers owe one."""

    breaker: Breaker
    _owed: list[Attempt[T]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._owed)

    def due(self, now: int) -> Attempt[T] | None:
        """Remove and return an attempt whose answer is to be checked now."""
        for attempt in self._owed:
            if attempt.look_at <= now:
                return self._taken(attempt)
        return None

    def of(self, held: HeldPartition) -> Attempt[T] | None:
        """Remove and return the attempt of this partition, or None."""
        for attempt in self._owed:
            if attempt.held is held:
                return self._taken(attempt)
        return None

    def pursue(self, attempt: Attempt[T], patience_ms: int | None) -> Conversation[T | None]:
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
                    effect = advance(attempt.course, answer, failure)
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
                attempt.course.close()

    def give_up(self) -> Conversation[None]:
        """End all outstanding attempts."""
        while self._owed:
            attempt = self._taken(self._owed[-1])
            attempt.course.close()
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
        attempt.look_at = now + LOOK_MS
        self._owed.append(attempt)
        self.breaker.owes(attempt.held.lease.broker)

    def _taken(self, attempt: Attempt[T]) -> Attempt[T]:
        self._owed.remove(attempt)
        self.breaker.settled(attempt.held.lease.broker)
        return attempt


def impatient(course: Conversation[T], patience_ms: int) -> Conversation[T]:
    """Run `course` with a timeout of `patience_ms` for each request.

    A request that times out is forgotten with `errors.RpcTimeout`, and may be served late.
    """
    answer: Any = None
    failure: errors.TubeMQError | None = None
    try:
        while True:
            try:
                effect = advance(course, answer, failure)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            answer = failure = None
            try:
                answer = yield from _ask_for(effect, patience_ms)
            except errors.TubeMQError as error:
                failure = error
    finally:
        course.close()


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
