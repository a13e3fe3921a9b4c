"""Events that a client writes to the log `tubemq_client`, for the analysis of incidents.

INFO for normal events (joined, took, gave back, rules changed, a broker or master answers again),
WARNING for events an operator may have to act on (lost, no answer, late, ended). Never once per
record or request, and never a secret: errors of this library hold none, and control characters in
servers' texts are made visible (`terminal`). No decision depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tubemq_client.terminal import visible

if TYPE_CHECKING:
    from tubemq_client.model import Address, BrokerNode, OffsetRange, Partition

__all__ = [
    "broker_avoided",
    "broker_is_back",
    "ended",
    "heartbeat_failed",
    "heartbeat_is_late",
    "heartbeats_again",
    "joined",
    "left",
    "lost",
    "master_answers",
    "no_master_answers",
    "range_read_waits",
    "releases_partitions",
    "rules_changed",
    "rules_not_understood",
    "took",
]

_log = logging.getLogger("tubemq_client")


def joined(group: str, member: str, topics: Iterable[str]) -> None:
    """Log that a member has registered with the master."""
    _log.info("group %s: %s joined, reads %s", group, member, ", ".join(sorted(topics)))


def left(group: str, member: str) -> None:
    """Log that a member has given everything back."""
    _log.info("group %s: %s left", group, member)


def ended(group: str, error: BaseException) -> None:
    """Log that a membership has failed for good."""
    _log.warning("group %s: consuming ends: %s", group, _described(error))


def range_read_waits(
    range_: OffsetRange, offset: int, waited_ms: int, deadline_ms: int, error: BaseException
) -> None:
    """Log that the read of a range gets no records, and when it ends for that."""
    _log.warning(
        "partition %s of topic %s: no record for %d s, at offset %d; the read ends after %d s "
        "without one: %s",
        range_.partition.key,
        range_.partition.topic,
        waited_ms // 1000,
        offset,
        deadline_ms // 1000,
        _described(error),
    )


def took(group: str, partition: Partition, broker: BrokerNode, offset: int) -> None:
    """Log that a partition was taken."""
    _log.info("group %s: took %s at broker %s, from offset %d", group, partition, broker, offset)


def releases_partitions(group: str, partitions: Iterable[Partition]) -> None:
    """Log that partitions are given back to the master, or at the user's request."""
    _log.info("group %s: gives back %s", group, ", ".join(map(str, partitions)))


def lost(group: str, partition: Partition, error: Exception) -> None:
    """Log that a broker took a partition away."""
    _log.warning("group %s: lost %s: %s", group, partition, _described(error))


def master_answers(address: Address) -> None:
    """Log that another master answers, or the first one after none did."""
    _log.info("master %s:%d answers now", *address)


def no_master_answers(error: Exception) -> None:
    """Log that no master answered."""
    _log.warning("no active master answers: %s", _described(error))


def broker_avoided(broker: BrokerNode, error: Exception) -> None:
    """Log that a broker is avoided for a while."""
    _log.warning("broker %s is left alone, as it does not answer: %s", broker, _described(error))


def broker_is_back(broker: BrokerNode) -> None:
    """Log that a broker answered after it was avoided."""
    _log.info("broker %s answers again", broker)


def heartbeat_is_late(group: str, whom: str, late_ms: int) -> None:
    """Log a late heartbeat: the process was stopped or busy when it was due."""
    _log.warning(
        "group %s: the heartbeat to %s is %d ms late; after 30 s without one partitions are lost. "
        "Is the process starved of processor time?",
        group,
        whom,
        late_ms,
    )


def heartbeat_failed(group: str, error: Exception) -> None:
    """Log that a heartbeat to the master failed."""
    _log.warning("group %s: heartbeat to the master failed: %s", group, _described(error))


def heartbeats_again(group: str) -> None:
    """Log the first successful heartbeat after failures."""
    _log.info("group %s: the master hears heartbeats again", group)


def rules_changed(whose: str, number: int) -> None:
    """Log that flow rules were set, changed or removed (a number below 0)."""
    _log.info("flow rules of %s: %s", whose, "none" if number < 0 else f"set {number} is in force")


def rules_not_understood(whose: str, number: int, error: Exception) -> None:
    """Log rules that this release cannot parse; the earlier ones stay in force."""
    _log.warning(
        "flow rules of %s, set %d, are not understood: %s", whose, number, _described(error)
    )


def _described(error: BaseException) -> str:
    return visible(f"{type(error).__name__}: {error}")[:1_000]
