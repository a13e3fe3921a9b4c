"""The ceiling: fetch replies from a broker at full speed, decoding nothing but the reply.

One registration, two fetches in flight, no checksum, no body, no Arrow. The range reader's share of
this rate is its efficiency above the protocol. As there, the next fetch is on the wire before a
reply is decoded.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tubemq_client._core.effects import Await, Deliver
from tubemq_client._core.registration import Registration
from tubemq_client._io.driver import BlockingDriver
from tubemq_client._wire.fetching import size_if_delivering, whole

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation, Ticket
    from tubemq_client.model import BrokerNode, ClientSettings, OffsetRange

__all__ = ["raw_fetch"]

IN_FLIGHT = 2


def raw_fetch(
    settings: ClientSettings, broker: BrokerNode, range_: OffsetRange, number: int = 0
) -> int:
    """Fetch everything from `start` until the position passes `end`; return the number of records.

    Concurrent ones need a `number` each.
    """
    driver, group = BlockingDriver(settings), f"bench.raw{number}"
    lease = Registration(broker, range_.partition, group, f"{group}_127.0.0.1-1-1-Raw-py")
    try:
        return sum(driver.stream(_fetching(lease, range_), lease.unregister()))
    finally:
        driver.close()


def _fetching(lease: Registration, range_: OffsetRange) -> Conversation[None]:
    yield from lease.register(range_.start)
    tickets: deque[Ticket] = deque()
    tickets.append((yield from lease.post_fetch(consumed=False, unparsed=True)))
    position, count = range_.start, 0
    while tickets:
        answer = yield Await(tickets.popleft())
        # A batch holds about as many records as the one before.
        while (
            count
            and size_if_delivering(answer)
            and len(tickets) < IN_FLIGHT
            and position + 28 * count * (2 + len(tickets)) < range_.end
        ):
            tickets.append((yield from lease.post_fetch(consumed=True, unparsed=True)))
        reply = whole(answer)
        if reply.success:
            count = len(reply.messages)
            position = reply.currOffset + 28 * count
            yield Deliver(count)
        elif not tickets:
            # Only "nothing here" (404) is expected, and it may have moved the position.
            position = (yield from lease.commit()).current
        if not tickets and position < range_.end:
            tickets.append((yield from lease.post_fetch(consumed=True, unparsed=True)))
