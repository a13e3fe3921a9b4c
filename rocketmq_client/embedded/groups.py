"""Members and offsets of consumer groups at one embedded broker.

Membership belongs to a connection: it begins with a heartbeat and ends with the connection, or when
the member unregisters. The other members then get a notice (request 40). In memory only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from rocketmq_client._wire import codes
from rocketmq_client._wire.commands import ONE_WAY, Command

__all__ = ["LOCK_MS", "Groups"]

LOCK_MS: Final = 60_000
"""Time of a lock that is not renewed (`RebalanceLockManager`, `rebalanceLockMaxLiveTime`)."""

Notify = Callable[[Command], None]


class Client(NamedTuple):
    """Client that sends heartbeats over a channel."""

    client_id: str
    address: str
    language: str
    version: int


class Groups:
    """Groups of a broker. Belongs to the server's loop. A channel is any object that stands for a
    connection. `known` has the groups with a pull or a heartbeat: offsets of other groups are
    refused. `settings` are those that were changed, `resets` offsets for the next pull."""

    def __init__(
        self,
        known: Iterable[str] = (),
        offsets: Mapping[tuple[str, str, int], int] | None = None,
        settings: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.known = set(known)
        self.offsets = dict(offsets or {})
        self.settings = dict(settings or {})
        self.resets: dict[tuple[str, str, int], int] = {}
        self.subscriptions: dict[str, dict[str, Any]] = {}
        self._members: dict[str, dict[object, tuple[Client, Notify]]] = {}
        self._locks: dict[tuple[str, str, int], tuple[str, int]] = {}
        self._producers: dict[str, dict[object, Notify]] = {}
        self._clients: dict[str, tuple[object, Notify]] = {}
        self._numbers = itertools.count(1)

    def members(self, group: str) -> list[str]:
        """Return client ids, without repetition."""
        return sorted({client.client_id for client in self.clients(group)})

    def clients(self, group: str) -> list[Client]:
        """Return the group's members, one for each channel."""
        return [client for client, _ in self._members.get(group, {}).values()]

    def enabled(self, group: str) -> bool:
        """Return whether the group gets records."""
        return self.settings.get(group, {}).get("consumeEnable") is not False

    def delete(self, group: str, *, offsets: bool) -> None:
        """Forget the group, and with `offsets` what it has committed."""
        self.known.discard(group)
        self.settings.pop(group, None)
        if offsets:
            self.offsets = {key: at for key, at in self.offsets.items() if key[0] != group}

    def heard(
        self, channel: object, notify: Notify, client: Client, body: Mapping[str, Any]
    ) -> list[str]:
        """Register the members of a heartbeat that came over `channel`; return their groups."""
        self._clients[client.client_id] = channel, notify
        for item in body.get("producerDataSet") or ():
            self._producers.setdefault(str(item.get("groupName", "")), {})[channel] = notify
        groups = []
        for item in body.get("consumerDataSet") or ():
            group = str(item.get("groupName", ""))
            groups.append(group)
            self.known.add(group)
            members = self._members.setdefault(group, {})
            self.subscriptions[group] = dict(item)
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

    def producer(self, group: str) -> Notify | None:
        """Return how to ask a producer of the group, None without one."""
        return next(iter(self._producers.get(group, {}).values()), None)

    def client(self, client_id: str) -> Notify | None:
        """Return how to reach a client that sends heartbeats, None without it."""
        return self._clients.get(client_id, (None, None))[1]

    def number(self) -> int:
        """Return a new number for a request to a client."""
        return next(self._numbers)

    def leave(self, channel: object, group: str | None = None) -> None:
        """Remove the member from one group, or from all when its connection is closed."""
        if group is None:
            self._clients = {name: at for name, at in self._clients.items() if at[0] != channel}
            for producers in self._producers.values():
                producers.pop(channel, None)
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
