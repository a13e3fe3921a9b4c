"""Balance rounds: which member of a server-balanced group reads which partition.

A round looks at every group and turns the difference between what its members report and what they
should read into events (`balance_state`). The algorithm is a real master's: the first round after a
start deals blocks, later ones keep what is owned, hand out the rest at random and even out when
nothing is left over. Callers say which member may be given what, and when a round comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol

from tubemq_client.embedded.balance_state import STALE_ROUNDS, RateCheck
from tubemq_client.embedded.groups import Group, Groups, Member
from tubemq_client.model import Partition

__all__ = ["Balancer", "Offers"]

Plan = dict[str, set[Partition]]
"""What each member is to read after the round."""


class Offers(Protocol):
    """What the master may give to a group now."""

    def partitions(self, group: Group) -> set[Partition]: ...

    def most_brokers(self, group: Group) -> int:
        """The number of brokers of the group's most widely spread topic."""

    def brokers_per_member(self, group: Group) -> tuple[int, int]:
        """How many brokers one member may read from: the cluster's limit and the group's own, -2
        if it has none."""


class Balancer:
    """Runs rounds over `groups`. While `withheld` is set, rounds pass without any effect."""

    def __init__(self, groups: Groups, offers: Offers, random: Random) -> None:
        self._groups = groups
        self._offers = offers
        self._random = random
        self._first = True
        self._rounds = 0
        self.withheld = False

    def restart(self) -> None:
        """Begin again with a first round, as a master that became active does."""
        self._first = True

    def round(self) -> int:
        """Balance every group that has no event on its way; the id of the round."""
        self._rounds += 1
        if self.withheld:
            return self._rounds
        first, self._first = self._first, False
        for group in self._groups.server_balanced():
            if first or not self._waits(group):
                self._balance(group, self._block_plan if first else self._kept_plan)
        return self._rounds

    def _waits(self, group: Group) -> bool:
        """Whether events are on their way; those that stay too long are dropped for next time."""
        state = group.balance
        if not state.has_events:
            state.stale_rounds = 0
            return False
        state.stale_rounds += 1
        if state.stale_rounds > STALE_ROUNDS:
            state.drop_events()
        return True

    def _balance(self, group: Group, ordinary: Callable[[Group, list[Member]], Plan]) -> None:
        members = [member for _, member in sorted(group.members.items()) if member.reported]
        if group.balance.resetting:
            plan = self._listed_plan(group)
        elif self._enough_members(group):
            plan = ordinary(group, members)
        else:
            plan = {}
        for client_id, wanted in plan.items():
            owned = set(group.members[client_id].partitions)
            group.balance.add(client_id, self._rounds, removed=owned - wanted, added=wanted - owned)

    def _enough_members(self, group: Group) -> bool:
        """The resource check: members may have to be many enough for the brokers they read."""
        if group.bound is not None:
            return True
        default, own = self._offers.brokers_per_member(group)
        current = self._offers.most_brokers(group) // max(1, len(group.members))
        passed = current <= (own if own > 0 else default)
        group.balance.check = RateCheck(passed, default, own, current)
        return passed

    # ------------------------------------------------------------------ plans

    def _listed_plan(self, group: Group) -> Plan:
        """What members of a bound group named, once all of them are there."""
        state, bound = group.balance, group.bound
        if bound is not None and len(group.members) < bound.total_count:
            return {}
        state.reset_rounds += 1
        open_now = self._offers.partitions(group)
        plan: Plan = {client_id: set() for client_id in group.members}
        for partition in open_now:
            start = state.starts.get(str(partition))
            if start is not None and start.client_id in plan:
                plan[start.client_id].add(partition)
        return plan

    def _block_plan(self, group: Group, members: list[Member]) -> Plan:
        """Contiguous blocks of every topic, the first members getting one more."""
        plan: Plan = {member.client_id: set() for member in members}
        by_topic: dict[str, list[Partition]] = {}
        for partition in sorted(self._offers.partitions(group)):
            by_topic.setdefault(partition.topic, []).append(partition)
        for partitions in by_topic.values() if members else ():
            size, extra = divmod(len(partitions), len(members))
            start = 0
            for number, member in enumerate(members):
                end = start + size + (number < extra)
                plan[member.client_id].update(partitions[start:end])
                start = end
        return plan

    def _kept_plan(self, group: Group, members: list[Member]) -> Plan:
        """Everyone keeps what it reads; the rest is dealt at random, or the load evened out."""
        unowned = self._offers.partitions(group)
        emptied = group.balance.away()
        plan: Plan = {}
        for member in members:
            kept = set() if member.client_id in emptied else unowned & set(member.partitions)
            plan[member.client_id] = kept
            unowned -= kept
        takers = [name for name in plan if name not in emptied]
        if unowned and takers:
            for partition in sorted(unowned):
                plan[self._random.choice(takers)].add(partition)
        elif takers:
            _even_out({name: plan[name] for name in takers})
        return plan


def _even_out(plan: Mapping[str, set[Partition]]) -> None:
    """Move partitions from the richest to the poorest until they differ by one at most."""
    while True:
        ranked = sorted(plan, key=lambda name: (len(plan[name]), name))
        poorest, richest = plan[ranked[0]], plan[ranked[-1]]
        if len(richest) - len(poorest) <= 1:
            return
        moved = max(richest)
        richest.remove(moved)
        poorest.add(moved)
