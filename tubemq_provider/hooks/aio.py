"""`TubeMQAsyncHook`: clients and look-ups of an Airflow connection on asyncio, for triggers.

A triggerer runs hundreds of triggers in one event loop. All triggers of one cluster share one
connection to each server: the first one opens it, the last one to leave closes it. Nothing here
blocks the loop, and nothing secret is logged or shown by `repr`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from tubemq_client import errors
from tubemq_client.aio import Consumer, Metadata, Session
from tubemq_provider.hooks._base import AsyncClusterHook
from tubemq_provider.hooks.by_kind import hook_class
from tubemq_provider.hooks.connection import ConnectionConfig
from tubemq_provider.hooks.sharing import Connected, looks_at
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.lag import Lag, lag_between

if TYPE_CHECKING:
    from tubemq_client import Partition, TopicMetadata
    from tubemq_provider.windows.spaces import Ends

__all__ = ["SHARE_OF_POLL", "SourceAsyncHook", "TubeMQAsyncHook", "async_hook"]

SHARE_OF_POLL = 0.75
"""Age of an answer that a trigger takes, as a part of its poll interval: less than the time between
two looks of one trigger, with its jitter."""

_TOPIC_S = 300.0


class TubeMQAsyncHook(AsyncClusterHook[ConnectionConfig]):
    """Hook of the connection `tubemq_conn_id`, for look-ups without blocking.

    Use one hook in one event loop. It reads the Airflow connection once; create a new hook after
    the
    connection was edited. `TubeMQHook` is the blocking one.

    :param tubemq_conn_id: id of a connection of type ``tubemq``.
    :param consumer_config: options of the client that win over those in the connection's extra.
    """

    model = ConnectionConfig

    def __init__(
        self,
        tubemq_conn_id: str = "tubemq_default",
        consumer_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(tubemq_conn_id, consumer_config)
        self.tubemq_conn_id = tubemq_conn_id

    async def expect_cluster(self, cluster: str) -> None:
        """Raise `errors.ConfigError` unless the connection's cluster alias is `cluster`."""
        config = await self.config()
        if config.cluster != cluster:
            raise errors.ConfigError(
                f"connection {self.tubemq_conn_id!r} says cluster {config.cluster!r}, the trigger "
                f"says {cluster!r}: pass cluster={config.cluster!r}",
                subject="cluster",
            )

    def connected(self) -> AbstractAsyncContextManager[Metadata]:
        """Return a look-up client on connections that this loop shares per cluster."""
        return Connected(self.settings, Session, Metadata)

    def member(
        self, group: str, topics: Mapping[str, Sequence[str]], **options: Any
    ) -> AbstractAsyncContextManager[Consumer]:
        """Return a member of `group` on the shared connections, to be started.

        `options` are those of `Consumer`. The member leaves the group when the context ends.
        """
        return Connected(
            self.settings, Session, lambda session: Consumer(session, group, topics, **options)
        )

    async def topic(self, topic: str, group: str | None = None) -> TopicMetadata:
        """Return brokers and partitions of `topic`. Raises `errors.UnknownTopic`, network
        errors."""
        config = await self.config()
        async with self.connected() as client:
            return await client.topic(topic, group or config.default_group)

    async def ends(
        self,
        topic: str,
        group: str | None = None,
        partitions: Iterable[Partition] | None = None,
        *,
        stable: bool = True,
    ) -> Mapping[Partition, Ends]:
        """Return minimum and end offsets; `stable` ends survive a broker crash.

        One look-up per store. Raises `errors.ConfigError` if neither `group` nor the connection
        names a group.
        """
        name = (await self.config()).group_of(group, conn_id=self.tubemq_conn_id)
        async with self.connected() as client:
            return await client.ends(topic, name, partitions, stable=stable)

    async def shared_ends(
        self, topic: str, group: str, *, stable: bool = True, max_age_s: float = 0.0
    ) -> Mapping[Partition, Ends]:
        """Return the ends of the partitions whose brokers answer, by a look that callers share.

        It began at most `max_age_s` ago, for whichever group of the cluster. The master is asked
        for the topic again after some minutes, or when a broker did not answer.
        """
        _, ends = await self.shared_look(topic, group, stable=stable, max_age_s=max_age_s)
        return ends

    async def shared_look(
        self,
        topic: str,
        group: str,
        *,
        stable: bool = True,
        max_age_s: float = 0.0,
        needed: Collection[Partition] | None = None,
    ) -> tuple[TopicMetadata, Mapping[Partition, Ends]]:
        """Return what the master said about the topic, and its ends as `shared_ends` does.

        The master is asked as often as the brokers while one of the `needed` partitions (empty: of
        all) may not be subscribed.
        """
        looks, known = looks_at(await self.settings()), ("topic", topic)

        async def look() -> tuple[TopicMetadata, Mapping[Partition, Ends]]:
            async with self.connected() as client:
                metadata = await looks.get(known, _TOPIC_S, lambda: client.topic(topic, group))
                ends = None
                try:
                    ends = await client.reachable_ends(
                        topic, group, stable=stable, metadata=metadata
                    )
                finally:
                    if ends is None or ends.away:
                        looks.forget(known)
                return metadata, ends

        found: tuple[TopicMetadata, Mapping[Partition, Ends]] = await looks.get(
            ("ends", topic, stable), max_age_s, look
        )
        if needed is not None:
            announced = found[0].partitions
            if not announced or not all(announced.get(one) for one in needed or announced):
                looks.forget(known)
        return found

    async def lag(
        self,
        topic: str,
        positions: Mapping[Partition, int | None],
        group: str | None = None,
        *,
        stable: bool = True,
    ) -> Lag:
        """Return index entries between `positions` and the ends: an upper bound on records."""
        return lag_between(await self.ends(topic, group, stable=stable), positions, SPACE)


