"""Strategies give what those of upstream's Java client give: a group may have members of both."""

from __future__ import annotations

import pytest

from rocketmq_client import Queue, allocate_by_room
from rocketmq_client._core.allocation import allocation_named

# What the strategies of Java client 5.5.0 gave: strategy, queues, members, share of each member.
# Every third queue is on broker `west@b`, the others are on `east@a`.
JAVA = """
average 1 1 0,/
circle 1 1 0,/
hash 1 1 0,/
room 1 1 /
average 4 3 1,2,/ 0,/ 3,/
circle 4 3 1,3,/ 2,/ 0,/
hash 4 3 0,/ 1,3,/ 2,/
room 4 3 1,/ 2,/ /
average 3 4 1,/ 2,/ 0,/ /
circle 3 4 1,/ 2,/ 0,/ /
hash 3 4 0,/ 1,/ 2,/ /
room 3 4 1,/ 2,/ / /
average 16 5 1,2,4,5,/ 7,8,10,/ 11,13,14,/ 0,3,6,/ 9,12,15,/
circle 16 5 1,8,0,15,/ 2,10,3,/ 4,11,6,/ 5,13,9,/ 7,14,12,/
hash 16 5 14,6,12,/ 1,5,8,/ 2,7,10,9,/ 11,13,15,/ 4,0,3,/
room 16 5 1,2,/ 4,5,/ 7,8,/ 10,11,/ 13,14,/
average 8 8 1,/ 2,/ 4,/ 5,/ 7,/ 0,/ 3,/ 6,/
circle 8 8 1,/ 2,/ 4,/ 5,/ 7,/ 0,/ 3,/ 6,/
hash 8 8 6,/ 1,5,/ / / 4,0,3,/ 2,7,/ / /
room 8 8 1,/ 2,/ 4,/ 5,/ 7,/ / / /
average 7 2 1,2,4,5,/ 0,3,6,/
circle 7 2 1,4,0,6,/ 2,5,3,/
hash 7 2 2,0,6,/ 1,4,5,3,/
room 7 2 1,2,/ 4,5,/
""".strip().splitlines()


@pytest.mark.parametrize("row", JAVA)
def test_shares_equal_those_of_java(row: str) -> None:
    name, queue_count, member_count, *shares = row.split()
    queues = sorted(
        Queue("east@a" if number % 3 else "west@b", "orders", number)
        for number in range(int(queue_count))
    )
    members = sorted(f"10.0.0.{number}@77#123{number}" for number in range(int(member_count)))
    allocate = allocate_by_room({"east"}) if name == "room" else allocation_named(name)

    found = [[queue.queue_id for queue in allocate(each, members, queues)] for each in members]

    assert found == [[int(text) for text in share.split(",")[:-1]] for share in shares]
