"""Sending step by step: the window, overflow, and the meaning of a lost receipt."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from tests.client.core.conftest import PARTITION, TOPIC, flat
from tubemq_client import ClientSettings, Partition, ProducerSettings, Record, errors
from tubemq_client._core.effects import Deliver, PostAll
from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession
from tubemq_client._core.sending import ProducerSession
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest

SEND = "send message"
REGISTER = "register producer"


@pytest.fixture
def producer(memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds) -> ProducerSession:
    producer = ProducerSession(session, ids.producer())
    producer.topics.add(TOPIC)
    driver = memory.driver()
    driver.run(producer.register())
    driver.run(producer.heartbeat())
    return producer


def numbered() -> Any:
    return (Record(b"%d" % n, partition=PARTITION) for n in itertools.count())


def test_the_window_bounds_unanswered_and_taken_records(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    driver = memory.driver()
    taken: list[bytes] = []

    def counted() -> Any:
        for record in itertools.islice(numbered(), 100):
            taken.append(record.body)
            yield record

    receipts = flat(driver.stream(producer.send_all(TOPIC, counted(), 0, 8)))
    for n in range(1, 21):
        next(receipts)
        assert n + 6 <= len(taken) <= n + 7  # replies are taken two at a time
        assert driver.asked.count(SEND) == len(taken)


def test_overflow_is_retried_with_a_pause_and_receipts_stay_in_order(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.broker(1).faults.overflow_every = 4
    driver = memory.driver()
    sending = producer.send_all(TOPIC, itertools.islice(numbered(), 9), 0, 3)
    receipts = list(flat(driver.stream(sending)))
    assert sorted(r.offset for r in receipts) == [28 * n for n in range(9)]
    assert driver.asked.count(SEND) == 9 + len(driver.slept)
    assert set(driver.slept) == {50}


def test_overflow_that_does_not_end_is_raised(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.broker(1).faults.overflow_every = 1
    driver = memory.driver()
    with pytest.raises(errors.Overflow):
        driver.run(producer.send_one(TOPIC, Record(b"x", partition=PARTITION), 0))
    assert sum(driver.slept) <= 10_000


def test_records_refused_by_a_full_broker_do_not_wait_in_sequence(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.broker(1).faults.overflow_every = 1
    driver = memory.driver()
    records = [Record(b"x", partition=PARTITION)] * 200
    outcomes = list(flat(driver.stream(producer.send_each(TOPIC, records, 0, 64))))
    assert {type(outcome) for outcome, _ in outcomes} == {errors.Overflow}
    assert sum(driver.slept) <= 10_000, "who closes the producer waits for all of them"
    memory.broker(1).faults.overflow_every = 2
    assert driver.run(producer.send_one(TOPIC, records[0], 0)), "it has room again, now and then"


def test_a_lost_receipt_is_raised_not_sent_again(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    def cut(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == SEND:
            raise errors.ConnectionLost("cut")
        return reply

    memory.tamper = cut
    driver = memory.driver()
    with pytest.raises(errors.ConnectionLost):
        driver.run(producer.send_one(TOPIC, Record(b"x", partition=PARTITION), 0))
    assert driver.asked == [SEND]
    assert memory.broker(1).ends(TOPIC, 0).memory == 28, "the record was stored all the same"


def test_a_producer_the_master_forgot_registers_with_its_heartbeat(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.elapse(31_000)
    driver = memory.driver()
    driver.run(producer.heartbeat())
    assert driver.asked == ["producer heartbeat", "register producer", "producer heartbeat"]
    assert producer.routes[TOPIC] == [Partition(b, TOPIC, p) for b in (1, 2) for p in (0, 1)]


def test_registering_is_tried_as_often_as_the_options_say(
    memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds
) -> None:
    refused = itertools.count(1)

    def not_ready(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == REGISTER and next(refused) <= 2:
            raise errors.ConnectError("not yet")
        return reply

    memory.tamper = not_ready
    settings = ClientSettings(session.masters, register_attempts=3, register_pause_ms=70)
    driver = memory.driver()
    driver.run(ProducerSession(session, ids.producer()).join(settings))
    assert (driver.asked, driver.slept) == ([REGISTER] * 3, [70, 70])

    refused = itertools.count(1)
    driver = memory.driver()
    twice = replace(settings, register_attempts=2)
    with pytest.raises(errors.ConnectError):
        driver.run(ProducerSession(session, ids.producer()).join(twice))
    assert driver.slept == [70]


def test_errors_that_a_user_must_correct_are_not_retried(
    memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds
) -> None:
    def refuse(traced: TracedRequest, reply: Any) -> Any:
        raise errors.AuthenticationFailed(415, "who are you?")

    memory.tamper = refuse
    driver = memory.driver()
    with pytest.raises(errors.AuthenticationFailed):
        driver.run(ProducerSession(session, ids.producer()).join(ClientSettings(session.masters)))
    assert (driver.asked, driver.slept) == ([REGISTER], [])


def test_routes_follow_the_available_brokers(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.stop_broker(1)
    memory.driver().run(producer.heartbeat())
    assert producer.routes[TOPIC] == [Partition(2, TOPIC, p) for p in (0, 1)]
    memory.start_broker(1)
    memory.driver().run(producer.heartbeat())
    assert len(producer.routes[TOPIC]) == 4


# -- keys and routers ------------------------------------------------------------------------------


def test_records_of_one_key_go_to_one_partition(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    driver = memory.driver()
    records = [Record(b"x", key=f"customer {n % 5}") for n in range(50)]
    receipts = list(flat(driver.stream(producer.send_all(TOPIC, records, 0, 8))))
    places: dict[Any, set[Partition]] = {}
    for record, receipt in zip(records, receipts, strict=True):
        places.setdefault(record.key, set()).add(receipt.partition)
    assert all(len(used) == 1 for used in places.values())
    assert len(set.union(*places.values())) > 1


def test_a_router_must_choose_one_of_the_partitions(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    driver = memory.driver()
    producer.router = lambda topic, record, partitions: partitions[int(record.body) % 2]
    sent = [driver.run(producer.send_one(TOPIC, Record(b"%d" % n), 0)) for n in range(4)]
    assert [r.partition for r in sent] == [Partition(1, TOPIC, n % 2) for n in range(4)]
    producer.router = lambda topic, record, partitions: Partition(9, topic, 9)
    with pytest.raises(errors.ConfigError, match="router"):
        driver.run(producer.send_one(TOPIC, Record(b"x"), 0))


def test_each_topic_has_its_own_round_robin(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    producer.topics.add("other")
    driver = memory.driver()
    driver.run(producer.heartbeat())
    used = []
    for _ in range(8):
        used.append(driver.run(producer.send_one(TOPIC, Record(b"x"), 0)).partition)
        driver.run(producer.send_one("other", Record(b"x"), 0))
    assert len(set(used)) == 4, "alternating topics reach every partition"


# -- trouble ---------------------------------------------------------------------------------------


def stored(memory: MemoryTubeMQ) -> int:
    return sum(memory.broker(b).ends(TOPIC, 0).memory // 28 for b in (1, 2))


def test_a_broker_that_cannot_write_is_avoided_and_others_take_its_records(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.broker(1).faults.writing = False
    driver = memory.driver()
    for _ in range(8):
        assert driver.run(producer.send_one(TOPIC, Record(b"x"), 0)).partition.broker_id == 2
    assert driver.asked.count(SEND) == 9, "one attempt at the broker that is closed"
    assert stored(memory) == 8
    memory.broker(1).faults.writing = True
    memory.elapse(50_000)
    used = {driver.run(producer.send_one(TOPIC, Record(b"x"), 0)).partition for _ in range(4)}
    assert {p.broker_id for p in used} == {1, 2}


@pytest.mark.parametrize("place", [{"partition": PARTITION}, {"key": "4"}], ids=["named", "key"])
def test_a_record_with_a_partition_is_not_rerouted(
    memory: MemoryTubeMQ, producer: ProducerSession, place: dict[str, Any]
) -> None:
    for broker in (1, 2):
        memory.broker(broker).faults.writing = False
    driver = memory.driver()
    with pytest.raises(errors.ServiceUnavailable):
        driver.run(producer.send_one(TOPIC, Record(b"x", **place), 0))
    assert driver.asked == [SEND]


def test_a_broker_that_is_down_costs_one_attempt(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.unplugged.add(memory.node(1).address)
    driver = memory.driver()
    records = [Record(b"%d" % n) for n in range(40)]
    receipts = list(flat(driver.stream(producer.send_all(TOPIC, records, 0, 16))))
    assert {r.partition.broker_id for r in receipts} == {2}
    assert stored(memory) == 40


def test_an_unknown_outcome_states_its_meaning(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.tamper = lambda asked, reply: None if asked.method == SEND else reply
    with pytest.raises(errors.RpcTimeout, match=r"may be stored.*retry_unknown"):
        memory.driver().run(producer.send_one(TOPIC, Record(b"x"), 0))
    assert stored(memory) == 1
    assert producer.stats.snapshot(0, 0).failed == 1


def test_unknown_outcomes_are_sent_again_on_request(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    producer.settings = ProducerSettings(retry_unknown=True)
    lost = iter([True, True, False])

    def lose(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == SEND and next(lost):
            raise errors.ConnectionLost("cut")
        return reply

    memory.tamper = lose
    receipt = memory.driver().run(producer.send_one(TOPIC, Record(b"x", partition=PARTITION), 0))
    assert receipt.offset == 2 * 28, "at least once: the third copy is the one with a receipt"
    assert stored(memory) == 3


def test_a_failed_resend_leaves_the_outcome_unknown(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    producer.settings = ProducerSettings(retry_unknown=True)

    def lose(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == SEND:
            memory.unplugged.add(memory.node(1).address)
            raise errors.ConnectionLost("cut")
        return reply

    memory.tamper = lose
    driver = memory.driver()
    with pytest.raises(errors.ConnectError, match="may be stored"):
        driver.run(producer.send_one(TOPIC, Record(b"x", partition=PARTITION), 0))
    assert stored(memory) == 1
    assert producer.stats.snapshot(0, 0).sent_again == 3


def test_failed_records_do_not_stop_the_others_on_request(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    records = [Record(b"x"), Record(b""), Record(b"y", {"a=b": "c"}), Record(b"z")]
    outcomes = list(flat(memory.driver().stream(producer.send_each(TOPIC, records, 0, 4))))
    kinds = [type(outcome).__name__ for outcome, _ in outcomes]
    assert kinds == ["SendReceipt", "ConfigError", "ConfigError", "SendReceipt"]


def test_a_failure_is_raised_when_its_turn_comes(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    records = [Record(b"x"), Record(b"y"), Record(b"")]
    receipts = flat(memory.driver().stream(producer.send_all(TOPIC, records, 0, 12)))
    assert [next(receipts), next(receipts)]
    with pytest.raises(errors.ConfigError, match="body is empty"):
        next(receipts)


# -- masters ---------------------------------------------------------------------------------------


def test_routes_stay_while_a_new_master_knows_none(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    """A master that has just become active answers without routes until brokers report to it."""
    before = dict(producer.routes)

    def fresh(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == "producer heartbeat":
            del reply.topicInfos[:]
        return reply

    memory.tamper = fresh
    memory.elapse(31_000)  # forgotten, as by a new master
    driver = memory.driver()
    for _ in range(3):
        driver.run(producer.heartbeat())
        assert producer.routes == before
        memory.elapse(10_000)
    driver.run(producer.heartbeat())
    assert producer.routes == {}, "in the end it is believed"


def test_a_master_that_warms_up_costs_no_routes(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    before = dict(producer.routes)

    def warming_up(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == "producer heartbeat":
            reply.errCode = 201
            del reply.topicInfos[:]
        return reply

    memory.tamper = warming_up
    memory.driver().run(producer.heartbeat())
    assert producer.routes == before != {}


def test_joining_survives_a_change_of_masters(memory: MemoryTubeMQ, ids: ClientIds) -> None:
    """Also if the answer would otherwise be final: the new master knows no topic yet."""
    settings = ClientSettings(("gone", 1), register_pause_ms=100)
    producer = ProducerSession(MasterSession((("gone", 1), memory.master_address)), ids.producer())
    refusals = iter([431, 431])

    def unknown(traced: TracedRequest, reply: Any) -> Any:
        if traced.address == ("gone", 1):
            raise errors.ConnectionLost("it was killed")
        if traced.method == "register producer" and (code := next(refusals, None)):
            reply.success, reply.errCode = False, code
        return reply

    memory.tamper = unknown
    memory.driver().run(producer.join(settings))
    assert next(refusals, None) is None


def test_the_cluster_may_change_the_size_limit(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    def larger(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == "producer heartbeat":
            reply.appdConfig.configId = 7
            reply.appdConfig.maxMsgSize = 2 * 2**20
            infos = [text.rpartition("#")[0] + "#" for text in reply.topicInfos]
            del reply.topicInfos[:]
            reply.topicInfos.extend(infos)
        return reply

    memory.tamper = larger
    driver = memory.driver()
    driver.run(producer.heartbeat())
    assert producer.encode(TOPIC, Record(bytes(2 * 2**20)), 0, 0)
    with pytest.raises(errors.ConfigError, match="2097152 bytes"):
        producer.encode(TOPIC, Record(bytes(2 * 2**20 + 1)), 0, 0)
    driver.run(producer.heartbeat())
    beats = [step for step in driver.trace if isinstance(step, TracedRequest)]
    assert [beat.request.appdConfig.configId for beat in beats] == [-2, 7]


def test_statistics_count_records_requests_and_codes(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.broker(1).faults.overflow_every = 5
    records = [Record(b"abc", partition=PARTITION) for _ in range(9)]
    list(flat(memory.driver().stream(producer.send_all(TOPIC, records, 0, 4))))
    stats = producer.stats.snapshot(0, 0)
    assert (stats.stored, stats.failed, stats.bytes_stored) == (9, 0, 27)
    assert stats.errors_by_code == {419: stats.sent_again}
    assert sum(stats.latencies_ms.values()) == 9


def test_large_records_are_not_joined_without_bound(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    sizes: list[int] = []

    def measured(topic: str) -> Any:
        conversation = producer.send_all(topic, [Record(bytes(200_000)) for _ in range(24)], 0, 24)
        answer = None
        perform = memory.driver()._perform
        while True:
            try:
                effect = conversation.send(answer)
            except StopIteration:
                return
            if isinstance(effect, PostAll):
                sizes.append(sum(map(len, effect.requests)))
            answer = None if isinstance(effect, Deliver) else perform(effect)

    measured(TOPIC)
    assert sizes
    assert max(sizes) < 2**20


def test_a_record_that_cannot_be_written_does_not_fail_posted_records(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    """A late bug of the client: stored records must not be taken for unsent ones."""
    record = Record(bytes(300_000), partition=PARTITION)
    flights = [producer.encode(TOPIC, record, 0, 0) for _ in range(3)]
    broken: Any = "no" * 150_000
    flights[2].data = broken
    outcomes = flat(memory.driver().stream(producer.send_together(flights)))
    kinds = [type(outcome).__name__ for outcome, _ in outcomes]
    assert kinds == ["SendReceipt", "SendReceipt", "LocalError"]


def test_a_refusal_that_is_final_counts_once(
    memory: MemoryTubeMQ, producer: ProducerSession
) -> None:
    memory.broker(1).faults.writing = False
    with pytest.raises(errors.ServiceUnavailable):
        memory.driver().run(producer.send_one(TOPIC, Record(b"x", partition=PARTITION), 0))
    stats = producer.stats.snapshot(0, 0)
    assert (stats.errors_by_code, stats.sent_again, stats.failed) == ({503: 1}, 0, 1)


LARGEST_READABLE = 2**20 + 10 * 1024 - 52


def widened(producer: ProducerSession, large_records: Any = "refuse") -> ProducerSession:
    """Create a topic whose limit is wider than the cluster's."""
    producer.limits[TOPIC] = 2 * 2**20
    producer.settings = ProducerSettings(large_records=large_records)
    return producer


