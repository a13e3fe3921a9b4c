"""The ceiling: fetch replies from a broker as fast as they come, decoding nothing but the reply.

One registration, one fetch in flight ahead, no checksum, no body, no Arrow. What the range reader
reaches of this rate is the share it leaves to the protocol. As there, the next fetch is on the wire
before a reply is taken apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client._core.effects import Await, Deliver
from tubemq_client._core.registration import Registration
from tubemq_client._io.driver import BlockingDriver
from tubemq_client._wire.fetching import size_if_delivering, whole

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation, Ticket
    from tubemq_client.model import BrokerNode, ClientSettings, OffsetRange

__all__ = ["raw_fetch"]


def raw_fetch(settings: ClientSettings, broker: BrokerNode, range_: OffsetRange) -> int:
    """Fetch everything from `start` until the position passes `end`; the number of records."""
    driver = BlockingDriver(settings)
    lease = Registration(broker, range_.partition, "bench.raw", "bench.raw_127.0.0.1-1-1-Raw-py")
    try:
        return sum(driver.stream(_fetching(lease, range_), lease.unregister()))
    finally:
        driver.close()


def _fetching(lease: Registration, range_: OffsetRange) -> Conversation[None]:
    yield from lease.register(range_.start)
    ticket: Ticket | None = yield from lease.post_fetch(consumed=False, unparsed=True)
    position, count = range_.start, 0
    while ticket is not None:
        answer = yield Await(ticket)
        ticket = None
        # A batch holds about as many records as the one before.
        if size_if_delivering(answer) and position + 2 * 28 * count < range_.end:
            ticket = yield from lease.post_fetch(consumed=True, unparsed=True)
        reply = whole(answer)
        if reply.success:
            count = len(reply.messages)
            position = reply.currOffset + 28 * count
            yield Deliver(count)
        else:
            # Only "nothing here" (404) is expected, and it may have moved the position.
            position = (yield from lease.commit()).current
        if ticket is None and position < range_.end:
            ticket = yield from lease.post_fetch(consumed=True, unparsed=True)
