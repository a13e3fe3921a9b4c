"""A topic of TubeMQ as windows are planned from it and read: `sources.base.Source`.

Every question opens a client, asks and closes it; only what reads single records for planning (the
witness of a log's life, estimates, ways to time) is opened once, when it is first asked, and closed
with the source. Not for executors, which read through `spark`. This module must not decide what is
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from threading import Event
from typing import Any, Final
from zoneinfo import ZoneInfo

from tubemq_client import errors
from tubemq_client.config import ClientConfig
from tubemq_client.errors import ConfigError
from tubemq_client.model import (
    ClientSettings,
    Message,
    OffsetRange,
    Partition,
    PartitionEnds,
    ReachableEnds,
)
from tubemq_client.sync import AssignedConsumer, Metadata, RangeReader
from tubemq_provider.sources.base import End, Ends, Keep, RecordReader
from tubemq_provider.sources.telling import tell_brokers
from tubemq_provider.sources.topic import TopicSource
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

__all__ = ["CONFIG", "TubeMQSource", "commit_offsets", "mirror_offsets", "open_source"]

CONFIG: Final = ClientConfig
"""What a user may say of a cluster: the client's own options."""

_POOL: Final = 32
"""Reader groups that windows of one group share; the client's default."""

_OTHER_TOPICS: Final = 425
_TURN_WAIT_S: Final = 10.0
_FIRST_TURN_S, _LAST_TURN_S = 0.025, 0.4


class TubeMQSource(TopicSource[ClientSettings, RangeReader]):
    """`topic` of the cluster that `settings` reach and everybody calls `identity`, for `group`.

    Look-ups and reads register under groups derived from `group`, and disturb no consumer of it.
    `filters` are stream ids; `asking` surrounds every look-up, to say more of an error. Use it from
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

    # Looking

    def partitions(self) -> Mapping[Partition, bool]:
        """The partitions of the topic, and whether each may be subscribed now."""
        with self._asking(), Metadata(self._settings) as client:
            return client.topic(self._topic, self._group).partitions

    def ends(self, which: End = "stable") -> Mapping[Partition, Ends]:
        """Minimum and end offsets of the partitions whose brokers answer; `away` has the others.
        One look-up per store."""
        with self._asking(), Metadata(self._settings) as client:
            return client.reachable_ends(self._topic, self._group, stable=which == "stable")

    def starts(self) -> Mapping[Partition, int]:
        """The first offset that is still held, of the partitions whose brokers answer."""
        return {partition: found.min_offset for partition, found in self.ends().items()}

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """TubeMQ cannot look up a time: always raises `ConfigError`."""
        raise ConfigError(
            f"TubeMQ keeps no offset by time, so {instant.isoformat()} cannot be looked up; use "
            f"one of the resolvers: boundaries, timeline, {', '.join(self._ways())}",
            subject="time",
        )

    def life(self) -> RangeReader:
        """A reader that finds single records again; connects when it is asked something."""
        if self._witness is None:
            self._witness = self._stack.enter_context(
                RangeReader(self._settings, group=self._group, filters=self._filters)
            )
        return self._witness

    # Time

    def _ways(self) -> dict[str, Callable[[Mapping[str, Any]], TimeResolver]]:
        return {"history": self._history, "message_time": self._message_time}

    def resolver(self, name: str, options: Mapping[str, Any]) -> TimeResolver:
        """``history`` (`history_group`) or ``message_time`` (`message_zone`), both with
        `late_allowance`. Nothing is opened until a boundary has to be resolved."""
        ways = self._ways()
        if name not in ways:
            raise ConfigError(
                f"TubeMQ has no resolver {name!r}; its own are {', '.join(ways)}",
                subject="resolver",
            )
        return ways[name](options)

    def _history(self, options: Mapping[str, Any]) -> TimeResolver:
        named = options.get("history_group")

        def ends() -> Mapping[Partition, Ends]:
            """Ends in memory: what a crash takes from the history was only ever evidence."""
            if named is None:
                # A look-up makes its group known to the brokers: the next scan records it.
                self.ends()
            with Metadata(self._settings) as client:
                found = client.reachable_ends(HISTORY_TOPIC, HISTORY_GROUP, stable=False)
            return read.with_data(found)

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
        read = self._reading(self._group, pool_size=_POOL)
        return MessageTimeResolver(
            self._topic,
            read,
            lambda: read.with_data(self.ends()),
            lambda: datetime.now(UTC),
            late_allowance=options.get("late_allowance") or timedelta(0),
            zone=ZoneInfo(options.get("message_zone") or "UTC"),
        )

    # Reading

    def open_reader(
        self, plan: WindowPlan, policies: Policies, *, quarantine: Keep | None = None
    ) -> AbstractContextManager[RecordReader]:
        """A range reader under the group's pool, at a slot of the plan."""
        return RangeReader(
            self._settings,
            group=plan.group,
            filters=plan.filters,
            slot_seed=plan.hash,
            corrupt_records=policies.corrupt_records.value,
            quarantine=quarantine,
            gap_policy=policies.gap_policy.value,
        )

    def probe(self) -> ReadRange:
        """Reads single ranges with the source's filters, under the group's pool."""
        return self._reading(self._group, pool_size=_POOL, filters=self._filters)

    def mirror(self, ends: Mapping[str, int]) -> Mapping[str, str]:
        """Commit for the group at the brokers, for TubeMQ's own dashboards; which partitions were
        left out, and why. See `mirror_offsets`."""
        offsets = {SPACE.partition(self._topic, key): offset for key, offset in ends.items()}
        left_out = mirror_offsets(self._settings, self._topic, self._group, offsets)
        return {partition.key: reason for partition, reason in left_out.items()}

    def _reading(self, group: str, *, pool_size: int, filters: Sequence[str] = ()) -> _Reading:
        """Opened with the first range. Corrupt records are judged where the window is read, not
        where it is measured."""

        def opened() -> RangeReader:
            reader = RangeReader(
                self._settings,
                group=group,
                filters=filters,
                pool_size=pool_size,
                corrupt_records="drop",
            )
            return self._stack.enter_context(reader)

        return _Reading(opened)


