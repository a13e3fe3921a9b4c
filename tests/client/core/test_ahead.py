"""Narrow ranges that are read ahead: the same records, whatever goes wrong beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from tests.client.core.conftest import BESIDE, PARTITION, TOPIC, bodies
from tubemq_client import OffsetRange, Partition, errors
from tubemq_client._core.ahead import ReadAhead
from tubemq_client._core.batch import DecodePolicy
from tubemq_client._core.effects import Conversation, Sleep
from tubemq_client._core.identity import ClientIds, ReaderPool
from tubemq_client._core.parallel_read import Subrange
from tubemq_client._core.pipeline import together
from tubemq_client._core.range_read import RangeRead
from tubemq_client._core.read_stats import ReadPolicy, ReadStats
from tubemq_client._core.registration import Registration
from tubemq_client._core.retention import SharedRetentionChecks
from tubemq_client._wire.methods import OP_UNREGISTER
from tubemq_client.embedded import Switches, TopicSpec
from tubemq_client.embedded.broker_rpc import BrokerRpc
from tubemq_client.testing.memory import MemoryTubeMQ

Ahead = Callable[[], ReadAhead]

STABLE = Switches(flush_interval_ms=None, unflushed_records=1)


@pytest.fixture
def ahead(memory: MemoryTubeMQ, ids: ClientIds) -> Ahead:
    """Return a function that makes a reader's ranges."""

    def begin(subrange: Subrange) -> Conversation[RangeRead]:
        yield from ()
        return RangeRead(
            subrange.range,
            memory.node(subrange.range.partition.broker_id),
            pool=ReaderPool("group", 4),
            ids=ids,
            decode=subrange.policy,
            policy=ReadPolicy(),
            stats=subrange.stats,
        )

    def register(range_: OffsetRange) -> Conversation[Registration]:
        yield from ()
        partition = range_.partition
        node, client_id = memory.node(partition.broker_id), ids.consumer("group.r00", "Range")
        return Registration(node, partition, "group.r00", client_id)

    proofs = SharedRetentionChecks()
    return lambda: ReadAhead(DecodePolicy(), ReadStats(), proofs, begin, register)


def expected_by(reader: ReadAhead, ranges: list[OffsetRange]) -> None:
    """Announce ranges as a range reader does."""
    reader.proofs.expect(ranges)
    reader.expect(ranges)


class Asked:
    """Requests of readers to brokers, counted; `before` runs before the next of a kind."""

    KINDS: ClassVar = {15: "register", 17: "get", 18: "commit"}

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count: Counter[str] = Counter()
        self.before: dict[str, Callable[[], object]] = {}
        answer = BrokerRpc.handle

        def handle(broker: BrokerRpc, method_id: int, request: Any) -> Any:
            kind = self.KINDS.get(method_id, "other")
            if kind == "register" and request.opType == OP_UNREGISTER:
                kind = "unregister"
            self.count[kind] += kind != "other"
            if (act := self.before.pop(kind, None)) is not None:
                act()
            return answer(broker, method_id, request)

        monkeypatch.setattr(BrokerRpc, "handle", handle)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def read_all(
    memory: MemoryTubeMQ, reader: ReadAhead, ranges: list[OffsetRange]
) -> dict[Partition, list[bytes]]:
    driver = memory.driver()
    return {
        range_.partition: bodies(list(driver.stream(reader.read(range_), reader.end(range_))))
        for range_ in ranges
    }


def sent_ranges(
    send: Any, count: int = 5
) -> tuple[list[OffsetRange], dict[Partition, list[bytes]]]:
    """Send records to two partitions of one store in turn; return their ranges and bodies."""
    sent: dict[Partition, list[bytes]] = {PARTITION: [], BESIDE: []}
    for number in range(count):
        for partition, all_bodies in sent.items():
            body = f"{partition.partition_id}.{number}".encode()
            send(body, to=partition)
            all_bodies.append(body)
    end = 2 * count * 28
    return [OffsetRange(partition, 0, end) for partition in sent], sent


def test_each_range_delivers_its_own_records_in_turn_while_others_are_sent(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead
) -> None:
    ranges, sent = sent_ranges(send)
    send(b"behind the end")
    send(b"too", to=BESIDE)
    reader, driver = ahead(), memory.driver()
    reader.expect(ranges)

    got = {
        range_.partition: bodies(list(driver.stream(reader.read(range_), reader.end(range_))))
        for range_ in ranges
    }

    assert got == sent
    assert reader.stats.records == 10
    assert not any(map(reader.has, ranges)), "each is read once"


def test_ranges_are_read_together_and_given_back_before_the_first_record_is_delivered(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead
) -> None:
    ranges, _ = sent_ranges(send)
    reader, driver = ahead(), memory.driver()
    reader.expect(ranges)

    batches = driver.stream(reader.read(ranges[0]), reader.end(ranges[0]))
    next(batches)

    assert len(memory.broker(1).leases) == 0
    assert reader.has(ranges[1])


def test_an_error_waits_for_its_turn_and_ends_the_others(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead
) -> None:
    (first, second), sent = sent_ranges(send)
    beyond = OffsetRange(BESIDE, 0, second.end + 28)
    reader, driver = ahead(), memory.driver()
    reader.expect([first, beyond])

    got = bodies(list(driver.stream(reader.read(first), reader.end(first))))
    assert got == sent[PARTITION]
    with pytest.raises(errors.LogTruncated):
        list(driver.stream(reader.read(beyond), reader.end(beyond)))
    assert len(memory.broker(1).leases) == 0


