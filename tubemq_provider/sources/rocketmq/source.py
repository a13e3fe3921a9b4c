"""RocketMQ topic as a source of windows: `sources.base.Source`.

Every query opens a client, asks and closes it; only the look-up of single records is opened once,
on the first query, and closed with the source. Ends are those on the brokers' disks, times the
brokers' own. This module must not decide what is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from rocketmq_client import errors
from rocketmq_client.config import ClientConfig, ConsumerConfig
from rocketmq_client.model import (
    ClientSettings,
    Message,
    Queue,
    QueueEnds,
    QueueRange,
    Reachable,
    TimeBoundary,
)
from rocketmq_client.sync import Metadata, PullConsumer, RangeReader
from tubemq_client.errors import ConfigError
from tubemq_provider.sources.base import End, Keep, RecordReader
from tubemq_provider.sources.commit_offsets import commit_at_brokers
from tubemq_provider.sources.consumer_config import ConsumerOptions
from tubemq_provider.sources.rocketmq.reading import (
    NO_TOPIC,
    QueueReader,
    QueueRecordLookup,
    reader_group,
)
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.sources.topic import TopicSource
from tubemq_provider.windows.canonical import in_utc
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.instants import Resolved, TimeResolver
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.probing import ReadRange
from tubemq_provider.windows.spaces import filters_of

__all__ = ["CONFIG", "CONSUMER", "RocketMQSource", "StoreTime", "milliseconds_of", "open_source"]

CONFIG: Final = ClientConfig
"""Options of a cluster: the client's own."""

CONSUMER: Final = ConsumerOptions(
    ConsumerConfig,
    {"name_servers": "connection"},
    {
        "name_servers": "the connection's host names them",
        "auth": "give login and password in the connection",
        "tls": "give tls_ca_file … in the extra of the connection",
        "gap_policy": "say policies=IngestPolicies(gap_policy=…)",
        "consume_from": "initial_position says where a group begins",
        "mode": "windows have no members that get every record",
        "offsets_file": "progress is kept by offset_store",
    },
    ConsumerConfig.reader_settings,
)
"""Options that a task's `consumer_config` may have."""

Found = TypeVar("Found")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_GRACE: Final = timedelta(seconds=2)
"""Time that every broker's clock must be past an instant before a boundary there is final."""


class RocketMQSource(TopicSource[ClientSettings, QueueRecordLookup]):
    """Source of `topic` for `group`, on the cluster of `settings` with the alias `identity`.

    Reads use a separate group, which has no members and commits nothing. `tags` keep only records
    with one of them; all records are read, so that a missing one is always noticed. Use it from one
    thread.
    """

    SPACE = SPACE

    def __init__(
        self,
        settings: ClientSettings,
        *,
        identity: str,
        topic: str,
        group: str,
        tags: Sequence[str] = (),
    ) -> None:
        super().__init__(settings, identity=identity, topic=topic, group=group)
        self._tags = filters_of(tags)

    # Look-ups

    def partitions(self) -> Mapping[Queue, bool]:
        """Return the queues of the topic that can be read now.

        Queues of a broker that is down are in no route. Raises `errors.UnsupportedTopic` for topics
        whose offsets do not count records.
        """
        with self._asking() as client:
            return dict.fromkeys(client.topic(self._topic).readable(), True)

    def ends(self, which: End = "stable") -> Reachable[QueueEnds]:
        """Return minimum and end offsets: on the brokers' disks, or of all that can be read.

        Covers the queues whose brokers answer; `away` has those of brokers in the route that do
        not.
        """
        with self._asking() as client:
            route = client.topic(self._topic)
            ends = client.reachable_ends(self._topic, stable=which == "stable", route=route)
        return self._refuse_none(ends)

    def starts(self) -> Mapping[Queue, int]:
        """Return the first offset of each queue that is still available."""
        return {queue: ends.min_offset for queue, ends in self.ends("latest").items()}

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Return the first available offset stored at or after `instant`, by each broker's clock.

        Records that retention has removed do not count. Raises `WindowNotReady` while earlier
        records may still arrive, and while a broker is down.
        """
        boundaries = self._boundaries_at(instant, _GRACE)
        if boundaries.away:
            raise WindowNotReady(f"not all brokers answer: {'; '.join(boundaries.away.values())}")
        return {queue.key: boundary.offset for queue, boundary in boundaries.items()}

    def record_lookup(self) -> QueueRecordLookup:
        """Return the look-up of single records; connects on its first query."""
        if self._witness is None:
            witness = QueueRecordLookup(self._settings, self._group)
            self._witness = self._stack.enter_context(closing(witness))
        return self._witness

    def resolver(self, name: str, options: Mapping[str, Any]) -> TimeResolver:
        """Return ``store_time``: the brokers' own store time, with `late_allowance` as grace."""
        if name != "store_time":
            raise ConfigError(
                f"RocketMQ has no resolver {name!r}; its own is store_time", subject="resolver"
            )
        if unknown := sorted(set(options) - {"late_allowance"}):
            raise ConfigError(f"store_time knows no {', '.join(unknown)}", subject="resolver")
        return StoreTime(self, max(options.get("late_allowance") or _GRACE, _GRACE))

    def probe(self) -> ReadRange:
        """Return a reader of single records; those that fail their checksum are left out."""

        def read(range_: QueueRange) -> Iterator[Message]:
            with RangeReader(
                self._settings,
                group=reader_group(self._group),
                tags=self._tags,
                corrupt_records="drop",
                **self._settings.range_options,
            ) as reader:
                for batch in reader.read(range_):
                    yield from batch.messages()

        return read

    # Reads

    def open_reader(
        self, plan: WindowPlan, policies: Policies, *, quarantine: Keep | None = None
    ) -> AbstractContextManager[RecordReader]:
        """Return a range reader under the group's own reader group."""
        return QueueReader(
            self._settings,
            plan.group,
            tags=plan.filters,
            gap_policy=policies.gap_policy.value,
            corrupt_records=policies.corrupt_records.value,
            quarantine=quarantine,
            **self._settings.range_options,
        )

    def mirror(self, ends: Mapping[str, int]) -> Mapping[str, str]:
        """Commit for the group at the brokers, for their tools; nothing is read from there.

        Returns the queues that were left out, with the reason: they are in no route, or their
        broker refuses. Raises the last broker's error if no queue was committed.
        """
        queues = {Queue.from_key(self._topic, key): offset for key, offset in ends.items()}
        with PullConsumer(self._settings, group=self._group) as consumer:
            refused = commit_at_brokers(
                queues,
                consumer.commit,
                available=set(consumer.queues(self._topic)),
                absent="no broker has it now",
                broker_of=lambda queue: queue.broker,
                unreachable=(errors.NetworkError, errors.ServerError),
            )
        return {queue.key: reason for queue, reason in refused.items()}

    def _asking(self) -> Metadata:
        return Metadata(self._settings, group=reader_group(self._group))

    def _refuse_none(self, queues: Reachable[Found]) -> Reachable[Found]:
        """Raise `errors.UnknownTopic` if no queue can be read.

        A topic whose brokers are write-only or down is treated like one that name servers do not
        know: it may have queues again later.
        """
        if not (queues or queues.away):
            raise errors.UnknownTopic(
                NO_TOPIC, f"topic {self._topic!r} has no queue that can be read now"
            )
        return queues

    def _boundaries_at(self, instant: datetime, grace: timedelta) -> Reachable[TimeBoundary]:
        try:
            with self._asking() as client:
                route = client.topic(self._topic)
                return client.boundary_at(
                    self._topic,
                    milliseconds_of(instant),
                    grace_ms=round(grace.total_seconds() * 1000),
                    route=route,
                )
        except errors.TimeNotFinal as error:
            raise WindowNotReady(
                f"the boundary {instant.isoformat()} of topic {self._topic!r} is not final yet: "
                f"{error}"
            ) from error


