"""Consumer groups and producers as the master remembers them: members, consistency, time-outs.

Pure state; time is an argument (ms). Groups come in three kinds: the master assigns partitions to
the members of two of them (`balancer` decides, `balance_state` remembers) and only checks the
members of the third for consistency. Only the brokers know which member really holds a partition
(`leases`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tubemq_client.embedded.balance_state import BalanceState
from tubemq_client.embedded.checks import Refused
from tubemq_client.embedded.cluster import UNDEFINED
from tubemq_client.model import Partition

__all__ = ["BoundTerms", "Group", "GroupKind", "Groups", "Join", "Member", "Producers"]


class GroupKind(StrEnum):
    """Side that distributes the partitions; the values are the master's words for it.

    `BOUND` groups are balanced by the master, too, but start at offsets that their members request.
    """

    UNBOUND = "unbound"
    BOUND = "bound"
    CLIENT_BALANCE = "client-rebalance"


class BoundTerms(NamedTuple):
    """Terms that all members of a bound group must share."""

    session_key: str
    total_count: int
    select_big: bool


class Join(NamedTuple):
    """A consumer's request to join a group. `source_count` <= 0 means the size is not fixed."""

    client_id: str
    group: str
    host: str
    topics: frozenset[str]
    conditions: Mapping[str, frozenset[str]]
    source_count: int = UNDEFINED
    node_id: int = UNDEFINED
    kind: GroupKind = GroupKind.CLIENT_BALANCE
    bound: BoundTerms | None = None
    start_offsets: Mapping[str, int] = {}


@dataclass(slots=True)
class Member:
    """One consumer. `partitions` is its last report; `reported`: it has sent a report or a
    heartbeat since it joined. Only then does the master give it partitions. `start_offsets` are by
    partition key, requested when it joined a bound group."""

    client_id: str
    host: str
    source_count: int
    node_id: int
    seen_ms: int
    partitions: tuple[Partition, ...] = ()
    reported: bool = False
    start_offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """A group lives as long as it has a member; the first one fixes everything but the members.

    `from_max_id` is the time an administrator last sent a client-balanced group to the ends (ms).
    """

    name: str
    topics: frozenset[str]
    conditions: Mapping[str, frozenset[str]]
    source_count: int
    kind: GroupKind = GroupKind.CLIENT_BALANCE
    bound: BoundTerms | None = None
    balance: BalanceState = field(default_factory=BalanceState)
    members: dict[str, Member] = field(default_factory=dict)
    meta_id: int = UNDEFINED
    meta: list[str] = field(default_factory=list)
    from_max_id: int = UNDEFINED

    def update_meta(self, meta: list[str], now_ms: int) -> None:
        """Store the current topic meta; the id changes exactly when the content does."""
        if meta != self.meta or self.meta_id == UNDEFINED:
            self.meta, self.meta_id = meta, max(now_ms, self.meta_id + 1)


class Groups:
    """All groups with at least one live member."""

    def __init__(self, member_timeout_ms: int) -> None:
        self._timeout_ms = member_timeout_ms
        self._groups: dict[str, Group] = {}

    def names(self) -> list[str]:
        return sorted(self._groups)

    def find(self, name: str) -> Group | None:
        return self._groups.get(name)

    def server_balanced(self) -> list[Group]:
        """Return the groups whose partitions the master distributes."""
        return [
            group
            for _, group in sorted(self._groups.items())
            if group.kind is not GroupKind.CLIENT_BALANCE
        ]

    def join(self, join: Join, now_ms: int) -> Group:
        """Add or update a member. Raises `Refused` 424 to 430 if it does not fit."""
        group = self._groups.get(join.group)
        if group is None:
            group = Group(
                join.group,
                join.topics,
                dict(join.conditions),
                join.source_count,
                join.kind,
                join.bound,
            )
        else:
            _check_consistency(group, join)
        self._groups[join.group] = group
        former = group.members.get(join.client_id)
        member = Member(join.client_id, join.host, join.source_count, join.node_id, now_ms)
        if former is not None and join.kind is not GroupKind.CLIENT_BALANCE:
            member.partitions, member.reported = former.partitions, former.reported
            member.start_offsets = former.start_offsets
        elif join.bound is not None:
            # Only a new member's offsets count; one that rejoins has started already.
            member.start_offsets = join.start_offsets
            group.balance.merge_starts(
                join.client_id, join.start_offsets, select_big=join.bound.select_big
            )
        group.members[join.client_id] = member
        return group

    def member(self, name: str, client_id: str, now_ms: int) -> tuple[Group, Member]:
        """Return a known member and renew its time-out. Raises `Refused` 411."""
        return self._renewed(
            name, client_id, now_ms, f"Not found client {client_id} in group({name})"
        )

    def balanced_member(self, name: str, client_id: str, now_ms: int) -> tuple[Group, Member]:
        """Return a server-balanced member like `member`; the text of the refusal differs."""
        return self._renewed(
            name,
            client_id,
            now_ms,
            f"Update consumer node exception:Invalid node id:{client_id}@{name}, "
            "you have to append node first!",
        )

    def _renewed(
        self, name: str, client_id: str, now_ms: int, unknown: str
    ) -> tuple[Group, Member]:
        group = self._groups.get(name)
        if group is None:
            raise Refused(411, f"Not found groupName {name} in holder!")
        member = group.members.get(client_id)
        if member is None:
            raise Refused(411, unknown)
        member.seen_ms = now_ms
        return group, member

    def leave(self, name: str, client_id: str) -> None:
        group = self._groups.get(name)
        if group is None:
            return
        group.members.pop(client_id, None)
        group.balance.forget(client_id)
        if not group.members:
            del self._groups[name]

    def sweep(self, now_ms: int) -> None:
        """Drop members that have been silent for too long."""
        for group in list(self._groups.values()):
            for member in list(group.members.values()):
                if now_ms - member.seen_ms >= self._timeout_ms:
                    self.leave(group.name, member.client_id)

    def clear(self) -> None:
        self._groups.clear()


