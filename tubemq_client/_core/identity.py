"""Names of clients: client ids, and the bounded pool of groups that range readers share.

A broker keeps every group that ever registered for weeks, so readers must not invent names: they
share `<group>.r00…` (readers), `<group>.p00…` (probes for end records) and `<group>.e` (end
look-ups). Nothing here reads a clock or a process id; these are arguments.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tubemq_client.model import OffsetRange

__all__ = ["CLIENT_VERSION", "ClientIds", "ReaderPool", "end_lookup_client", "end_lookup_group"]

CLIENT_VERSION = "0.1.0"

_DEFAULT_POOL = 32


@dataclass(slots=True)
class ClientIds:
    """Generator of client ids: `<group>_<ip>-<pid>-<ms>-<n>-<kind>-py-<version>`.

    Unique as long as all clients of a process share `numbers`: an id used twice would make one
    client silently replace the other at the master.

    Everything after the last underscore has TubeMQ's `ip-pid-…` shape, from which brokers take the
    peer's address for their statistics; ids never contain `@` or `#` (master node keys do).
    """

    host: str
    pid: int
    started_ms: int
    numbers: Iterator[int]

    def consumer(self, group: str, kind: str) -> str:
        return f"{group}_{self._suffix(kind)}"

    def producer(self) -> str:
        return self._suffix("Producer")

    def _suffix(self, kind: str) -> str:
        number = next(self.numbers)
        return f"{self.host}-{self.pid}-{self.started_ms}-{number}-{kind}-py-{CLIENT_VERSION}"


@dataclass(frozen=True, slots=True)
class ReaderPool:
    """Groups that readers and probes of `group` may use, `size` of each.

    A reader starts at a slot derived from its range and moves on when a broker answers 410, so
    concurrent readers spread out while the number of groups stays bounded.
    """

    group: str
    size: int = _DEFAULT_POOL
    seed: str = ""

    def first_slot(self, range_: OffsetRange) -> int:
        text = f"{self.seed}|{range_.partition}|{range_.start}|{range_.end}"
        return zlib.crc32(text.encode()) % self.size

    def reader(self, slot: int) -> str:
        return f"{self.group}.r{slot % self.size:02d}"

    def probe(self, slot: int) -> str:
        return f"{self.group}.p{slot % self.size:02d}"


def end_lookup_group(group: str) -> str:
    """Return the one group that end look-ups of `group` register with."""
    return f"{group}.e"


def end_lookup_client(group: str) -> str:
    """Return the fixed client id of end look-ups.

    A broker lets the same client id replace its own registration, and a look-up needs no more than
    the reply to the register. One shared id therefore means that look-ups never meet 410, even
    after a crash.
    """
    return f"{group}.e_0.0.0.0-0-0-0-Ends-py-{CLIENT_VERSION}"