def milliseconds_of(instant: datetime) -> int:
    """Return an instant in milliseconds since the epoch, as brokers count.

    Rounded up, since a record of an earlier millisecond is before it.
    """
    return -((_EPOCH - in_utc(instant)) // timedelta(milliseconds=1))


@dataclass(frozen=True)
class StoreTime:
    """Boundaries by the brokers' store times: exact, and final once `grace` is over.

    Assumes that brokers' clocks do not step back. If retention has removed records before an
    instant, the answer reports that; it changes later, so the first answer is fixed if the sink has
    a place for boundaries.
    """

    source: RocketMQSource
    grace: timedelta = _GRACE
    name = "store_time"
    exact = False

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Return `resolve` as offsets."""
        return self.resolve(instant).certain()

    def resolve(self, instant: datetime) -> Resolved:
        """Return offsets by queue key. Raises `WindowNotReady`."""
        boundaries = self.source._boundaries_at(instant, self.grace)  # noqa: SLF001 - same module
        self.source._refuse_none(boundaries)  # noqa: SLF001
        ends = self.source.ends("stable")
        self._refuse_unflushed(instant, boundaries, ends)
        # A broker that went down between the queries may come back without the records that were
        # not on disk.
        gone = {
            queue: ends.away.get(queue, "its broker has gone")
            for queue in boundaries.keys() - ends.keys()
        }
        return Resolved(
            {queue.key: boundaries[queue].offset for queue in boundaries if queue not in gone},
            unknown={queue.key: reason for queue, reason in {**boundaries.away, **gone}.items()},
            lost_to_retention={
                queue.key: 0
                for queue, boundary in boundaries.items()
                if boundary.lost_to_retention and queue not in gone
            },
        )

    def _refuse_unflushed(
        self,
        instant: datetime,
        boundaries: Mapping[Queue, TimeBoundary],
        ends: Mapping[Queue, QueueEnds],
    ) -> None:
        """Raise `WindowNotReady` if a boundary lies beyond the stable end.

        A host that dies loses records that are not on disk, and assigns their offsets again: a
        boundary beyond the stable end would have records stored after the instant below it.
        """
        lines = [
            f"\n  - partition {queue.key}: it is at {boundary.offset}, the stable end is at "
            f"{ends[queue].max_offset}"
            for queue, boundary in boundaries.items()
            if queue in ends and ends[queue].max_offset < boundary.offset
        ]
        if lines:
            raise WindowNotReady(
                f"the boundary {instant.isoformat()} of topic {self.source.topic!r} is not final "
                f"yet, as brokers have not all before it on disk:{''.join(lines)}"
            )


def open_source(
    settings: ClientSettings,
    *,
    identity: str,
    topic: str,
    group: str,
    filters: Sequence[str] = (),
) -> RocketMQSource:
    """Return the source of `topic` for `group`; filters are tags. See `sources.registry`."""
    return RocketMQSource(settings, identity=identity, topic=topic, group=group, tags=filters)
