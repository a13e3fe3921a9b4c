"""What the classes of both shells have that does not wait: identity, settings, views of a member.

Base of the blocking and of the asyncio classes alike, so that none of it is written twice. Nothing
here sends, sleeps or decides; state belongs to the sessions of `_core`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.assigned import AssignedSession
from tubemq_client._core.assigned_view import place_in_group
from tubemq_client._core.balance import BalancedSession
from tubemq_client._core.balance_orders import Calls, subscription
from tubemq_client._core.group_options import GroupOptions
from tubemq_client._core.master import MasterSession
from tubemq_client._io.host import client_ids, epoch_ms, first_nonce, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tubemq_client._core.balance_partitions import ConsumedOffset
    from tubemq_client.model import (
        ClientSettings,
        ConsumerStats,
        IdleReason,
        Partition,
    )

__all__ = ["AssignedFace", "ClientFace", "MemberFace"]


class ClientFace:
    """Who a client object is."""

    _begun = False

    @property
    def settings(self) -> ClientSettings:
        """What the client runs on."""
        return self._settings

    def _begin(self) -> None:
        if self._begun:
            raise errors.ConfigError(
                f"this {type(self).__name__} was started before, and lives once: make another",
                subject="start",
            )
        self._begun = True

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._ids = client_ids()
        self._session = MasterSession.of(settings, self._ids.host, first_nonce())


class MemberFace(ClientFace):
    """A member of a group as its user sees it. `_lock` is held while state is looked at that other
    threads change."""

    _consumer: AssignedSession | BalancedSession
    _lock: AbstractContextManager[Any] = nullcontext()
    _running: Sequence[Any]

    @property
    def consumer_id(self) -> str:
        """What masters and brokers know this member by."""
        return self._consumer.client_id

    @property
    def topics(self) -> dict[str, tuple[str, ...]]:
        """What is subscribed: topics, and the stream ids each is filtered by."""
        return dict(self._consumer.topics)

    @property
    def closed(self) -> bool:
        """Whether nothing can be consumed: not entered yet, or closed."""
        return self._consumer.closing or not self._running

    @property
    def assignment(self) -> list[Partition]:
        """Partitions held now; one that a broker took away is missing."""
        with self._lock:
            return sorted(self._consumer.table.held)

    @property
    def frozen(self) -> list[Partition]:
        """Partitions that are not fetched, held or not."""
        with self._lock:
            return sorted(self._consumer.table.frozen)

    @property
    def paused(self) -> bool:
        """Whether nothing is fetched because of `pause`."""
        return self._consumer.table.paused

    @property
    def consumed_offsets(self) -> dict[Partition, ConsumedOffset]:
        """How far the group is in each partition held, as its broker said last, with the `lag`."""
        with self._lock:
            held = sorted(self._consumer.table.held.items())
            known = ((p, item.offset) for p, item in held if item.offset is not None)
            ahead = epoch_ms() - now_ms()
            return {p: o._replace(updated_at_ms=o.updated_at_ms + ahead) for p, o in known}

    @property
    def idle_reason(self) -> IdleReason | None:
        """Why `receive` has nothing to give now, None if it may have; to look at beside its None.
        A batch that is just being fetched counts as waiting."""
        with self._lock:
            return self._consumer.table.idle_reason(now_ms())

    @property
    def trouble(self) -> dict[str, errors.TubeMQError]:
        """What went wrong last without ending anything, by partition, broker or "master"."""
        with self._lock:
            return dict(self._consumer.trouble)

    @property
    def stats(self) -> ConsumerStats:
        """What was fetched so far, and which brokers are left alone now."""
        with self._lock:
            fetching = self._consumer.fetching
            return fetching.stats.view(fetching.breaker, now_ms())

    def _listen(
        self,
        on_assigned: Callable[[list[Partition]], object] | None,
        on_revoked: Callable[[list[Partition]], object] | None,
        on_lost: Callable[[list[Partition]], object] | None,
    ) -> None:
        self._listeners = {"assigned": on_assigned, "revoked": on_revoked, "lost": on_lost}

    def _raise_if_unusable(self) -> None:
        if self._consumer.failure is not None:
            raise self._consumer.failure
        if self.closed:
            raise errors.ClosedError("the consumer is closed, or its context was not entered")

    def _ready_wait_ms(self, timeout_ms: int | None) -> int | None:
        """For how long to wait; None for ever."""
        wait_ms = self._consumer.consumer.ready_wait_ms if timeout_ms is None else timeout_ms
        return None if wait_ms < 0 else wait_ms

    def _balanced(self, options: GroupOptions, calls: Calls) -> BalancedSession:
        return BalancedSession(
            self._session,
            options.group,
            self._ids.consumer(options.group, "Balanced"),
            subscription(options.group, options.topics, options.bound),
            self._settings,
            options.consumer,
            options.corrupt_records,
            calls,
            bound=options.bound,
        )


class AssignedFace(MemberFace):
    """The same for a member that assigns partitions itself."""

    _consumer: AssignedSession

    @property
    def source_count(self) -> int | None:
        """How many members the group has, None if that is not fixed."""
        count = self._consumer.place[0]
        return count if count > 0 else None

    @property
    def node_id(self) -> int | None:
        """The place of this member in a group of fixed size, from 0."""
        return None if self.source_count is None else self._consumer.place[1]

    def _assigned(
        self, options: GroupOptions, place: tuple[int | None, int | None], calls: Calls
    ) -> AssignedSession:
        return AssignedSession(
            self._session,
            options.group,
            self._ids.consumer(options.group, "Balance"),
            subscription(options.group, options.topics, None),
            self._settings,
            options.consumer,
            options.corrupt_records,
            calls,
            place=place_in_group(*place),
        )

    def _next_pull_s(self, partition: Partition) -> float:
        return self._consumer.fetching.next_pull_ms(partition, now_ms()) / 1000

    def _share(
        self, offsets: Mapping[Partition, int] | Callable[[Partition], int | None] | None
    ) -> None:
        if offsets is None:
            self._consumer.keep_share(lambda _: None)
        elif callable(offsets):
            self._consumer.keep_share(offsets)
        else:
            self._consumer.keep_share(self._consumer.beginning(dict(offsets)))
