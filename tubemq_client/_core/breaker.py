"""Which brokers are left alone, because they do not answer, and for how long.

A member asks many brokers in turn. One that is gone, or accepts requests and never answers, must
not cost the others their turns: after each failure it is left alone for a pause that doubles, and
while it owes an answer it is asked for nothing else. Times are milliseconds of the caller's
monotonic clock. `balance_fetch` asks here before every request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tubemq_client._core.flow_control import reply_delay_ms

if TYPE_CHECKING:
    from tubemq_client.model import BrokerNode

__all__ = ["NEVER", "Breaker"]

NEVER = 1 << 62
"""A time that does not come by itself."""

_LONGEST_REST_MS = 10_000
_FIRST_REST_MS = reply_delay_ms(500)


@dataclass(slots=True)
class _Standing:
    """`unanswered`: requests in a row without an answer. `owing`: requests that are waited for
    beside others, longer than an answer should take."""

    unanswered: int = 0
    owing: int = 0
    opens_at: int = 0


@dataclass(slots=True)
class Breaker:
    """The standing of brokers that gave cause for it; one that answers has none."""

    _standings: dict[BrokerNode, _Standing] = field(default_factory=dict)

    def opens_at(self, broker: BrokerNode) -> int:
        """From when on the broker may be asked; `NEVER` while it owes an answer."""
        # Mostly there is none at all, and it takes time to hash a broker.
        standing = self._standings.get(broker) if self._standings else None
        if standing is None:
            return 0
        return NEVER if standing.owing else standing.opens_at

    def is_suspect(self, broker: BrokerNode) -> bool:
        """Whether the last request had no answer, so that the next is only an attempt."""
        standing = self._standings.get(broker) if self._standings else None
        return standing is not None and standing.unanswered > 0

    def is_open(self, broker: BrokerNode, now: int) -> bool:
        """Whether it failed several times in a row and its pause is not over."""
        standing = self._standings.get(broker)
        return standing is not None and standing.unanswered > 1 and now < standing.opens_at

    def is_avoided(self, broker: BrokerNode, now: int) -> bool:
        """The same, or it is just being tried beside others."""
        standing = self._standings.get(broker)
        return standing is not None and standing.unanswered > 1 and self.opens_at(broker) > now

    def answered(self, broker: BrokerNode) -> bool:
        """Tells whether it had been left alone until now."""
        standing = self._standings.get(broker) if self._standings else None
        if standing is None:
            return False
        taken_back = standing.unanswered > 0
        standing.unanswered = standing.opens_at = 0
        if not standing.owing:
            del self._standings[broker]
        return taken_back

    def failed(self, broker: BrokerNode, now: int) -> int:
        """A request had no answer, or could not be sent. Gives the pause in ms."""
        standing = self._standings.setdefault(broker, _Standing())
        standing.unanswered += 1
        pause = min(_FIRST_REST_MS << min(standing.unanswered - 1, 16), _LONGEST_REST_MS)
        standing.opens_at = now + pause
        return pause

    def look_again(self, broker: BrokerNode, at: int) -> None:
        """Nothing is known yet: a connection is being opened."""
        standing = self._standings.setdefault(broker, _Standing())
        standing.opens_at = max(standing.opens_at, at)

    def owes(self, broker: BrokerNode) -> None:
        """An answer takes longer than it should."""
        self._standings.setdefault(broker, _Standing()).owing += 1

    def settled(self, broker: BrokerNode) -> None:
        """That request is waited for no more, or it is the turn of the call that waits for it."""
        self._standings[broker].owing -= 1

    def left_alone(self, now: int) -> dict[BrokerNode, int]:
        """Brokers not asked now, with the ms until they are again; 0 for those that owe an answer
        and are asked when it comes, or does not come."""
        return {
            broker: 0 if standing.owing else standing.opens_at - now
            for broker, standing in sorted(self._standings.items())
            if standing.owing or (standing.unanswered and standing.opens_at > now)
        }