def test_leaving_early_gives_everything_back(memory: MemoryTubeMQ, send: Any, ahead: Ahead) -> None:
    ranges, _ = sent_ranges(send)
    reader, driver = ahead(), memory.driver()
    reader.expect(ranges)

    batches = driver.stream(reader.read(ranges[0]), reader.end(ranges[0]))
    next(batches)
    batches.close()

    assert len(memory.broker(1).leases) == 0
    assert not any(map(reader.has, ranges))


def test_a_store_is_read_as_a_whole(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead, asked: Asked
) -> None:
    ranges, sent = sent_ranges(send, 1)
    reader = ahead()
    expected_by(reader, ranges)

    assert read_all(memory, reader, ranges) == sent
    # The second of two entries is behind the half that a broker reads of the end of its file.
    assert +asked.count == {"register": 2, "get": 3, "commit": 1, "unregister": 2}
    assert len(memory.broker(1).leases) == 0


def test_a_whole_store_has_each_record_once_whatever_the_batches(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead, asked: Asked
) -> None:
    ranges, sent = sent_ranges(send, 30)
    reader = ahead()
    expected_by(reader, ranges)

    assert read_all(memory, reader, ranges) == sent
    assert reader.stats.records == 60
    assert asked.count["commit"] == 1
    assert asked.count["register"] == 2


@pytest.mark.parametrize("memory", [MemoryTubeMQ(1, [TopicSpec(TOPIC, 1, 300)], switches=STABLE)])
def test_a_store_of_many_partitions_is_read_as_a_whole(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead, asked: Asked
) -> None:
    for number in (0, 299):
        send(b"%d" % number, to=Partition(1, TOPIC, number))
    ranges = [OffsetRange(Partition(1, TOPIC, number), 0, 56) for number in range(300)]
    reader = ahead()
    expected_by(reader, ranges)

    got = read_all(memory, reader, ranges)

    assert [(p.partition_id, found) for p, found in got.items() if found] == [
        (0, [b"0"]),
        (299, [b"299"]),
    ]
    # Each entry is in another half of what was left, and one partition has the first of them.
    assert +asked.count == {"register": 300, "get": 599, "commit": 1, "unregister": 300}


def test_a_partition_of_a_whole_store_may_have_no_record(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead, asked: Asked
) -> None:
    send(b"0", b"1")
    ranges = [OffsetRange(partition, 0, 56) for partition in (PARTITION, BESIDE)]
    reader = ahead()
    expected_by(reader, ranges)

    assert read_all(memory, reader, ranges) == {PARTITION: [b"0", b"1"], BESIDE: []}
    assert asked.count["commit"] == 1


@pytest.mark.parametrize("request_kind", ["get", "commit"])
def test_a_record_that_arrives_meanwhile_is_of_no_range(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead, asked: Asked, request_kind: str
) -> None:
    ranges, sent = sent_ranges(send)
    reader = ahead()
    expected_by(reader, ranges)
    asked.before[request_kind] = lambda: send(b"behind the end")

    assert read_all(memory, reader, ranges) == sent
    assert len(memory.broker(1).leases) == 0


def test_a_store_whose_broker_restarts_before_its_end_was_asked_is_read_again(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead, asked: Asked
) -> None:
    ranges, sent = sent_ranges(send)
    reader = ahead()
    expected_by(reader, ranges)
    asked.before["commit"] = memory.broker(1).leases._leases.clear

    assert read_all(memory, reader, ranges) == sent
    assert asked.count["register"] >= 4, "both ranges again"


def test_a_store_with_a_busy_partition_is_read_range_by_range(
    memory: MemoryTubeMQ, send: Any, ahead: Ahead, ids: ClientIds
) -> None:
    ranges, sent = sent_ranges(send)
    other = Registration(memory.node(1), BESIDE, "group.r00", ids.consumer("group.r00", "Range"))
    memory.driver().run(other.register(0))
    reader = ahead()
    expected_by(reader, ranges)

    assert read_all(memory, reader, ranges) == sent
    assert len(memory.broker(1).leases) == 1, "the other's"


def test_conversations_wait_at_the_same_time(memory: MemoryTubeMQ) -> None:
    def pause(ms: int) -> Conversation[int]:
        yield Sleep(ms)
        return ms

    driver = memory.driver()
    assert driver.run(together([pause(30), pause(10), pause(20)], width=3)) == [30, 10, 20]


def test_a_failure_ends_what_was_begun_and_is_raised(memory: MemoryTubeMQ) -> None:
    ended: list[int] = []

    def work(number: int) -> Conversation[None]:
        yield Sleep(number)
        if number == 1:
            raise errors.ConnectError("away")
        ended.append(number)

    with pytest.raises(errors.ConnectError, match="away"):
        memory.driver().run(together(map(work, (2, 1, 3, 4)), width=2))
    assert ended == [2]


def test_stores_of_two_topics_with_the_same_numbers_are_not_one() -> None:
    """Records of one topic must not be counted for another's: half of each would pass as whole."""
    proofs = SharedRetentionChecks()
    one, other = (OffsetRange(Partition(1, topic, 0), 0, 28) for topic in ("a", "b"))
    proofs.expect([one, other])
    assert proofs.expects_only([one])
    assert not proofs.expects_only([one, other])
