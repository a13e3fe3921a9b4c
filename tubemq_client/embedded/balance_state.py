"""What the master remembers of a group that it balances: events on their way, agreed start offsets.

Pure state. A client gets one event at a time, each is handed out once, and the next heartbeat that
acknowledges anything removes it. While any member still has to give up partitions, nobody is told
to take some. `balancer` puts events in, `balance_rpc` takes them out.
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
"""Balance rounds after which events that nobody acknowledges are dropped."""

RESET_ROUNDS = 2
"""Rounds that may hand out listed partitions before a bound group is balanced like any other."""


class EventType(IntEnum):
    """`opType` of an event; the ``ONLY`` forms say that the round brought nothing else."""

    CONNECT = 1
    DISCONNECT = 2
    ONLY_CONNECT = 10
    ONLY_DISCONNECT = 20


@dataclass(slots=True)
class Event:
    """Partitions that one client is to take or to give up; `sent`: it has been told."""

    rebalance_id: int
    type: EventType
    partitions: tuple[Partition, ...]
    sent: bool = False


class Start(NamedTuple):
    """The client that begins a listed partition of a bound group, and at which index offset."""

    client_id: str
    offset: int


class RateCheck(NamedTuple):
    """Whether the group had members enough: brokers for each member, and how many are allowed by
    the cluster and by the group's own setting (-2: it has none)."""

    passed: bool
    default: int
    configured: int
    current: int


@dataclass(slots=True)
class Away:
    """A member that was sent away for some rounds; `begun`: it has lost its partitions."""

    rounds: int
    since_ms: int
    begun: bool = False


@dataclass(slots=True)
class BalanceState:
    """Balance of one group. `starts` are the offsets that its members asked for, by the text of the
    partition: real masters do not look into it. `rejoin` are members sent away."""

    not_allocated: bool = True
    starts: dict[str, Start] = field(default_factory=dict)
    reset_rounds: int = 0
    stale_rounds: int = 0
    check: RateCheck | None = None
    rejoin: dict[str, Away] = field(default_factory=dict)
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
        """Queue what a round takes from and gives to a client."""
        gone, new = tuple(sorted(removed)), tuple(sorted(added))
        if gone:
            kind = EventType.DISCONNECT if new else EventType.ONLY_DISCONNECT
            self._gives.setdefault(client_id, deque()).append(Event(rebalance_id, kind, gone))
        if new:
            kind = EventType.CONNECT if gone else EventType.ONLY_CONNECT
            self._takes.setdefault(client_id, deque()).append(Event(rebalance_id, kind, new))

    @property
    def has_events(self) -> bool:
        return bool(self._takes or self._gives)

    @property
    def _queues(self) -> dict[str, deque[Event]]:
        """Real masters choose the queue for the whole group, for acknowledgements as well."""
        return self._gives or self._takes

    def acknowledge(self, client_id: str) -> None:
        """Remove the client's first event, whichever it means, and count the group as allocated."""
        queue = self._queues.get(client_id)
        if queue:
            queue.popleft()
        self._tidy()
        self.not_allocated = False

    def next_event(self, client_id: str) -> Event | None:
        """The client's next event, None if there is none or it has been handed out already."""
        queue = self._queues.get(client_id)
        if not queue or queue[0].sent:
            return None
        queue[0].sent = True
        return queue[0]

    def repeat_event(self, client_id: str) -> None:
        """Hand out the client's next event once more."""
        for queues in (self._gives, self._takes):
            for event in queues.get(client_id, ()):
                event.sent = False

    def drop_events(self) -> None:
        """Forget every event, as masters do with those that stay unacknowledged for long."""
        self._takes.clear()
        self._gives.clear()
        self.stale_rounds = 0

    def forget(self, client_id: str) -> None:
        """The client has left: its events and offsets go with it."""
        self._takes.pop(client_id, None)
        self._gives.pop(client_id, None)
        self.rejoin.pop(client_id, None)
        self.starts = {
            partition: start
            for partition, start in self.starts.items()
            if start.client_id != client_id
        }

    def _tidy(self) -> None:
        for queues in (self._gives, self._takes):
            for client_id in [name for name, queue in queues.items() if not queue]:
                del queues[client_id]

    # ------------------------------------------------------------------ members sent away

    def send_away(self, client_id: str, rounds: int, now_ms: int) -> None:
        """Empty a member in the next round; it stays out for `rounds`, but for one at least."""
        self.rejoin.setdefault(client_id, Away(rounds, now_ms))

    def away(self) -> set[str]:
        """The members to leave out of this round; calling it uses the round up."""
        for client_id, away in list(self.rejoin.items()):
            if away.begun:
                away.rounds -= 1
                if away.rounds <= 0:
                    del self.rejoin[client_id]
            away.begun = True
        return set(self.rejoin)

    # ------------------------------------------------------------------ bound groups

    @property
    def resetting(self) -> bool:
        """Whether only listed partitions are handed out for now."""
        return self.not_allocated and bool(self.starts) and self.reset_rounds < RESET_ROUNDS

    def book(self, client_id: str, wanted: Mapping[str, int], *, select_big: bool) -> None:
        """Merge the offsets a member asks for; in a draw the later one wins if the bigger does."""
        for partition, offset in wanted.items():
            former = self.starts.get(partition)
            if former is None or (
                offset >= former.offset if select_big else offset < former.offset
            ):
                self.starts[partition] = Start(client_id, offset)
