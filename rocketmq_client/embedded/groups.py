"""Members and offsets of consumer groups, as one embedded broker keeps them.

Membership belongs to a connection: it begins with a heartbeat and ends with the connection, or when
the member says so. Others of the group get a notice (request 40) then. In memory only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rocketmq_client._wire import codes
from rocketmq_client._wire.commands import ONE_WAY, Command

__all__ = ["Groups"]

Notify = Callable[[Command], None]


class Groups:
    """Belongs to the server's loop. A channel is any object that stands for a connection. `known`
    are groups of which there was a pull or a heartbeat: offsets are taken of no others."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.known = set(known)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self._members: dict[str, dict[object, tuple[str, Notify]]] = {}
        self._numbers = itertools.count(1)

    def members(self, group: str) -> list[str]:
        """Client ids, without repetition."""
        return sorted({name for name, _ in self._members.get(group, {}).values()})

    def heard(self, channel: object, notify: Notify, body: Mapping[str, Any]) -> None:
        """A heartbeat came over `channel`."""
        client = str(body.get("clientID", ""))
        for item in body.get("consumerDataSet") or ():
            group = str(item.get("groupName", ""))
            self.known.add(group)
            known = self._members.setdefault(group, {})
            joined = channel not in known
            known[channel] = (client, notify)
            if joined:
                self._tell(group)

    def leave(self, channel: object, group: str | None = None) -> None:
        """The member left one group, or all: its connection is gone."""
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
