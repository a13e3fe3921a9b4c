"""Fetches under way, of which those that take long are put aside and gone on with later.

A fetch is a conversation of its own (a request, or a lease renewed and then a request). The
receiving call waits for its answer for a moment only: a broker that takes longer owes it, and the
others are asked meanwhile. What is owed is looked at again every few milliseconds by the next
receiving call, until it comes or its time is over. No state of partitions here: that is
`balance_fetch`.
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
"""How often an answer that is owed is looked for."""


@dataclass(slots=True, eq=False)
class Attempt(Generic[T]):
    """One fetch of a partition: its course, and the request that is waited for."""

    held: HeldPartition
    course: Conversation[T]
    ticket: Ticket | None = None
    look_at: int = 0


@dataclass(slots=True)
class Attempts(Generic[T]):
    """What is owed. `breaker` learns which brokers owe something."""

    breaker: Breaker
    _owed: list[Attempt[T]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._owed)

    def due(self, now: int) -> Attempt[T] | None:
        """One whose answer is to be looked for; it is the caller's then."""
        for attempt in self._owed:
            if attempt.look_at <= now:
                return self._taken(attempt)
        return None

    def of(self, held: HeldPartition) -> Attempt[T] | None:
        """The one of this partition; it is the caller's then."""
        for attempt in self._owed:
            if attempt.held is held:
                return self._taken(attempt)
        return None

    def pursue(self, attempt: Attempt[T], patience_ms: int | None) -> Conversation[T | None]:
        """Go on to its end and give its result; None if an answer takes longer than `patience_ms`:
        then it is put aside. Ended from outside, so is the attempt."""
        kept = False
        answer, failure = None, None
        try:
            while True:
                if attempt.ticket is not None:
                    try:
                        answer = yield Await(attempt.ticket, patience_ms)
                    except errors.TubeMQError as error:
                        failure = error
                    if answer is None and failure is None:
                        kept = True
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
            if not kept:
                attempt.course.close()

    def give_up(self) -> Conversation[None]:
        """End all that is owed."""
        while self._owed:
            attempt = self._taken(self._owed[-1])
            attempt.course.close()
            if attempt.ticket is not None:
                yield Forget(attempt.ticket)

    def _perform(self, attempt: Attempt[T], effect: Any) -> Conversation[Any]:
        """A request is sent and noted, whatever else is asked for is passed on."""
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
    """`course`, each of whose requests is waited for no longer than `patience_ms`: then it is given
    up with `errors.RpcTimeout`, and may be served late."""
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