class Producers:
    """Registered producers and the topics they publish."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._topics: dict[str, frozenset[str]] = {}
        self._seen_ms: dict[str, int] = {}

    def register(self, client_id: str, topics: frozenset[str], now_ms: int) -> None:
        self._topics[client_id] = topics
        self._seen_ms[client_id] = now_ms

    def renew(self, client_id: str, topics: frozenset[str], now_ms: int) -> None:
        """Renew a producer. Raises `Refused` 411 if it is unknown."""
        if client_id not in self._seen_ms:
            raise Refused(411, f"Invalid node id:{client_id}, you have to append node first!")
        self.register(client_id, topics, now_ms)

    def remove(self, client_id: str) -> None:
        self._topics.pop(client_id, None)
        self._seen_ms.pop(client_id, None)

    def sweep(self, now_ms: int) -> None:
        for client_id, seen in list(self._seen_ms.items()):
            if now_ms - seen >= self._timeout_ms:
                self.remove(client_id)

    def clear(self) -> None:
        self._topics.clear()
        self._seen_ms.clear()


def _check_consistency(group: Group, join: Join) -> None:
    prefix = f"[Inconsistency subscribe] {join.client_id}"
    suffix = "is inconsistency with other consumers in the group"
    if join.kind is not group.kind:
        raise Refused(
            424,
            f"{prefix} using {join.kind} subscribe is inconsistency with other consumers "
            f"using {group.kind} subscribe in the group",
        )
    if join.topics != group.topics:
        raise Refused(
            425,
            f"{prefix} subscribed topics [{_listed(join.topics)}] {suffix}, "
            f"existedTopics: [{_listed(group.topics)}]",
        )
    if dict(join.conditions) != dict(group.conditions):
        raise Refused(
            426,
            f"{prefix} subscribe {_requested_conditions(join.conditions)} {suffix}"
            + (
                f", existed topic conditions is {_conditions(group.conditions)}"
                if group.conditions
                else ": topic without conditions"
            ),
        )
    if join.bound is not None and group.bound is not None:
        _check_terms(group.bound, join.bound, f"{prefix}'s", suffix)
    if join.kind is GroupKind.CLIENT_BALANCE:
        _check_node(group, join, f"{prefix}'s", suffix)


def _check_terms(agreed: BoundTerms, requested: BoundTerms, prefix: str, suffix: str) -> None:
    for code, name, required, request in (
        (427, "sessionKey", agreed.session_key, requested.session_key),
        (429, "sourceCount", agreed.total_count, requested.total_count),
        (428, "isSelectBig", agreed.select_big, requested.select_big),
    ):
        if required != request:
            words = [
                str(value).lower() if isinstance(value, bool) else value
                for value in (required, request)
            ]
            raise Refused(
                code, f"{prefix} {name} {suffix}, required is {words[0]}, request is {words[1]}"
            )


def _check_node(group: Group, join: Join, prefix: str, suffix: str) -> None:
    if join.source_count != group.source_count:
        raise Refused(
            429,
            f"{prefix} sourceCount {suffix}, required is {group.source_count}, "
            f"request is {join.source_count}",
        )
    if join.source_count <= 0:
        return
    for member in group.members.values():
        if member.node_id == join.node_id and member.client_id != join.client_id:
            raise Refused(
                430,
                f"{prefix} nodeId value({join.node_id}) is occupied by {member.client_id}'s "
                f"nodeId value({member.node_id}) in the group!",
            )


def _listed(items: frozenset[str]) -> str:
    return ", ".join(sorted(items))


def _conditions(conditions: Mapping[str, frozenset[str]]) -> str:
    inner = ", ".join(f"{topic}=[{_listed(items)}]" for topic, items in sorted(conditions.items()))
    return "{" + inner + "}"


def _requested_conditions(conditions: Mapping[str, frozenset[str]]) -> str:
    if not conditions:
        return "without filter condition "
    return f"with filter condition {_conditions(conditions)}"
