"""Sync reader of exact ranges.

Delivers `[start, end)` of a queue: each record once, none outside. `_core.range_read` has the
rules, `_core.filtered_read` those of the broker's filter. `aio.ranges` is the asyncio version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rocketmq_client._core.addresses import AddressFinder
from rocketmq_client._core.batch import DecodePolicy
from rocketmq_client._core.filtered_read import FilteredRead
from rocketmq_client._core.range_read import RangeRead
from rocketmq_client._core.read_policy import ReadPolicy, ReadStats
from rocketmq_client.model import tag_names
from rocketmq_client.sync._base import BlockingClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rocketmq_client._core.batch import CorruptEntry, RecordBatch
    from rocketmq_client.model import Address, ClientSettings, QueueRange

__all__ = ["RangeReader"]


class RangeReader(BlockingClient):
    """Reads exact offset ranges.

    `group` is the name that brokers see: a reader commits nothing and has no members, but brokers
    may create the group. `tags` keep only records with one of them; `tag_filter` "here" reads
    everything and proves that nothing is missing, "broker" lets the broker filter by hash and is
    exact only while retention removes nothing. `brokers` are addresses by broker name, for readers
    that must not use a name server. Up to `in_flight` pulls are in flight. `deadline_ms` bounds the
    time without progress. `gap_policy` "fail" raises `errors.DataLoss` when retention has removed
    part of a range, "skip" continues and records the gap in `stats`. `corrupt_records` is "fail",
    "drop" or "quarantine" (calls `quarantine`). Delivery: exactly the range, once per `read()`. Use
    one per thread.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str,
        tags: str | Sequence[str] = (),
        tag_filter: Literal["here", "broker"] = "here",
        brokers: Mapping[str, Address] | None = None,
        in_flight: int = 4,
        corrupt_records: Literal["fail", "drop", "quarantine"] = "fail",
        quarantine: Callable[[CorruptEntry], None] | None = None,
        gap_policy: Literal["fail", "skip"] = "fail",
        deadline_ms: int = 60_000,
    ) -> None:
        names = tag_names(tags)
        super().__init__(settings)
        self._group = group
        self._brokers = dict(brokers or {})
        self._kind = FilteredRead if names and tag_filter == "broker" else RangeRead
        tag_bytes = frozenset(name.encode() for name in names)
        self._decode = DecodePolicy(corrupt_records, quarantine, tag_bytes)
        self._policy = ReadPolicy(gap_policy, deadline_ms, in_flight)
        self.stats = ReadStats()

    def read(self, range_: QueueRange) -> Iterator[RecordBatch]:
        """Yield the batches of `range_`, in offset order. Close the iterator to stop early.

        Raises `errors.RangeError` (`DataLoss`, `LogTruncated`, `CorruptRecord`, `RangeStalled`)
        when the range cannot be delivered whole; never delivers part of it silently.
        """
        read = self._kind(
            range_,
            self._cluster,
            AddressFinder(self._cluster, range_.queue, self._brokers).find,
            group=self._group,
            decode=self._decode,
            policy=self._policy,
            stats=self.stats,
        )
        yield from self._driver.stream(read.conversation())
