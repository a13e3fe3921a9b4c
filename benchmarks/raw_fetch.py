"""The ceiling: fetch replies from a broker as fast as they come, decoding nothing but the envelope.

One registration, one fetch in flight ahead, no checksum, no Arrow. What the range reader reaches of
this rate is the share it leaves to the protocol.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from tubemq_client._core.effects import Await, Deliver
from tubemq_client._core.registration import Registration
from tubemq_client._io.driver import BlockingDriver

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client.model import BrokerNode, ClientSettings, OffsetRange

__all__ = ["Rate", "raw_fetch"]


class Rate(NamedTuple):
    """Records, payload bytes and seconds of one pass."""

    records: int
    bytes: int
    seconds: float

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mib_per_s(self) -> float:
        return self.bytes / self.seconds / 2**20


def raw_fetch(settings: ClientSettings, broker: BrokerNode, range_: OffsetRange) -> Rate:
    """Fetch everything from `start` until the position passes `end`."""
    driver = BlockingDriver(settings)
    lease = Registration(broker, range_.partition, "bench.raw", "bench.raw_127.0.0.1-1-1-Raw-py")
    records = size = 0
    started = time.perf_counter()
    for reply in driver.stream(_fetching(lease, range_), lease.unregister()):
        records += len(reply.messages)
        size += reply.ByteSize()
    seconds = time.perf_counter() - started
    driver.close()
    return Rate(records, size, seconds)


def _fetching(lease: Registration, range_: OffsetRange) -> Conversation[None]:
    yield from lease.register(range_.start)
    ticket = yield from lease.post_fetch(consumed=False)
    position = range_.start
    while position < range_.end:
        reply = yield Await(ticket)
        if not reply.success:
            # Only "nothing here" (404) is expected, and it may have moved the position.
            position = (yield from lease.commit()).current
            if position < range_.end:
                ticket = yield from lease.post_fetch(consumed=True)
            continue
        position = reply.currOffset + 28 * len(reply.messages)
        if position < range_.end:
            ticket = yield from lease.post_fetch(consumed=True)
        yield Deliver(reply)
