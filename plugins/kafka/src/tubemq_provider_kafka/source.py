"""A Kafka topic as a source of windows: `sources.base.Source`.

Stable ends are last stable offsets: below them no transaction is open, and all in-sync replicas
have the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaException, TopicPartition

from tubemq_client.errors import ConfigError, UnknownTopic
from tubemq_client.model import GapPolicy
from tubemq_provider.sources.base import End, Keep, RecordReader
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.planning.instants import Resolved
from tubemq_provider.windows.policies import Policies
from tubemq_provider_kafka.cluster import Cluster, KafkaConfig, KafkaSettings, Topic
from tubemq_provider_kafka.consumer import CONSUMER
from tubemq_provider_kafka.reading import KafkaReader, Record, TopicLookup
from tubemq_provider_kafka.space import SPACE, KafkaPartition, KafkaRange

__all__ = ["CONFIG", "CONSUMER", "KafkaSource", "open_source", "test_connection"]

CONFIG = KafkaConfig
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_GRACE: Final = timedelta(seconds=2)
_NO_LEADER: Final = "it has no leader now"


class KafkaEnds(NamedTuple):
    """Ends of a partition: its first offset, and the last stable one or the high watermark."""

    partition: KafkaPartition
    min_offset: int
    max_offset: int
    stable: bool


class Ends(dict[KafkaPartition, KafkaEnds]):
    """Ends of partitions with a leader; `away` has the others, with the reason."""

    def __init__(self, ends: Mapping[KafkaPartition, KafkaEnds], away: Mapping[Any, str]) -> None:
        super().__init__(ends)
        self.away = dict(away)


class KafkaSource:
    """Source of `topic` for `group`, on the cluster of `settings` with the alias `identity`."""

    space = SPACE

    def __init__(self, settings: KafkaSettings, *, identity: str, topic: str, group: str) -> None:
        self._settings = settings
        self.identity, self.topic, self.group = identity, topic, group
        self._cluster: Cluster | None = None
        self._lookup: TopicLookup | None = None

    def __repr__(self) -> str:
        return f"KafkaSource({self.identity}/{self.topic}/{self.group})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections; may be called twice."""
        for each in (self._cluster, self._lookup):
            if each is not None:
                each.close()
        self._cluster = self._lookup = None

    def configure(self, options: Mapping[str, Any]) -> None:
        """Apply a task's `consumer_config`, before a broker is asked. Raises `ConfigError`."""
        self._settings = CONSUMER.applied(self._settings, options)

    def settings(self) -> KafkaSettings:
        """Return the options of every client."""
        return self._settings

    def partitions(self) -> dict[KafkaPartition, bool]:
        """Return the partitions, True for those with a leader."""
        leaders = self._described().leaders
        return {each: leader is not None for each, leader in leaders.items()}

    def ends(self, which: End = "stable") -> Ends:
        """Return first offsets with last stable offsets, or with high watermarks (``latest``)."""
        leaders = self._described().leaders
        led = [each for each, leader in leaders.items() if leader is not None]
        stable = which == "stable"
        upper = self._brokers().latest(led, committed=stable)
        lower = self._brokers().earliest(led)
        # Retention may pass the end that was asked for first.
        ends = {p: KafkaEnds(p, lower[p], max(upper[p], lower[p]), stable) for p in led}
        return Ends(ends, {p: _NO_LEADER for p, leader in leaders.items() if leader is None})

    def starts(self) -> dict[KafkaPartition, int]:
        """Return the first offset of each partition with a leader."""
        return self._brokers().earliest(
            each for each, readable in self.partitions().items() if readable
        )

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Return `OffsetsForTimes` for an instant that is final."""
        return OffsetsForTimes(self).offsets_at(instant)

    def resolver(self, name: str, options: Mapping[str, Any]) -> OffsetsForTimes:
        """Return ``offsets_for_times``, with `late_allowance` as grace."""
        if name != "offsets_for_times":
            raise ConfigError(
                f"Kafka has no resolver {name!r}; its own is offsets_for_times", subject="resolver"
            )
        if unknown := sorted(set(options) - {"late_allowance"}):
            raise ConfigError(
                f"offsets_for_times knows no {', '.join(unknown)}", subject="resolver"
            )
        return OffsetsForTimes(self, max(options.get("late_allowance") or _GRACE, _GRACE))

    def record_lookup(self) -> TopicLookup:
        """Return the look-up of topic ids."""
        if self._lookup is None:
            self._lookup = TopicLookup(self._settings)
        return self._lookup

    def probe(self) -> Any:
        """Return a reader of small ranges."""

        def read(range_: KafkaRange) -> Iterator[Record]:
            with KafkaReader(self._settings, self.topic, self.group, skip_gaps=True) as reader:
                for batch in reader.read(range_):
                    yield from batch.messages()

        return read

    def open_reader(
        self,
        plan: WindowPlan,
        policies: Policies,
        *,
        quarantine: Keep | None = None,
    ) -> AbstractContextManager[RecordReader]:
        """Return the reader of a plan's ranges."""
        skip = policies.gap_policy is GapPolicy.SKIP
        return KafkaReader(self._settings, plan.topic, plan.group, skip_gaps=skip)

    def mirror(self, ends: Mapping[str, int]) -> dict[str, str]:
        """Commit for the group, for Kafka's own tools; nothing is read from there.

        Returns the partitions that brokers refused, with the reason. Raises if all were.
        """
        offsets = [TopicPartition(self.topic, int(key), end) for key, end in ends.items()]
        if not offsets:
            return {}
        cluster = self._brokers()
        doing = f"commit for group {self.group!r}"
        consumer = cluster.consumer(self.group)
        with closing(consumer):
            try:
                done = consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                raise cluster.failure(error.args[0], doing) from None
        refused = {str(each.partition): each.error for each in done if each.error is not None}
        if len(refused) == len(offsets):
            raise cluster.failure(next(iter(refused.values())), doing)
        return {key: error.str() for key, error in refused.items()}

    def _brokers(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._settings)
        return self._cluster

    def _described(self) -> Topic:
        topic = self._brokers().topic(self.topic)
        if not topic.leaders:
            raise UnknownTopic(3, f"topic {self.topic!r} has no partition")
        return topic


