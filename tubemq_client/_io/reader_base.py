"""Range readers and look-ups without waiting, for both APIs: options, policies, requests.

Base of `RangeReader` and `Metadata` of either; the rules are in `_core.range_read`.
"""

from __future__ import annotations

import atexit
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from tubemq_client._core.ahead import ReadAhead
from tubemq_client._core.batch import DecodePolicy
from tubemq_client._core.ends import reachable_ends, store_ends
from tubemq_client._core.identity import ReaderPool
from tubemq_client._core.limits import check_reader
from tubemq_client._core.master import fetch_topic_metadata
from tubemq_client._core.pipeline import together
from tubemq_client._core.range_end import RecordIdentity
from tubemq_client._core.range_read import RangeRead, broker_of
from tubemq_client._core.read_stats import ReadPolicy, ReadStats
from tubemq_client._core.registration import Registration
from tubemq_client._core.retention import SharedRetentionChecks
from tubemq_client._io.client_base import ClientBase
from tubemq_client._wire.native import announce
from tubemq_client.model import CorruptRecords, OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tubemq_client._core.batch import CorruptEntry
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import TopicMetadata
    from tubemq_client._core.parallel_read import Subrange
    from tubemq_client.model import (
        Anchor,
        BrokerNode,
        ClientSettings,
        Partition,
        PartitionEnds,
        ReachableEnds,
    )

__all__ = ["MetadataBase", "ReaderBase"]


class MetadataBase(ClientBase):
    """Conversations of a metadata look-up."""

    def _asking(self, topic: str, group: str | None) -> Conversation[TopicMetadata]:
        name = f"{group}.e" if group else f"tubemq_meta_{topic}"
        client_id = self._ids.consumer(name, "Meta")
        return fetch_topic_metadata(self._session, topic, client_id, name)

    def _ends(
        self,
        found: TopicMetadata,
        group: str,
        partitions: Iterable[Partition] | None,
        *,
        stable: bool,
    ) -> Conversation[dict[Partition, PartitionEnds]]:
        selected, access = found.select(partitions), self._session.access
        return store_ends(selected, found.brokers, group, stable=stable, access=access)

    def _reachable_ends(
        self, topic: str, group: str, metadata: TopicMetadata | None, *, stable: bool
    ) -> Conversation[ReachableEnds]:
        topic_metadata = metadata or (yield from self._asking(topic, group))
        return (
            yield from reachable_ends(
                topic_metadata, group, stable=stable, access=self._session.access
            )
        )


