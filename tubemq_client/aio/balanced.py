"""The asyncio group consumer: the master deals out partitions, you receive and confirm batches.

At least once: a batch that was received but not confirmed is delivered again, here or to the next
owner. Tasks beat for the member (one for masters, one for brokers) and carry out what the master
orders; they end with `close()`. `sync.balanced` is its twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tubemq_client._core.balance_fetch import ReceivedBatch
from tubemq_client._core.balance_orders import BoundStart, Calls
from tubemq_client._core.balance_partitions import ConsumedOffset
from tubemq_client._core.group_options import GroupConfig, group_options
from tubemq_client.aio._member import GroupMember
from tubemq_client.model import ConsumerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubemq_client._core.balance import BalancedSession
    from tubemq_client.model import ClientSettings, Partition

__all__ = ["BoundStart", "ConsumedOffset", "Consumer", "ReceivedBatch"]


class Consumer(GroupMember):
    """A member of a group among whose members the master deals out partitions.

    Made of settings, group and topics, or of a `config.ConsumerConfig` alone. `topics` maps topic
    names to stream ids to filter by (empty: everything). Methods may be called from several
    tasks. Entering the context joins the group; partitions arrive within a balance
    period of the master (30 to 60 s by its defaults) and may be moved at any time. The callbacks,
    plain or coroutine functions, hear of that in a task of the consumer: `on_assigned` before the
    first fetch, `on_revoked` while batches may still be confirmed (`rebalance_confirm_wait_ms`),
    `on_lost` afterwards, when a broker has ended the registration. `bound` starts the whole group
    from explicit offsets. A cancelled `receive` loses nothing: its batch comes again. A cancelled
    `confirm` or `reject` takes effect all the same.
    """

    def __init__(
        self,
        settings: ClientSettings | GroupConfig,
        group: str | None = None,
        topics: Mapping[str, Sequence[str]] | None = None,
        *,
        consumer: ConsumerSettings | None = None,
        bound: BoundStart | None = None,
        corrupt_records: Literal["fail", "drop"] | None = None,
        on_assigned: Callable[[list[Partition]], object] | None = None,
        on_revoked: Callable[[list[Partition]], object] | None = None,
        on_lost: Callable[[list[Partition]], object] | None = None,
    ) -> None:
        options = group_options(
            settings,
            group,
            topics,
            consumer=consumer,
            corrupt_records=corrupt_records,
            bound=bound,
        )
        super().__init__(options.settings)
        calls = Calls(self._ready.ring, self._beat.ring, self._orders.ring)
        self._consumer: BalancedSession = self._balanced(options, calls)
        self._listen(on_assigned, on_revoked, on_lost)

    async def start(self) -> None:
        """Join the group. Raises `errors.UnknownTopic`, `errors.GroupInconsistent`,
        `errors.NotAuthorized`."""
        await super().start()
        await self._join()