class SourceAsyncHook:
    """Hook of the connection `conn_id` for look-ups at any kind of source, through its own client.

    A look runs in a thread; triggers that wait for the same topic share its answer. It reads the
    Airflow connection once, without blocking.

    :param source: kind of source.
    :param conn_id: id of a connection of that type.
    :param consumer_config: options of the client that win over those in the connection's extra.
    """

    def __init__(
        self, source: str, conn_id: str, consumer_config: Mapping[str, Any] | None = None
    ) -> None:
        self._source, self._conn_id = source, conn_id
        self._consumer_config = dict(consumer_config or {})
        self._hook: Any = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r}, {self._conn_id!r})"

    async def _blocking(self) -> Any:
        """Return the kind's own hook, which has the connection already."""
        if self._hook is None:
            kind = hook_class(self._source)
            if kind is None:
                raise errors.ConfigError(f"no source of kind {self._source!r}", subject="source")
            connection = await BaseHook.aget_connection(self._conn_id)
            reading = {"consumer_config": self._consumer_config} if self._consumer_config else {}
            hook = kind(self._conn_id, **reading)
            hook.get_connection = lambda _: connection
            self._hook = hook
        return self._hook

    async def expect_cluster(self, cluster: str) -> None:
        """Raise `errors.ConfigError` unless the connection's cluster alias is `cluster`."""
        (await self._blocking()).expect_cluster(cluster)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[SourceAsyncHook]:
        """Yield the hook: each look opens the source again."""
        yield self

    async def shared_ends(
        self, topic: str, group: str, *, stable: bool = True, max_age_s: float = 0.0
    ) -> Mapping[Any, Ends]:
        """Return the ends of the partitions that can be reached, by a look that callers share.

        It began at most `max_age_s` ago, for whichever group of the cluster.
        """
        hook = await self._blocking()

        async def look() -> Mapping[Any, Ends]:
            ends: Mapping[Any, Ends] = await asyncio.to_thread(
                hook.reachable_ends, topic, group, stable=stable
            )
            return ends

        looks = looks_at((self._source, hook.get_settings()))
        return await looks.get(("ends", topic, stable), max_age_s, look)


def async_hook(
    source: str, conn_id: str, consumer_config: Mapping[str, Any] | None = None
) -> TubeMQAsyncHook | SourceAsyncHook:
    """Return the hook by which triggers look at a kind of source."""
    if source == SPACE.source:
        return TubeMQAsyncHook(conn_id, consumer_config)
    return SourceAsyncHook(source, conn_id, consumer_config)
