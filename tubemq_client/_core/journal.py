"""What a client tells the log `tubemq_client`: the turns of its life, so that there is something to
look at after an incident.

INFO for what happens in good order (joined, took, gave back, rules changed, a broker or master back
again), WARNING for what an operator may have to act on (lost, no answer, late, ended). Never once
per record or request, and never a secret: errors of this library hold none, and what servers say in
them is made visible (`terminal`). Nothing is decided by it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tubemq_client.terminal import visible

if TYPE_CHECKING:
    from tubemq_client.model import Address, BrokerNode, Partition

__all__ = [
    "broker_is_back",
    "broker_left_alone",
    "ended",
    "gives_back",
    "heartbeat_failed",
    "heartbeat_is_late",
    "heartbeats_again",
    "joined",
    "left",
    "lost",
    "master_answers",
    "no_master_answers",
    "rules_changed",
    "rules_not_understood",
    "took",
]

_log = logging.getLogger("tubemq_client")


def joined(group: str, member: str, topics: Iterable[str]) -> None:
    """A member has registered with the master."""
    _log.info("group %s: %s joined, reads %s", group, member, ", ".join(sorted(topics)))


def left(group: str, member: str) -> None:
    """A member has given everything back."""
    _log.info("group %s: %s left", group, member)


def ended(group: str, error: BaseException) -> None:
    """A membership cannot go on."""
    _log.warning("group %s: consuming ends: %s", group, _told(error))


def took(group: str, partition: Partition, broker: BrokerNode, offset: int) -> None:
    """A partition is held now."""
    _log.info("group %s: took %s at broker %s, from offset %d", group, partition, broker, offset)


def gives_back(group: str, partitions: Iterable[Partition]) -> None:
    """Partitions that the master, or the user, wants back."""
    _log.info("group %s: gives back %s", group, ", ".join(map(str, partitions)))


def lost(group: str, partition: Partition, error: Exception) -> None:
    """A broker took a partition away."""
    _log.warning("group %s: lost %s: %s", group, partition, _told(error))


def master_answers(address: Address) -> None:
    """Another master than before, or one after none did."""
    _log.info("master %s:%d answers now", *address)


def no_master_answers(error: Exception) -> None:
    """None of them did."""
    _log.warning("no active master answers: %s", _told(error))


def broker_left_alone(broker: BrokerNode, error: Exception) -> None:
    """A broker is not asked for a while."""
    _log.warning("broker %s is left alone, as it does not answer: %s", broker, _told(error))


def broker_is_back(broker: BrokerNode) -> None:
    """A broker that was left alone answered."""
    _log.info("broker %s answers again", broker)


def heartbeat_is_late(group: str, whom: str, late_ms: int) -> None:
    """The process was stopped or busy when a heartbeat was due."""
    _log.warning(
        "group %s: the heartbeat to %s is %d ms late; after 30 s without one partitions are lost. "
        "Is the process starved of processor time?",
        group,
        whom,
        late_ms,
    )


def heartbeat_failed(group: str, error: Exception) -> None:
    """A heartbeat to the master had no good answer."""
    _log.warning("group %s: heartbeat to the master failed: %s", group, _told(error))


def heartbeats_again(group: str) -> None:
    """The first heartbeat after some that failed."""
    _log.info("group %s: the master hears heartbeats again", group)


def rules_changed(whose: str, number: int) -> None:
    """Flow rules came, changed or went (a number below 0)."""
    _log.info("flow rules of %s: %s", whose, "none" if number < 0 else f"set {number} is in force")


def rules_not_understood(whose: str, number: int, error: Exception) -> None:
    """Rules that this release cannot read; those before stay in force."""
    _log.warning("flow rules of %s, set %d, are not understood: %s", whose, number, _told(error))


def _told(error: BaseException) -> str:
    return visible(f"{type(error).__name__}: {error}")[:1_000]
