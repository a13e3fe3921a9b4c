"""New names for leases, so that a broker refuses what was given up instead of serving it late.

A broker works on several requests at once, and one that stood still may serve a fetch or a
confirmation long after its sender stopped waiting. Served behind a later fetch it would move what
"the batch fetched last" means, and the next confirmation would confirm records that nobody has
seen. Brokers answer only the client that holds a partition, so a partition with such a request is
given back and taken again under another client id before anything else is asked of it. The master
knows a member by its first name only; brokers do not compare.

Source: `docs/protocol/wire.md#frame-framing` (requests of two connections).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client._core.effects import Now

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubemq_client._core.balance_partitions import HeldPartition
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.registration import Registered
    from tubemq_client.model import Partition

__all__ = ["ClientEpochs", "may_be_served_late", "renew"]


def may_be_served_late(error: BaseException) -> bool:
    """Whether a request that ended so may still reach its broker: it was neither answered nor
    kept from being sent. Includes what ends a conversation from outside."""
    return not isinstance(error, errors.ConnectError | errors.ServerError)


@dataclass(slots=True)
class ClientEpochs:
    """By which client id a member is known to the broker of each partition: its own, with a number
    once a request for the partition was given up. Numbers only grow, also while others hold it."""

    client_id: str
    _given_up: dict[Partition, int] = field(default_factory=dict)
    _suspects: set[Partition] = field(default_factory=set)

    def of(self, partition: Partition) -> str:
        """The name under which `partition` is to be held."""
        count = self._given_up.get(partition, 0)
        return f"{self.client_id}-{count}" if count else self.client_id

    def doubt(self, partition: Partition) -> None:
        """A request may be served late: never rely on the name it bears again."""
        self._given_up[partition] = self._given_up.get(partition, 0) + 1

    def suspect(self, partition: Partition) -> None:
        """A request to take or give back may be served late: it would set the group's position, or
        confirm what is out then. The name is good for taking the partition again, which brokers
        grant whether they have heard or not, and for nothing after it."""
        self._suspects.add(partition)

    def taken(self, partition: Partition) -> None:
        """The partition is held under its name now."""
        if partition in self._suspects:
            self._suspects.remove(partition)
            self.doubt(partition)

    def must_renew(self, held: HeldPartition) -> bool:
        """Whether nothing may be asked of the partition before `renew`."""
        return held.renewing or held.lease.client_id != self.of(held.partition)


def renew(
    held: HeldPartition, names: ClientEpochs, still_held: Callable[[], bool]
) -> Conversation[Registered]:
    """Hold the partition under its new name, where the group stands; a batch that is out is rolled
    back, and a confirmation that was put off (`held.consumed`) is told.

    Raises as `Registration.register` does, `errors.PartitionOccupied` if another client came in
    between. Until it has succeeded `held.renewing` stays set, and it is to be run again. If the
    partition was dropped meanwhile (`still_held`), the broker gets it back.
    """
    held.renewing = True
    try:
        yield from held.lease.unregister(consumed=held.consumed)
    except (errors.NotRegistered, errors.PartitionTaken):
        pass  # an earlier attempt got through, or the lease has ended: the register will tell
    held.consumed = False
    held.lease = replace(held.lease, client_id=names.of(held.partition))
    try:
        found = yield from held.lease.register(None)
    except BaseException as error:
        if may_be_served_late(error):
            names.doubt(held.partition)
        raise
    held.renewing = False
    held.learn_registered(found, (yield Now()))
    if not still_held():
        yield from held.lease.unregister(consumed=False)
    return found
