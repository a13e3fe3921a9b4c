"""TubeMQ topic as a source of windows: `sources.base.Source`.

All look-ups and reads of a source share its connections, which are opened by the first query and
closed with the source. The master's answer about the topic serves all of them for some seconds. Not
for executors, which read through `spark`. This module must not decide what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from tubemq_client import errors
from tubemq_client.config import ClientConfig, ConsumerConfig
from tubemq_client.errors import ConfigError
from tubemq_client.model import (
    Anchor,
    ClientSettings,
    Message,
    OffsetRange,
    Partition,
    PartitionEnds,
    ReachableEnds,
    ReaderSettings,
)
from tubemq_client.sync import AssignedConsumer, Metadata, RangeReader, Session
from tubemq_provider.sources.base import End, Ends, Keep, RecordReader
from tubemq_provider.sources.commit_offsets import commit_at_brokers
from tubemq_provider.sources.consumer_config import ConsumerOptions
from tubemq_provider.sources.topic import TopicSource
from tubemq_provider.sources.tubemq.dead_letters import DeadLetterTopic
from tubemq_provider.sources.tubemq.history_resolver import (
    HISTORY_GROUP,
    HISTORY_TOPIC,
    HistoryResolver,
)
from tubemq_provider.sources.tubemq.message_time_resolver import MessageTimeResolver
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.instants import TimeResolver
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.probing import ReadRange
from tubemq_provider.windows.spaces import filters_of

if TYPE_CHECKING:
    from tubemq_client import TopicMetadata
    from tubemq_provider.windows.planning.log_identity import RecordLookup

__all__ = ["CONFIG", "CONSUMER", "TubeMQSource", "commit_offsets", "mirror_offsets", "open_source"]

CONFIG: Final = ClientConfig
"""Options of a cluster: the client's own."""

CONSUMER: Final = ConsumerOptions(
    ConsumerConfig,
    {"masters": "connection", "topic": "task", "group": "task"},
    {
        "masters": "the connection's host names them",
        "auth": "give login and password in the connection",
        "tls": "give tls_ca_file … in the extra of the connection",
        **dict.fromkeys(("topic", "group", "filters"), "is an argument of the task itself"),
        "topics": "a task reads one topic: its argument topic",
        "gap_policy": "say policies=IngestPolicies(gap_policy=…)",
        "corrupt_records": "say policies=IngestPolicies(corrupt_records=…)",
        "consume_position": "initial_position says where a group begins",
        "bound": "initial_position says where a group begins",
    },
    ConsumerConfig.reader_settings,
)
"""Options that a task's `consumer_config` may have."""

_KNOWN_S: Final = 10.0
"""Seconds for which a master's answer about the topic is used."""

_OTHER_TOPICS: Final = 425
_TURN_WAIT_S: Final = 10.0
_FIRST_TURN_S, _LAST_TURN_S = 0.025, 0.4