@dataclass(frozen=True)
class OffsetsForTimes:
    """Boundaries by Kafka's own answer: the first offset whose time is the instant or later.

    Without such a record the boundary is the end. Final once `grace` is over by this host's clock,
    and no open transaction reaches below it. Later records may have earlier times if producers give
    them: they belong to the next window.
    """

    source: KafkaSource
    grace: timedelta = _GRACE
    name = "offsets_for_times"
    exact = False

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        """Return `resolve` as offsets."""
        return self.resolve(instant).certain()

    def resolve(self, instant: datetime) -> Resolved:
        """Return offsets by partition key. Raises `WindowNotReady`."""
        if datetime.now(UTC) < instant + self.grace:
            raise WindowNotReady(
                f"the boundary {instant.isoformat()} of topic {self.source.topic!r} is not final "
                f"before {(instant + self.grace).isoformat()}"
            )
        ends = self.source.ends("latest")
        found = self.source._brokers().at_time(ends, milliseconds_of(instant))  # noqa: SLF001
        offsets = {
            each: ends[each].max_offset if (at := found[each]) is None else at for each in ends
        }
        self._refuse_open(instant, offsets)
        # The record that decides it may have been among those that retention has removed.
        lost = {each.key: 0 for each, at in offsets.items() if 0 < at <= ends[each].min_offset}
        return Resolved(
            {each.key: offset for each, offset in offsets.items()},
            unknown={each.key: reason for each, reason in ends.away.items()},
            lost_to_retention=lost,
        )

    def _refuse_open(self, instant: datetime, offsets: Mapping[KafkaPartition, int]) -> None:
        """Raise `WindowNotReady` if records below a boundary may still be committed or aborted."""
        stable = self.source._brokers().latest(offsets, committed=True)  # noqa: SLF001
        lines = [
            f"\n  - partition {each.key}: it is at {offset}, the last stable offset "
            f"is {stable[each]}"
            for each, offset in offsets.items()
            if stable[each] < offset
        ]
        if lines:
            raise WindowNotReady(
                f"the boundary {instant.isoformat()} of topic {self.source.topic!r} is not final "
                f"yet, as a transaction is open below it:{''.join(lines)}"
            )


def milliseconds_of(instant: datetime) -> int:
    """Return an instant in milliseconds since the epoch, rounded up."""
    return -((_EPOCH - instant.astimezone(UTC)) // timedelta(milliseconds=1))


def test_connection(settings: KafkaSettings) -> str:
    """Return what the cluster is, for the test of a connection. Raises the provider's errors."""
    cluster = Cluster(settings)
    with closing(cluster):
        return cluster.describe()


def open_source(
    settings: KafkaSettings,
    *,
    identity: str,
    topic: str,
    group: str,
    filters: Sequence[str] = (),
) -> KafkaSource:
    """Return the source of `topic` for `group`. Raises `ConfigError` for filters."""
    if filters:
        raise ConfigError("Kafka has no filters; leave them out", subject="filters")
    return KafkaSource(settings, identity=identity, topic=topic, group=group)
