"""Members and offsets of consumer groups at one embedded broker.

Membership belongs to a connection: it begins with a heartbeat and ends with the connection, or when
the member unregisters. The other members then get a notice (request 40). In memory only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rocketmq_client._wire import codes
from rocketmq_client._wire.commands import ONE_WAY, Command

__all__ = ["LOCK_MS", "Groups"]

LOCK_MS: Final = 60_000
"""Time of a lock that is not renewed (`RebalanceLockManager`, `rebalanceLockMaxLiveTime`)."""

Notify = Callable[[Command], None]


class Groups:
    """Groups of a broker. Belongs to the server's loop. A channel is any object that stands for a
    connection. `known` has the groups with a pull or a heartbeat: offsets of other groups are
    refused."""

    def __init__(
        self, known: Iterable[str] = (), offsets: Mapping[tuple[str, str, int], int] | None = None
    ) -> None:
        self.known = set(known)
        self.offsets = dict(offsets or {})
        self._members: dict[str, dict[object, tuple[str, Notify]]] = {}
        self._locks: dict[tuple[str, str, int], tuple[str, int]] = {}
        self._numbers = itertools.count(1)

    def members(self, group: str) -> list[str]:
        """Return client ids, without repetition."""
        return sorted({name for name, _ in self._members.get(group, {}).values()})

    def heard(self, channel: object, notify: Notify, body: Mapping[str, Any]) -> list[str]:
        """Register the members of a heartbeat that came over `channel`; return their groups."""
        client = str(body.get("clientID", ""))
        groups = []
        for item in body.get("consumerDataSet") or ():
            group = str(item.get("groupName", ""))
            groups.append(group)
            self.known.add(group)
            members = self._members.setdefault(group, {})
            joined = channel not in members
            members[channel] = (client, notify)
            if joined:
                self._tell(group)
        return groups

    def lock(self, group: str, client: str, queue: tuple[str, int], now_ms: int) -> bool:
        """Lock a queue for a client, for 60 s; return False while another client has it."""
        key = (group, *queue)
        owner, until = self._locks.get(key, (client, 0))
        if owner != client and now_ms < until:
            return False
        self._locks[key] = (client, now_ms + LOCK_MS)
        return True

    def unlock(self, group: str, client: str, queue: tuple[str, int]) -> None:
        """Release a lock of this client."""
        key = (group, *queue)
        if self._locks.get(key, ("", 0))[0] == client:
            del self._locks[key]

    def leave(self, channel: object, group: str | None = None) -> None:
        """Remove the member from one group, or from all when its connection is closed."""
        for name in [group] if group is not None else list(self._members):
            if self._members.get(name, {}).pop(channel, None) is not None:
                self._tell(name)

    def _tell(self, group: str) -> None:
        for _, notify in list(self._members[group].values()):
            notify(
                Command(
                    codes.NOTIFY_CONSUMER_IDS_CHANGED.code,
                    next(self._numbers),
                    {"consumerGroup": group},
                    flag=ONE_WAY,
                    language="JAVA",
                )
            )
