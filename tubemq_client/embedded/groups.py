"""Consumer groups and producers as the master remembers them: members, consistency, time-outs.

Pure state; time is an argument (ms). Only client-balanced groups exist so far; the master never
assigns partitions to them, it only keeps their members consistent. Who really holds a partition is
known to the brokers alone (`leases`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tubemq_client.embedded.checks import Refused
from tubemq_client.embedded.cluster import UNDEFINED
from tubemq_client.model import Partition

__all__ = ["Group", "Groups", "Join", "Member", "Producers"]


class Join(NamedTuple):
    """A consumer's wish to be in a group. `source_count` <= 0 means the size is not fixed."""

    client_id: str
    group: str
    host: str
    topics: frozenset[str]
    conditions: Mapping[str, frozenset[str]]
    source_count: int = UNDEFINED
    node_id: int = UNDEFINED


@dataclass(slots=True)
class Member:
    """One consumer. `partitions` is what it last said it reads."""

    client_id: str
    host: str
    source_count: int
    node_id: int
    seen_ms: int
    partitions: tuple[Partition, ...] = ()


@dataclass(slots=True)
class Group:
    """A group lives as long as it has a member; the first one fixed everything but the members."""

    name: str
    topics: frozenset[str]
    conditions: Mapping[str, frozenset[str]]
    source_count: int
    members: dict[str, Member] = field(default_factory=dict)
    meta_id: int = UNDEFINED
    meta: list[str] = field(default_factory=list)

    def update_meta(self, meta: list[str], now_ms: int) -> None:
        """Take over the current topic meta; the id changes exactly when the content does."""
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

    def join(self, wish: Join, now_ms: int) -> Group:
        """Add or update a member. Raises `Refused` 425, 426, 429 or 430 if it does not fit."""
        group = self._groups.get(wish.group)
        if group is None:
            group = Group(wish.group, wish.topics, dict(wish.conditions), wish.source_count)
        else:
            _check_consistency(group, wish)
        self._groups[wish.group] = group
        group.members[wish.client_id] = Member(
            wish.client_id, wish.host, wish.source_count, wish.node_id, now_ms
        )
        return group

    def member(self, name: str, client_id: str, now_ms: int) -> tuple[Group, Member]:
        """A known member, its time-out renewed. Raises `Refused` 411."""
        group = self._groups.get(name)
        if group is None:
            raise Refused(411, f"Not found groupName {name} in holder!")
        member = group.members.get(client_id)
        if member is None:
            raise Refused(
                411,
                f"Not found client {client_id} in group({name})",
            )
        member.seen_ms = now_ms
        return group, member

    def leave(self, name: str, client_id: str) -> None:
        group = self._groups.get(name)
        if group is None:
            return
        group.members.pop(client_id, None)
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
        """Raises `Refused` 411 for an unknown producer."""
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


def _check_consistency(group: Group, wish: Join) -> None:
    prefix = f"[Inconsistency subscribe] {wish.client_id}"
    suffix = "is inconsistency with other consumers in the group"
    if wish.topics != group.topics:
        raise Refused(
            425,
            f"{prefix} subscribed topics [{_listed(wish.topics)}] {suffix}, "
            f"existedTopics: [{_listed(group.topics)}]",
        )
    if dict(wish.conditions) != dict(group.conditions):
        raise Refused(
            426,
            f"{prefix} subscribe with filter condition {_conditions(wish.conditions)} {suffix}, "
            f"existed topic conditions is {_conditions(group.conditions)}",
        )
    if wish.source_count != group.source_count:
        raise Refused(
            429,
            f"{prefix}'s sourceCount {suffix}, required is {group.source_count}, "
            f"request is {wish.source_count}",
        )
    if wish.source_count > 0:
        for member in group.members.values():
            if member.node_id == wish.node_id and member.client_id != wish.client_id:
                raise Refused(
                    430,
                    f"{prefix}'s nodeId value({wish.node_id}) is occupied by {member.client_id}'s "
                    f"nodeId value({member.node_id}) in the group!",
                )


def _listed(items: frozenset[str]) -> str:
    return ", ".join(sorted(items))


def _conditions(conditions: Mapping[str, frozenset[str]]) -> str:
    inner = ", ".join(f"{topic}=[{_listed(items)}]" for topic, items in sorted(conditions.items()))
    return "{" + inner + "}"