def test_unreadable_large_records_are_refused_with_the_remedy(
    producer: ProducerSession,
) -> None:
    widened(producer)
    assert producer.encode(TOPIC, Record(bytes(LARGEST_READABLE)), 0, 0)
    with pytest.raises(errors.ConfigError) as caught:
        producer.encode(TOPIC, Record(bytes(LARGEST_READABLE + 1)), 0, 0)
    for words in (str(LARGEST_READABLE + 1), str(LARGEST_READABLE), "never", "large_records"):
        assert words in str(caught.value)


def test_attributes_count_for_the_readable_size(producer: ProducerSession) -> None:
    widened(producer)
    room = LARGEST_READABLE - 4 - len("k=v")
    assert producer.encode(TOPIC, Record(bytes(room), {"k": "v"}), 0, 0)
    with pytest.raises(errors.ConfigError, match="large_records"):
        producer.encode(TOPIC, Record(bytes(room + 1), {"k": "v"}), 0, 0)


def test_large_records_are_sent_on_request_up_to_the_topics_limit(
    producer: ProducerSession,
) -> None:
    widened(producer, "send")
    assert producer.encode(TOPIC, Record(bytes(2 * 2**20)), 0, 0)
    with pytest.raises(errors.ConfigError, match="exceeds the limit"):
        producer.encode(TOPIC, Record(bytes(2 * 2**20 + 1)), 0, 0)


def test_a_wider_cluster_makes_large_records_readable(producer: ProducerSession) -> None:
    widened(producer).default_limit = 2 * 2**20
    assert producer.encode(TOPIC, Record(bytes(2 * 2**20)), 0, 0)
    producer.limits[TOPIC] = 2**20
    with pytest.raises(errors.ConfigError, match="exceeds the limit"):
        producer.encode(TOPIC, Record(bytes(2**20 + 1)), 0, 0)