class ReaderBase(ClientBase):
    """Options of a reader, and the conversations of a range."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str,
        filters: Sequence[str] = (),
        brokers: Mapping[int, BrokerNode] | None = None,
        metadata: TopicMetadata | None = None,
        pool_size: int = 32,
        slot_seed: str = "",
        corrupt_records: Literal["fail", "drop", "quarantine"] = "fail",
        quarantine: Callable[[CorruptEntry], None] | None = None,
        gap_policy: Literal["fail", "skip"] = "fail",
        deadline_ms: int = 60_000,
    ) -> None:
        check_reader(
            group,
            filters,
            corrupt_records=corrupt_records,
            gap_policy=gap_policy,
            can_quarantine=quarantine is not None,
        )
        super().__init__(settings)
        self._pool = ReaderPool(group, pool_size, slot_seed)
        self._brokers = dict(brokers or {})
        self._topics = {} if metadata is None else {metadata.topic: metadata}
        announce()
        self._decode = DecodePolicy(CorruptRecords(corrupt_records), quarantine, frozenset(filters))
        self._gap_policy = gap_policy
        self._deadline_ms = deadline_ms
        self.stats = ReadStats()
        self._proofs = SharedRetentionChecks()
        self._ahead = ReadAhead(
            self._decode, self.stats, self._proofs, self._beginning, self._registering
        )
        self._under_way: set[Any] = set()
        _READERS.add(self)

    def _finding_broker(self, range_: OffsetRange) -> Conversation[BrokerNode]:
        """Return the broker that has the range; the master is asked once for each unknown topic.

        A topic is also unknown if it had no such partition when it was looked up.
        """
        partition = range_.partition
        if (broker := self._brokers.get(partition.broker_id)) is not None:
            return broker
        metadata = self._topics.get(partition.topic)
        if metadata is None or partition not in metadata.partitions:
            group = f"{self._pool.group}.e"
            client_id = self._ids.consumer(group, "Meta")
            metadata = yield from fetch_topic_metadata(
                self._session, partition.topic, client_id, group
            )
            self._topics[partition.topic] = metadata
        return broker_of(range_, metadata)

    def _finding_data(self, range_: OffsetRange) -> Conversation[int]:
        """Return the offset where the records of a range begin, its end if all are gone.

        A broker may list records that it no longer has. Takes a few short look-ups, more if
        something is missing.
        """
        broker = yield from self._finding_broker(range_)
        return (yield from self._identities_of(range_, broker).readable_from())

    def _seen(self, anchors: Iterable[tuple[Partition, Anchor, int]]) -> Conversation[list[bool]]:
        """Return for each anchor whether one fetch at its offset brings its record."""

        def look(partition: Partition, anchor: Anchor, upto: int) -> Conversation[bool]:
            range_ = OffsetRange(partition, anchor.offset, upto)
            broker = yield from self._finding_broker(range_)
            record = RecordIdentity(anchor.message_id, anchor.checksum)
            return (yield from self._identities_of(range_, broker).has_record(record))

        return together([look(*anchor) for anchor in anchors])

    def _identities_of(self, range_: OffsetRange, broker: BrokerNode) -> RangeRead:
        """Return a read for the records' identities alone: corrupt contents do not matter."""
        decode = DecodePolicy(CorruptRecords.DROP, None, self._decode.filters)
        policy = ReadPolicy("fail", self._deadline_ms)
        return self._range_read(range_, broker, decode, ReadStats(), policy)

    def _beginning(self, subrange: Subrange) -> Conversation[RangeRead]:
        """Create the read of a range that is read ahead."""
        range_, policy, stats = subrange.range, subrange.policy, subrange.stats
        broker = yield from self._finding_broker(range_)
        return self._range_read(range_, broker, policy, stats, proofs=self._proofs)

    def _registering(self, range_: OffsetRange) -> Conversation[Registration]:
        """Return the registration under which a range is read with its store."""
        broker = yield from self._finding_broker(range_)
        group = self._pool.reader(self._pool.first_slot(range_))
        client_id = self._ids.consumer(group, "Range")
        access = self._session.access
        return Registration(broker, range_.partition, group, client_id, access=access)

    def _read_subrange(self, broker: BrokerNode, subrange: Subrange) -> RangeRead:
        return self._range_read(subrange.range, broker, subrange.policy, subrange.stats)

    def _range_read(
        self,
        range_: OffsetRange,
        broker: BrokerNode,
        decode: DecodePolicy,
        stats: ReadStats,
        policy: ReadPolicy | None = None,
        proofs: SharedRetentionChecks | None = None,
    ) -> RangeRead:
        return RangeRead(
            range_,
            broker,
            pool=self._pool,
            ids=self._ids,
            decode=decode,
            policy=policy or ReadPolicy(self._gap_policy, self._deadline_ms),
            stats=stats,
            access=self._session.access,
            proofs=proofs,
        )


_READERS: WeakSet[ReaderBase] = WeakSet()


@atexit.register
def _stop_reads() -> None:
    """Stop reads that were not closed while their threads still run.

    Afterwards the interpreter suspends them anywhere, with locks that they hold, and closes the
    rest.
    """
    for reader in list(_READERS):
        for work in list(reader._under_way):  # noqa: SLF001 - a part of the class
            if not iscoroutinefunction(work.stop):  # a task ends with its loop
                work.stop()