class TubeMQSource(TopicSource[ClientSettings, "_RecordLookup"]):
    """Source of `topic` for `group`, on the cluster of `settings` with the alias `identity`.

    Look-ups and reads register under groups derived from `group`, and disturb no consumer of it.
    `filters` are stream ids; `asking` wraps every look-up, to add hints to an error. Use it from
    one thread.
    """

    SPACE = SPACE

    def __init__(
        self,
        settings: ClientSettings,
        *,
        identity: str,
        topic: str,
        group: str,
        filters: Sequence[str] = (),
        asking: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(settings, identity=identity, topic=topic, group=group)
        self._filters = filters_of(filters)
        self._asking = asking
        self._session: Session | None = None
        self._metadata: tuple[float, TopicMetadata] | None = None

    def close(self) -> None:
        """Close all connections; may be called twice."""
        super().close()
        self._session = None

    # Look-ups

    def partitions(self) -> Mapping[Partition, bool]:
        """Return the partitions of the topic, True for those that may be subscribed now."""
        with self._asking(), self._look_up() as client:
            return self._topic_metadata(client).partitions

    def ends(self, which: End = "stable") -> Mapping[Partition, Ends]:
        """Return minimum and end offsets of the partitions whose brokers answer.

        `away` has the others. One look-up per store.
        """
        with self._asking(), self._look_up() as client:
            metadata = self._topic_metadata(client)
            return client.reachable_ends(
                self._topic, self._group, stable=which == "stable", metadata=metadata
            )

    def starts(self) -> Mapping[Partition, int]:
        """Return the first available offset of the partitions whose brokers answer."""
        return {partition: ends.min_offset for partition, ends in self.ends().items()}

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Raise `ConfigError`: TubeMQ cannot look up a time."""
        raise ConfigError(
            f"TubeMQ keeps no offset by time, so {instant.isoformat()} cannot be looked up; use "
            f"one of the resolvers: boundaries, timeline, {', '.join(self._resolvers())}",
            subject="time",
        )

    def record_lookup(self) -> RecordLookup:
        """Return the reader that looks up single records; connects on its first query."""
        if self._witness is None:
            self._witness = _RecordLookup(lambda: self._opened(self._group, filters=self._filters))
        return self._witness

    def _shared(self) -> Session:
        """Return the settings with the connections of this source."""
        if self._session is None:
            self._session = self._stack.enter_context(Session(self._settings))
        return self._session

    def _look_up(self) -> Metadata:
        return Metadata(self._shared())

    def _topic_metadata(self, client: Metadata) -> TopicMetadata:
        """Return what the master said about the topic, at most some seconds ago."""
        known = self._known_metadata() or client.topic(self._topic, self._group)
        if self._metadata is None or known is not self._metadata[1]:
            self._metadata = monotonic(), known
        return known

    def _known_metadata(self) -> TopicMetadata | None:
        is_recent = self._metadata and monotonic() - self._metadata[0] < _KNOWN_S
        return self._metadata[1] if self._metadata and is_recent else None

    def _opened(self, group: str, **options: Any) -> RangeReader:
        return self._stack.enter_context(self._reader(group, **options))

    def _reader(self, group: str, **options: Any) -> RangeReader:
        """Return a reader that has the source's connections and knows the topic, if it does."""
        settings, metadata = self._settings, self._known_metadata()
        options = {**settings.range_options, **options}
        return RangeReader(self._shared(), group=group, metadata=metadata, **options)

    # Time

    def _resolvers(self) -> dict[str, Callable[[Mapping[str, Any]], TimeResolver]]:
        return {"history": self._history, "message_time": self._message_time}

    def resolver(self, name: str, options: Mapping[str, Any]) -> TimeResolver:
        """Return ``history`` (`history_group`) or ``message_time`` (`message_zone`).

        Both take `late_allowance`. Nothing is opened until a boundary has to be resolved.
        """
        resolvers = self._resolvers()
        if name not in resolvers:
            raise ConfigError(
                f"TubeMQ has no resolver {name!r}; its own are {', '.join(resolvers)}",
                subject="resolver",
            )
        return resolvers[name](options)

    def _history(self, options: Mapping[str, Any]) -> TimeResolver:
        named = options.get("history_group")

        def ends() -> Mapping[Partition, Ends]:
            """Return ends in memory: the history is only evidence, so a crash may shorten it."""
            if named is None:
                # A look-up registers the group at the brokers: the next scan records it.
                self.ends()
            with self._look_up() as client:
                reachable = client.reachable_ends(HISTORY_TOPIC, HISTORY_GROUP, stable=False)
            return read.with_data(reachable)

        read = self._reading(HISTORY_GROUP, pool_size=1)
        return HistoryResolver(
            self._topic,
            named or f"{self._group}.e",
            read,
            ends,
            lambda: sorted(self.partitions()),
            options.get("late_allowance") or timedelta(0),
        )

    def _message_time(self, options: Mapping[str, Any]) -> TimeResolver:
        read = self._reading(self._group)
        return MessageTimeResolver(
            self._topic,
            read,
            lambda: read.with_data(self.ends()),
            lambda: datetime.now(UTC),
            late_allowance=options.get("late_allowance") or timedelta(0),
            zone=ZoneInfo(options.get("message_zone") or "UTC"),
        )

    # Reads

    def open_reader(
        self, plan: WindowPlan, policies: Policies, *, quarantine: Keep | None = None
    ) -> AbstractContextManager[RecordReader]:
        """Return a range reader under the group's pool, at a slot of the plan."""
        return self._reader(
            plan.group,
            filters=plan.filters,
            slot_seed=plan.hash,
            corrupt_records=policies.corrupt_records.value,
            quarantine=quarantine,
            gap_policy=policies.gap_policy.value,
        )

    def probe(self) -> ReadRange:
        """Return a reader of small ranges with the source's filters, under the group's pool."""
        return self._reading(self._group, filters=self._filters)

    def dead_letters(self, topic: str) -> DeadLetterTopic:
        """Return a topic of the cluster for quarantined records."""
        return DeadLetterTopic(self._settings, topic, self._group)

    def mirror(self, ends: Mapping[str, int]) -> Mapping[str, str]:
        """Commit for the group at the brokers, for TubeMQ's own dashboards.

        Returns the partitions that were left out, with the reason; see `mirror_offsets`.
        """
        offsets = {SPACE.partition(self._topic, key): offset for key, offset in ends.items()}
        refused = mirror_offsets(self._settings, self._topic, self._group, offsets)
        return {partition.key: reason for partition, reason in refused.items()}

    def _reading(self, group: str, **options: Any) -> _Reading:
        """Return a reader that opens with the first range.

        The policy for corrupt records applies when the window is read, not here.
        """
        return _Reading(lambda: self._opened(group, corrupt_records="drop", **options))


class _LazyReader:
    """Reader that calls `opened` for its client on first use."""

    def __init__(self, opened: Callable[[], RangeReader]) -> None:
        self._opened = opened

    @cached_property
    def _reader(self) -> RangeReader:
        return self._opened()


class _RecordLookup(_LazyReader):
    """Look-up of single records, opened once the brokers of the topic are known."""

    def first_record(self, range_: OffsetRange) -> Anchor | None:
        return self._reader.first_record(range_)

    def holds(self, partition: Partition, anchor: Anchor, upto: int) -> bool | None:
        return self._reader.holds(partition, anchor, upto)

    def holds_each(self, anchors: Iterable[tuple[Partition, Anchor, int]]) -> list[bool | None]:
        return self._reader.holds_each(anchors)

    def readable_from(self, range_: OffsetRange) -> int:
        return self._reader.readable_from(range_)

    def readable_from_each(self, ranges: Iterable[OffsetRange]) -> list[int]:
        return self._reader.readable_from_each(ranges)


class _Reading(_LazyReader):
    """Reader of the records of ranges."""

    def __call__(self, range_: OffsetRange) -> Iterator[Message]:
        for batch in self._reader.read(range_):
            yield from batch.messages()

    def with_data(self, reachable: Mapping[Partition, Ends]) -> Mapping[Partition, Ends]:
        """Return the ends with each minimum where the data of the store begins.

        The broker may list records that it no longer has, and their time is unknown.
        """
        stores: dict[tuple[int, int], OffsetRange] = {}
        for partition, ends in reachable.items():
            if partition.store_key not in stores:
                whole = OffsetRange(partition, ends.min_offset, ends.max_offset)
                stores[partition.store_key] = whole
        readable = self._reader.readable_from_each(stores.values()) if stores else []
        begin = dict(zip(stores, readable, strict=True))
        with_data = {
            partition: PartitionEnds(
                partition, begin[partition.store_key], ends.max_offset, ends.stable
            )
            for partition, ends in reachable.items()
        }
        return ReachableEnds(with_data, getattr(reachable, "away", {}))


def open_source(
    settings: ClientSettings,
    *,
    identity: str,
    topic: str,
    group: str,
    filters: Sequence[str] = (),
) -> TubeMQSource:
    """Return the source of `topic` for `group`; see `sources.registry`."""
    return TubeMQSource(settings, identity=identity, topic=topic, group=group, filters=filters)


def commit_offsets(
    settings: ClientSettings, topic: str, group: str, offsets: Mapping[Partition, int]
) -> None:
    """Commit `offsets` for `group` at the brokers.

    Registers as the group's only consumer for a moment: raises `errors.PartitionOccupied` if
    another
    consumer of the group is active, and `errors.GroupBusy` if one is active on another topic for
    ten seconds.
    """
    with closing(_member(settings, topic, group)) as consumer:
        for partition, offset in sorted(offsets.items()):
            _show(consumer, partition, offset)


def _show(consumer: AssignedConsumer, partition: Partition, offset: int) -> None:
    consumer.assign(partition, offset)
    consumer.release(partition)


def _member(
    settings: ClientSettings,
    topic: str,
    group: str,
    wait: Callable[[float], object] = lambda pause: Event().wait(pause),
) -> AssignedConsumer:
    """Return a member of the group, after waiting for members on other topics.

    Tasks on several topics may commit offsets of one group, and a master accepts members of a group
    for one set of topics only.
    """
    waited, pause = 0.0, _FIRST_TURN_S
    while True:
        own = settings.member if isinstance(settings, ReaderSettings) else None
        consumer = AssignedConsumer(settings, group, {topic: ()}, consumer=own)
        try:
            consumer.start()
        except errors.GroupInconsistent as error:
            consumer.close()
            if error.code != _OTHER_TOPICS:
                raise
            if waited >= _TURN_WAIT_S:
                where = f"{error.where}, while a member at another topic has it"
                raise errors.GroupBusy(error.code, error.detail, where=where) from None
        except errors.TubeMQError:
            consumer.close()
            raise
        else:
            return consumer
        wait(pause)
        waited, pause = waited + pause, min(2 * pause, _LAST_TURN_S)


def mirror_offsets(
    settings: ClientSettings, topic: str, group: str, offsets: Mapping[Partition, int]
) -> dict[Partition, str]:
    """Run `commit_offsets` at the brokers that answer, for the partitions that a master offers.

    Returns the partitions that were left out, with the reason: a broker is retired or down, or no
    longer serves a partition. Raises the last broker's error if no partition was committed.
    """
    with closing(_member(settings, topic, group)) as consumer:
        return commit_at_brokers(
            dict(sorted(offsets.items())),
            partial(_show, consumer),
            available=consumer.partitions(),
            absent="the topic does not have it any more",
            broker_of=lambda partition: partition.broker_id,
            unreachable=(errors.NetworkError, errors.RemoteException),
            refusals=(errors.Forbidden, errors.ServerFailure, errors.ServiceUnavailable),
        )
