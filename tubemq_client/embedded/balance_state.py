"""State of a group that the master balances: queued events and agreed start offsets.

Pure state. A client gets one event at a time, each is sent once, and the next heartbeat that
acknowledges any event removes it. While any member still has to give up partitions, no member
receives new ones. `balancer` queues events, `balance_rpc` sends them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tubemq_client.model import Partition

__all__ = ["BalanceState", "Event", "EventType", "RateCheck", "Start"]

STALE_ROUNDS = 10
"""Balance rounds after which events that no member acknowledges are dropped."""

RESET_ROUNDS = 2
"""Rounds that may assign listed partitions before a bound group is balanced like any other."""


class EventType(IntEnum):
    """`opType` of an event; the ``ONLY`` forms mean that the round had no opposite event."""

    CONNECT = 1
    DISCONNECT = 2
    ONLY_CONNECT = 10
    ONLY_DISCONNECT = 20


@dataclass(slots=True)
class Event:
    """Partitions that one client must take or give up; `sent`: the client has received it."""

    rebalance_id: int
    type: EventType
    partitions: tuple[Partition, ...]
    sent: bool = False


class Start(NamedTuple):
    """Client that starts a listed partition of a bound group, and the index offset it starts at."""

    client_id: str
    offset: int


class RateCheck(NamedTuple):
    """Result of the check for enough members: brokers per member, and the limits of the cluster and
    of the group (-2: it has none).
    """

    passed: bool
    default: int
    configured: int
    current: int


@dataclass(slots=True)
class SuspendedMember:
    """A member excluded for some rounds; `begun`: it has lost its partitions."""

    rounds: int
    since_ms: int
    begun: bool = False


@dataclass(slots=True)
class BalanceState:
    """Balance of one group. `starts` are the offsets requested by its members, by the text of the
    partition: real masters do not parse it. `suspended` are excluded members."""

    not_allocated: bool = True
    starts: dict[str, Start] = field(default_factory=dict)
    reset_rounds: int = 0
    stale_rounds: int = 0
    check: RateCheck | None = None
    suspended: dict[str, SuspendedMember] = field(default_factory=dict)
    _takes: dict[str, deque[Event]] = field(default_factory=dict)
    _gives: dict[str, deque[Event]] = field(default_factory=dict)

    # ------------------------------------------------------------------ events

    def add(
        self,
        client_id: str,
        rebalance_id: int,
        *,
        removed: Iterable[Partition],
        added: Iterable[Partition],
    ) -> None:
        """Queue the partitions that a round takes from and gives to a client."""
        lost, gained = tuple(sorted(removed)), tuple(sorted(added))
        if lost:
            kind = EventType.DISCONNECT if gained else EventType.ONLY_DISCONNECT
            self._gives.setdefault(client_id, deque()).append(Event(rebalance_id, kind, lost))
        if gained:
            kind = EventType.CONNECT if lost else EventType.ONLY_CONNECT
            self._takes.setdefault(client_id, deque()).append(Event(rebalance_id, kind, gained))

    @property
    def has_events(self) -> bool:
        return bool(self._takes or self._gives)

    @property
    def _queues(self) -> dict[str, deque[Event]]:
        """Queues in use; real masters choose for the whole group, for acknowledgements as well."""
        return self._gives or self._takes

    def acknowledge(self, client_id: str) -> None:
        """Remove the client's first event, of either type, and count the group as allocated."""
        queue = self._queues.get(client_id)
        if queue:
            queue.popleft()
        self._tidy()
        self.not_allocated = False

    def next_event(self, client_id: str) -> Event | None:
        """Return the client's next event; None if there is none or it was sent already."""
        queue = self._queues.get(client_id)
        if not queue or queue[0].sent:
            return None
        queue[0].sent = True
        return queue[0]

    def repeat_event(self, client_id: str) -> None:
        """Send the client's next event once more."""
        for queues in (self._gives, self._takes):
            for event in queues.get(client_id, ()):
                event.sent = False

    def drop_events(self) -> None:
        """Drop every event, as masters do with events that stay unacknowledged for long."""
        self._takes.clear()
        self._gives.clear()
        self.stale_rounds = 0

    def forget(self, client_id: str) -> None:
        """Drop events and start offsets of a client that has left."""
        self._takes.pop(client_id, None)
        self._gives.pop(client_id, None)
        self.suspended.pop(client_id, None)
        self.starts = {
            partition: start
            for partition, start in self.starts.items()
            if start.client_id != client_id
        }

    def _tidy(self) -> None:
        for queues in (self._gives, self._takes):
            for client_id in [name for name, queue in queues.items() if not queue]:
                del queues[client_id]

    # ------------------------------------------------------------------ excluded members

    def suspend_member(self, client_id: str, rounds: int, now_ms: int) -> None:
        """Empty a member in the next round and exclude it for `rounds`, but for one at least."""
        self.suspended.setdefault(client_id, SuspendedMember(rounds, now_ms))

    def take_suspended(self) -> set[str]:
        """Return the members to exclude from this round; each call counts as a round."""
        for client_id, exclusion in list(self.suspended.items()):
            if exclusion.begun:
                exclusion.rounds -= 1
                if exclusion.rounds <= 0:
                    del self.suspended[client_id]
            exclusion.begun = True
        return set(self.suspended)

    # ------------------------------------------------------------------ bound groups

    @property
    def resetting(self) -> bool:
        """True while only listed partitions are assigned."""
        return self.not_allocated and bool(self.starts) and self.reset_rounds < RESET_ROUNDS

    def merge_starts(self, client_id: str, offsets: Mapping[str, int], *, select_big: bool) -> None:
        """Merge the start offsets of a member; with `select_big` the later one wins a tie."""
        for partition, offset in offsets.items():
            former = self.starts.get(partition)
            if former is None or (
                offset >= former.offset if select_big else offset < former.offset
            ):
                self.starts[partition] = Start(client_id, offset)
