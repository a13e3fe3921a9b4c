"""Balance rounds: assignment of partitions to the members of server-balanced groups.

A round looks at every group and turns the difference between what its members report and what they
should read into events (`balance_state`). The algorithm is a real master's: the first round after a
start assigns blocks, later ones keep what is owned, assign the rest at random and even out when
nothing is left over. Callers supply what each member may get, and start the rounds.
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
"""Partitions that each member should read after the round, by client id."""


class Offers(Protocol):
    """Partitions and limits that the master applies to a group now."""

    def partitions(self, group: Group) -> set[Partition]: ...

    def most_brokers(self, group: Group) -> int:
        """Return the number of brokers of the group's most widely spread topic."""

    def brokers_per_member(self, group: Group) -> tuple[int, int]:
        """Return the limits of brokers per member: the cluster's, and the group's or -2."""


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
        """Balance every group that has no pending event; returns the id of the round."""
        self._rounds += 1
        if self.withheld:
            return self._rounds
        first, self._first = self._first, False
        for group in self._groups.server_balanced():
            if first or not self._has_pending_events(group):
                self._balance(group, self._block_plan if first else self._kept_plan)
        return self._rounds

    def _has_pending_events(self, group: Group) -> bool:
        """Return True while events are pending; those pending too long are dropped."""
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
        for client_id, assigned in plan.items():
            owned = set(group.members[client_id].partitions)
            group.balance.add(
                client_id, self._rounds, removed=owned - assigned, added=assigned - owned
            )

    def _enough_members(self, group: Group) -> bool:
        """Check resources: return False if the group has too few members for its brokers."""
        if group.bound is not None:
            return True
        default, own = self._offers.brokers_per_member(group)
        current = self._offers.most_brokers(group) // max(1, len(group.members))
        passed = current <= (own if own > 0 else default)
        group.balance.check = RateCheck(passed, default, own, current)
        return passed

    # ------------------------------------------------------------------ plans

    def _listed_plan(self, group: Group) -> Plan:
        """Assign the partitions that members of a bound group listed, once all have joined."""
        state, bound = group.balance, group.bound
        if bound is not None and len(group.members) < bound.total_count:
            return {}
        state.reset_rounds += 1
        assignable = self._offers.partitions(group)
        plan: Plan = {client_id: set() for client_id in group.members}
        for partition in assignable:
            start = state.starts.get(str(partition))
            if start is not None and start.client_id in plan:
                plan[start.client_id].add(partition)
        return plan

    def _block_plan(self, group: Group, members: list[Member]) -> Plan:
        """Assign contiguous blocks of every topic; the first members get one more."""
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
        """Keep what every member reads; assign the rest at random, or even out if there is none."""
        unowned = self._offers.partitions(group)
        excluded = group.balance.take_suspended()
        plan: Plan = {}
        for member in members:
            retained = set() if member.client_id in excluded else unowned & set(member.partitions)
            plan[member.client_id] = retained
            unowned -= retained
        receivers = [name for name in plan if name not in excluded]
        if unowned and receivers:
            for partition in sorted(unowned):
                plan[self._random.choice(receivers)].add(partition)
        elif receivers:
            _even_out({name: plan[name] for name in receivers})
        return plan


def _even_out(plan: Mapping[str, set[Partition]]) -> None:
    """Move partitions from the largest to the smallest member until they differ by one at most."""
    while True:
        ranked = sorted(plan, key=lambda name: (len(plan[name]), name))
        smallest, largest = plan[ranked[0]], plan[ranked[-1]]
        if len(largest) - len(smallest) <= 1:
            return
        moved = max(largest)
        largest.remove(moved)
        smallest.add(moved)
