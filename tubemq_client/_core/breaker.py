"""Circuit breaker of a member: brokers that do not answer are avoided for a while.

A member asks many brokers in turn. One that is down, or accepts requests and never answers, must
not cost the others their turns: after each failure it is avoided for a pause that doubles, and
while an answer is outstanding it receives no other request. Times are milliseconds of the caller's
monotonic clock. `balance_fetch` asks here before every request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubemq_client._core.flow_control import reply_delay_ms

if TYPE_CHECKING:
    from tubemq_client.model import BrokerNode

__all__ = ["NEVER", "FetchBreaker"]

NEVER = 1 << 62
"""Time that is never reached."""

_LONGEST_REST_MS = 10_000
_FIRST_REST_MS = reply_delay_ms(500)


@dataclass(slots=True)
class _BrokerState:
    """State of one broker.

    `unanswered`: requests in a row without an answer. `overdue`: outstanding requests that take
    longer than an answer should.
    """

    unanswered: int = 0
    overdue: int = 0
    opens_at: int = 0


@dataclass(slots=True)
class FetchBreaker:
    """States of brokers that failed to answer; a broker that answers has none."""

    _states: dict[BrokerNode, _BrokerState] = field(default_factory=dict)

    def opens_at(self, broker: BrokerNode) -> int:
        """Return the time from which the broker may be asked; `NEVER` while it owes an answer."""
        # Usually there is none at all, and hashing a broker takes time.
        standing = self._states.get(broker) if self._states else None
        if standing is None:
            return 0
        return NEVER if standing.overdue else standing.opens_at

    def is_suspect(self, broker: BrokerNode) -> bool:
        """Return whether the last request had no answer, so that the next is only an attempt."""
        standing = self._states.get(broker) if self._states else None
        return standing is not None and standing.unanswered > 0

    def is_open(self, broker: BrokerNode, now: int) -> bool:
        """Return whether the broker failed several times in a row and its pause is not over."""
        standing = self._states.get(broker)
        return standing is not None and standing.unanswered > 1 and now < standing.opens_at

    def is_avoided(self, broker: BrokerNode, now: int) -> bool:
        """Return whether the broker is open as in `is_open`, or being tried in the background."""
        standing = self._states.get(broker)
        return standing is not None and standing.unanswered > 1 and self.opens_at(broker) > now

    def answered(self, broker: BrokerNode) -> bool:
        """Record an answer; return whether the broker had been avoided until now."""
        standing = self._states.get(broker) if self._states else None
        if standing is None:
            return False
        taken_back = standing.unanswered > 0
        standing.unanswered = standing.opens_at = 0
        if not standing.overdue:
            del self._states[broker]
        return taken_back

    def failed(self, broker: BrokerNode, now: int) -> int:
        """Count a request without an answer, or one that could not be sent.

        Return the pause in ms.
        """
        standing = self._states.setdefault(broker, _BrokerState())
        standing.unanswered += 1
        pause = min(_FIRST_REST_MS << min(standing.unanswered - 1, 16), _LONGEST_REST_MS)
        standing.opens_at = now + pause
        return pause

    def defer_until(self, broker: BrokerNode, at: int) -> None:
        """Defer the next request to `at`: a connection is being opened."""
        standing = self._states.setdefault(broker, _BrokerState())
        standing.opens_at = max(standing.opens_at, at)

    def answer_overdue(self, broker: BrokerNode) -> None:
        """Record that an answer takes longer than it should."""
        self._states.setdefault(broker, _BrokerState()).overdue += 1

    def mark_answered(self, broker: BrokerNode) -> None:
        """Record that a slow request was given up, or that the call which waits for it resumes."""
        self._states[broker].overdue -= 1

    def left_alone(self, now: int) -> dict[BrokerNode, int]:
        """Return the brokers that are avoided now, with the ms until they are asked again.

        0 stands for a broker with an outstanding answer, which is asked after the answer or its
        timeout.
        """
        return {
            broker: 0 if standing.overdue else standing.opens_at - now
            for broker, standing in sorted(self._states.items())
            if standing.overdue or (standing.unanswered and standing.opens_at > now)
        }