class _Reading:
    """Reads ranges, with a reader that `opened` gives when it is first needed."""

    def __init__(self, opened: Callable[[], RangeReader]) -> None:
        self._opened = opened

    @cached_property
    def _reader(self) -> RangeReader:
        return self._opened()

    def __call__(self, range_: OffsetRange) -> Iterator[Message]:
        for batch in self._reader.read(range_):
            yield from batch.messages()

    def with_data(self, found: Mapping[Partition, Ends]) -> Mapping[Partition, Ends]:
        """`found`, with each minimum where the data of the store begins: the broker may list
        records that it no longer has, and nothing tells what their time was."""
        begin: dict[tuple[int, int], int] = {}
        for partition, ends in found.items():
            if partition.store_key not in begin:
                whole = OffsetRange(partition, ends.min_offset, ends.max_offset)
                begin[partition.store_key] = self._reader.readable_from(whole)
        with_data = {
            partition: PartitionEnds(
                partition, begin[partition.store_key], ends.max_offset, ends.stable
            )
            for partition, ends in found.items()
        }
        return ReachableEnds(with_data, getattr(found, "away", {}))


def open_source(
    settings: ClientSettings,
    *,
    identity: str,
    topic: str,
    group: str,
    filters: Sequence[str] = (),
) -> TubeMQSource:
    """The source of `topic` for `group`; see `sources.registry`."""
    return TubeMQSource(settings, identity=identity, topic=topic, group=group, filters=filters)


def commit_offsets(
    settings: ClientSettings, topic: str, group: str, offsets: Mapping[Partition, int]
) -> None:
    """Tell brokers that `group` has read up to `offsets`.

    Registers as the group's only consumer for a moment: raises `errors.PartitionOccupied` where
    another consumer of the group is at work, and `errors.GroupBusy` where one is at another topic
    for ten seconds.
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
    """A member of the group, behind those at other topics: tasks at several topics may show the
    offsets of one group, and a master takes members of a group for one set of topics only."""
    waited, pause = 0.0, _FIRST_TURN_S
    while True:
        consumer = AssignedConsumer(settings, group, {topic: ()})
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
    """`commit_offsets` at the brokers that answer, for the partitions that a master offers.

    Gives those left out, with the reason: a broker is retired or away, or serves a partition no
    more. Raises what the last broker said if no partition was told.
    """
    with closing(_member(settings, topic, group)) as consumer:
        return tell_brokers(
            dict(sorted(offsets.items())),
            partial(_show, consumer),
            known=consumer.partitions(),
            absent="the topic does not have it any more",
            broker_of=lambda partition: partition.broker_id,
            away=(errors.NetworkError, errors.RemoteException),
            refusals=(errors.Forbidden, errors.ServerFailure, errors.ServiceUnavailable),
        )
