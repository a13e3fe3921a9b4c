"""Fencing: new client ids for leases, so that a broker refuses abandoned requests.

A broker works on several requests at once, and one that was delayed may serve a fetch or a
confirmation long after its sender stopped waiting. Served behind a later fetch it would move the
position of "the batch fetched last", and the next confirmation would confirm records that no caller
has seen. Brokers answer only the client that holds a partition, so a partition with such a request
is given back and taken again under another client id before any other request. The master knows a
member by its first client id only; brokers do not compare.

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
    """Return whether a request that failed with `error` may still reach its broker.

    It was neither answered nor kept from being sent. Includes errors that end a conversation from
    outside.
    """
    return not isinstance(error, errors.ConnectError | errors.ServerError)


@dataclass(slots=True)
class ClientEpochs:
    """Client ids of a member by partition: its own, with a number once a request was abandoned.

    Numbers only grow, also while other members hold the partition.
    """

    client_id: str
    _given_up: dict[Partition, int] = field(default_factory=dict)
    _suspects: set[Partition] = field(default_factory=set)

    def of(self, partition: Partition) -> str:
        """Return the client id under which to hold `partition`."""
        count = self._given_up.get(partition, 0)
        return f"{self.client_id}-{count}" if count else self.client_id

    def doubt(self, partition: Partition) -> None:
        """Record that a request may be served late: its client id is not used again."""
        self._given_up[partition] = self._given_up.get(partition, 0) + 1

    def suspect(self, partition: Partition) -> None:
        """Record that a request to take or give back a partition may be served late.

        It would set the group's position, or confirm the batch delivered at that time. The client
        id may still be used to take the partition again, which brokers grant whether they received
        the request or not, and for nothing after that.
        """
        self._suspects.add(partition)

    def taken(self, partition: Partition) -> None:
        """Record that the partition is held under its client id now."""
        if partition in self._suspects:
            self._suspects.remove(partition)
            self.doubt(partition)

    def must_renew(self, held: HeldPartition) -> bool:
        """Return whether `renew` must run before any other request for the partition."""
        return held.renewing or held.lease.client_id != self.of(held.partition)


def renew(
    held: HeldPartition, names: ClientEpochs, still_held: Callable[[], bool]
) -> Conversation[Registered]:
    """Hold the partition under its new client id, at the group's position.

    A delivered batch is rolled back, and a deferred confirmation (`held.consumed`) is sent.

    Raises as `Registration.register` does, `errors.PartitionOccupied` if another client took the
    partition in between. Until it has succeeded `held.renewing` stays set, and it must be called
    again. If the partition was dropped meanwhile (`still_held`), the broker gets it back.
    """
    held.renewing = True
    try:
        yield from held.lease.unregister(consumed=held.consumed)
    except (errors.NotRegistered, errors.PartitionTaken):
        pass  # an earlier attempt succeeded, or the lease has ended: registering will show
    held.consumed = False
    held.lease = replace(held.lease, client_id=names.of(held.partition))
    try:
        registered = yield from held.lease.register(None)
    except BaseException as error:
        if may_be_served_late(error):
            names.doubt(held.partition)
        raise
    held.renewing = False
    held.learn_registered(registered, (yield Now()))
    if not still_held():
        yield from held.lease.unregister(consumed=False)
    return registered
