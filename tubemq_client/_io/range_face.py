"""What the range readers of both shells have that does not wait: options, policies, reads to run.

Base of `sync.RangeReader` and `aio.RangeReader`; the rules are `_core.range_read`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tubemq_client._core.batch import DecodePolicy
from tubemq_client._core.identity import ReaderPool
from tubemq_client._core.master import fetch_topic_metadata
from tubemq_client._core.range_read import RangeRead, ReadPolicy, ReadStats
from tubemq_client._io.faces import ClientFace
from tubemq_client._wire.native import announce

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tubemq_client._core.batch import CorruptEntry
    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import TopicMetadata
    from tubemq_client._core.side_by_side import Piece
    from tubemq_client.model import BrokerNode, ClientSettings, OffsetRange, Partition

__all__ = ["RangeFace"]


class RangeFace(ClientFace):
    """The options of a reader, and what they make of a range."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str,
        filters: Sequence[str] = (),
        brokers: Mapping[int, BrokerNode] | None = None,
        pool_size: int = 32,
        slot_seed: str = "",
        corrupt_records: Literal["fail", "drop", "quarantine"] = "fail",
        quarantine: Callable[[CorruptEntry], None] | None = None,
        gap_policy: Literal["fail", "skip"] = "fail",
        deadline_ms: int = 60_000,
    ) -> None:
        super().__init__(settings)
        self._pool = ReaderPool(group, pool_size, slot_seed)
        self._brokers = dict(brokers or {})
        self._topics: dict[str, TopicMetadata] = {}
        announce()
        self._decode = DecodePolicy(corrupt_records, quarantine, frozenset(filters))
        self._gap_policy = gap_policy
        self._deadline_ms = deadline_ms
        self.stats = ReadStats()
        self._under_way: set[Any] = set()

    def _known_broker(self, partition: Partition) -> BrokerNode | None:
        return self._brokers.get(partition.broker_id)

    def _ask_for(self, topic: str) -> Conversation[TopicMetadata]:
        group = f"{self._pool.group}.e"
        client_id = self._ids.consumer(group, "Meta")
        return fetch_topic_metadata(self._session, topic, client_id, group)

    def _identities_of(self, range_: OffsetRange, broker: BrokerNode) -> RangeRead:
        """A read for the records' identities alone: their contents may be anything."""
        decode = DecodePolicy("drop", None, self._decode.filters)
        policy = ReadPolicy("fail", self._deadline_ms)
        return self._range_read(range_, broker, decode, ReadStats(), policy)

    def _read_piece(self, broker: BrokerNode, piece: Piece) -> RangeRead:
        return self._range_read(piece.range, broker, piece.policy, piece.stats)

    def _range_read(
        self,
        range_: OffsetRange,
        broker: BrokerNode,
        decode: DecodePolicy,
        stats: ReadStats,
        policy: ReadPolicy | None = None,
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
        )
