"""A topic of RocketMQ as windows are planned from it and read: `sources.base.Source`.

Every question opens a client, asks and closes it; only what finds single records again is opened
once, when it is first asked, and closed with the source. Ends are those on the brokers' disks,
times the brokers' own. This module must not decide what is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from rocketmq_client import errors
from rocketmq_client.config import ClientConfig
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
from tubemq_provider.sources.rocketmq.reading import NO_TOPIC, QueueReader, Witness, reader_group
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.sources.telling import tell_brokers
from tubemq_provider.sources.topic import TopicSource
from tubemq_provider.windows.canonical import in_utc
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.instants import Resolved, TimeResolver
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.probing import ReadRange
from tubemq_provider.windows.spaces import filters_of

__all__ = ["CONFIG", "RocketMQSource", "StoreTime", "milliseconds_of", "open_source"]

CONFIG: Final = ClientConfig
"""What a user may say of a cluster: the client's own options."""

Found = TypeVar("Found")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_GRACE: Final = timedelta(seconds=2)
"""How long after an instant a broker's clock must be before a boundary there is final."""


class RocketMQSource(TopicSource[ClientSettings, Witness]):
    """`topic` of the cluster that `settings` reach and everybody calls `identity`, for `group`.

    Reads are under a group of their own, which has no members and commits nothing. `tags` keep only
    records with one of them; everything is read, so that nothing can be missing unseen. Use it from
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
        tags: Sequence[str] = (),
    ) -> None:
        super().__init__(settings, identity=identity, topic=topic, group=group)
        self._tags = filters_of(tags)

    # Looking

    def partitions(self) -> Mapping[Queue, bool]:
        """The queues of the topic that can be read now: those of a broker that is away are in no
        route. Raises `errors.UnsupportedTopic` for topics whose offsets do not count records."""
        with self._asking() as client:
            return dict.fromkeys(client.topic(self._topic).readable(), True)

    def ends(self, which: End = "stable") -> Reachable[QueueEnds]:
        """Minimum and end offsets: of what is on the brokers' disks, or of what can be read. Of the
        queues whose brokers answer; `away` has those of brokers that are in the route and do not.
        """
        with self._asking() as client:
            route = client.topic(self._topic)
            found = client.reachable_ends(self._topic, stable=which == "stable", route=route)
        return self._refuse_none(found)

    def starts(self) -> Mapping[Queue, int]:
        """The first offset that is still held, of each queue."""
        return {queue: found.min_offset for queue, found in self.ends("latest").items()}

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """The first offset held that was stored at or after `instant` by each broker's clock; what
        retention has removed is not asked for. Raises `WindowNotReady` while records before it may
        still come, and while a broker is away."""
        found = self._boundaries_at(instant, _GRACE)
        if found.away:
            raise WindowNotReady(f"not all brokers answer: {'; '.join(found.away.values())}")
        return {queue.key: boundary.offset for queue, boundary in found.items()}

    def life(self) -> Witness:
        """What finds single records again; connects when it is asked something."""
        if self._witness is None:
            witness = Witness(self._settings, self._group)
            self._witness = self._stack.enter_context(closing(witness))
        return self._witness

    def resolver(self, name: str, options: Mapping[str, Any]) -> TimeResolver:
        """``store_time``: the brokers' own time of storing; `late_allowance` is its grace."""
        if name != "store_time":
            raise ConfigError(
                f"RocketMQ has no resolver {name!r}; its own is store_time", subject="resolver"
            )
        if unknown := sorted(set(options) - {"late_allowance"}):
            raise ConfigError(f"store_time knows no {', '.join(unknown)}", subject="resolver")
        return StoreTime(self, max(options.get("late_allowance") or _GRACE, _GRACE))

    def probe(self) -> ReadRange:
        """Reads records one by one; those that fail their checksum are left out."""

        def read(range_: QueueRange) -> Iterator[Message]:
            with RangeReader(
                self._settings,
                group=reader_group(self._group),
                tags=self._tags,
                corrupt_records="drop",
            ) as reader:
                for batch in reader.read(range_):
                    yield from batch.messages()

        return read

    # Reading

    def open_reader(
        self, plan: WindowPlan, policies: Policies, *, quarantine: Keep | None = None
    ) -> AbstractContextManager[RecordReader]:
        """A range reader under the group's own reader group."""
        return QueueReader(
            self._settings,
            plan.group,
            tags=plan.filters,
            gap_policy=policies.gap_policy.value,
            corrupt_records=policies.corrupt_records.value,
            quarantine=quarantine,
        )

    def mirror(self, ends: Mapping[str, int]) -> Mapping[str, str]:
        """Commit for the group at the brokers, for their tools; nothing is read from there. Gives
        the queues that were left out, with the reason: they are in no route, or their broker does
        not take it. Raises what the last broker said if it was told of no queue."""
        queues = {Queue.from_key(self._topic, key): offset for key, offset in ends.items()}
        with PullConsumer(self._settings, group=self._group) as consumer:
            left_out = tell_brokers(
                queues,
                consumer.commit,
                known=set(consumer.queues(self._topic)),
                absent="no broker has it now",
                broker_of=lambda queue: queue.broker,
                away=(errors.NetworkError, errors.ServerError),
            )
        return {queue.key: reason for queue, reason in left_out.items()}

    def _asking(self) -> Metadata:
        return Metadata(self._settings, group=reader_group(self._group))

    def _refuse_none(self, found: Reachable[Found]) -> Reachable[Found]:
        """A topic whose brokers are write-only or away, and that so has no queue to read, is as one
        that name servers do not know: there may be some again."""
        if not (found or found.away):
            raise errors.UnknownTopic(
                NO_TOPIC, f"topic {self._topic!r} has no queue that can be read now"
            )
        return found

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
    """An instant as brokers count, since the epoch; rounded up, for a record of an earlier
    millisecond is before it."""
    return -((_EPOCH - in_utc(instant)) // timedelta(milliseconds=1))


@dataclass(frozen=True)
class StoreTime:
    """Boundaries by the brokers' own times of storing: exact, and final once `grace` is over, as
    long as brokers' clocks do not step back. Where retention has taken what lay before an instant,
    the answer says so. It changes with that, so the first one is fixed where there is a place."""

    source: RocketMQSource
    grace: timedelta = _GRACE
    name = "store_time"
    exact = False

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """See `resolve`."""
        return self.resolve(instant).certain()

    def resolve(self, instant: datetime) -> Resolved:
        """Offset by queue key. Raises `WindowNotReady`."""
        found = self.source._boundaries_at(instant, self.grace)  # noqa: SLF001 - one thing in two names
        self.source._refuse_none(found)  # noqa: SLF001
        ends = self.source.ends("stable")
        self._refuse_unflushed(instant, found, ends)
        # A broker that has gone between the looks may come back without what was not on its disk.
        gone = {
            queue: ends.away.get(queue, "its broker has gone")
            for queue in found.keys() - ends.keys()
        }
        return Resolved(
            {queue.key: found[queue].offset for queue in found if queue not in gone},
            unknown={queue.key: reason for queue, reason in {**found.away, **gone}.items()},
            eroded={
                queue.key: 0
                for queue, boundary in found.items()
                if boundary.eroded and queue not in gone
            },
        )

    def _refuse_unflushed(
        self,
        instant: datetime,
        found: Mapping[Queue, TimeBoundary],
        ends: Mapping[Queue, QueueEnds],
    ) -> None:
        """A host that dies takes back what is not on its disk, and gives out its offsets again: a
        boundary behind it would have records that are stored after the instant before it."""
        lines = [
            f"\n  - partition {queue.key}: it is at {boundary.offset}, the stable end is at "
            f"{ends[queue].max_offset}"
            for queue, boundary in found.items()
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
    """The source of `topic` for `group`; filters are tags. See `sources.registry`."""
    return RocketMQSource(settings, identity=identity, topic=topic, group=group, tags=filters)
