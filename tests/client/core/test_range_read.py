"""Range reads step by step, in memory and without waiting: requests and their consequences.

Windows against receipts are in `tests/system/behaviour`; here are the branches that a network takes
too rarely, each with its exact sequence of requests and sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.core.conftest import BESIDE, PARTITION, Reader, bodies
from tubemq_client import errors
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest

Send = Callable[..., list[int]]

REGISTER, GET, COMMIT = "register partition", "get messages", "commit offset"
NUMBERS = [b"%02d" % n for n in range(40)]


@pytest.fixture
def forty(send: Send) -> int:
    """Return forty records in one partition, and the end of its store."""
    return send(*NUMBERS)[-1] + 28


class Meddler:
    """Stand-in that passes replies until the n-th of a method, and changes that one."""

    def __init__(self, method: str, number: int, act: Callable[[Any], Any]) -> None:
        self.method = method
        self.left = number
        self.act = act

    def __call__(self, asked: TracedRequest, reply: Any) -> Any:
        if asked.method != self.method:
            return reply
        self.left -= 1
        return self.act(reply) if self.left == 0 else reply


def lost(_: object) -> None:
    raise errors.ConnectionLost("cut")


def silent(_: object) -> None:
    return None


def refused(code: int, text: str = "") -> Callable[[Any], Any]:
    def refuse(reply: Any) -> Any:
        return type(reply)(success=False, errCode=code, errMsg=text)

    return refuse


# -- the usual course -----------------------------------------------------------------------------


def test_a_read_registers_fetches_finds_the_end_and_unregisters(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    driver = memory.driver()
    read = reader(0, forty)
    assert bodies(list(driver.stream(read.conversation(), read.release()))) == NUMBERS
    fetches = driver.asked.count(GET)
    assert fetches > 1
    assert driver.asked == [REGISTER, *[GET] * fetches, COMMIT, REGISTER]
    assert driver.slept == []


def test_the_next_fetch_is_in_flight_before_a_batch_is_delivered(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    driver = memory.driver()
    read = reader(0, forty)
    batches = driver.stream(read.conversation(), read.release())
    next(batches)
    # The first batch is known to have ended where the second begins; the third is in flight.
    assert driver.asked == [REGISTER, GET, GET, GET]


def test_no_fetch_is_made_for_records_that_cannot_be_in_the_range(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    driver = memory.driver()
    read = reader(0, 56)
    assert bodies(list(driver.stream(read.conversation(), read.release()))) == NUMBERS[:2]
    assert driver.asked == [REGISTER, GET, COMMIT, REGISTER]


def test_an_end_inside_a_mixed_batch_is_found_by_its_end_record(
    memory: MemoryTubeMQ, reader: Reader, send: Send
) -> None:
    for n in range(8):
        send(b"mine-%d" % n)
        send(b"other-%d" % n, to=BESIDE)
    driver = memory.driver()
    read = reader(0, 28 * 9)
    got = bodies(list(driver.stream(read.conversation(), read.release())))
    assert got == [b"mine-%d" % n for n in range(5)]
    groups = [step.request.groupName for step in driver.trace if isinstance(step, TracedRequest)]
    assert [g for g in groups if ".p" in g], "the fence is looked for under a group of its own"


def test_an_empty_range_sends_no_request(memory: MemoryTubeMQ, reader: Reader) -> None:
    driver = memory.driver()
    read = reader(56, 56)
    assert list(driver.stream(read.conversation(), read.release())) == []
    assert driver.asked == []


# -- breaks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [GET, COMMIT, REGISTER])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("act", [lost, silent, refused(411), refused(412), refused(500)])
def test_any_reply_may_go_missing_and_nothing_is_lost_or_doubled(
    memory: MemoryTubeMQ, reader: Reader, forty: int, method: str, number: int, act: Any
) -> None:
    memory.tamper = Meddler(method, number, act)
    driver = memory.driver(rpc_timeout_ms=1_000)
    read = reader(0, forty)
    assert bodies(list(driver.stream(read.conversation(), read.release()))) == NUMBERS


def test_after_a_break_the_reader_resumes_under_a_new_id(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    memory.tamper = Meddler(GET, 3, lost)
    driver = memory.driver()
    read = reader(0, forty)
    delivered = list(driver.stream(read.conversation(), read.release()))
    registers = [
        step.request
        for step in driver.trace
        if isinstance(step, TracedRequest) and step.method == REGISTER and step.request.opType == 31
    ]
    assert [r.currOffset for r in registers] == [0, delivered[0].end]
    assert len({r.clientId for r in registers}) == 2
    assert driver.slept == [100]


def test_a_lease_that_expired_while_the_user_was_busy_costs_nothing(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    driver = memory.driver()
    read = reader(0, forty)
    got = []
    for batch in driver.stream(read.conversation(), read.release()):
        got.append(batch)
        memory.elapse(31_000)
    assert bodies(got) == NUMBERS


def test_a_busy_slot_leads_to_the_next_and_a_full_pool_waits(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    driver = memory.driver()
    holders = [reader(0, forty, pool=2) for _ in range(2)]
    streams = [driver.stream(h.conversation(), h.release()) for h in holders]
    for stream in streams:
        next(stream)
    third = reader(0, forty, pool=2, deadline_ms=60_000)
    waiting = driver.stream(third.conversation(), third.release())

    def give_up_soon(traced: TracedRequest, reply: Any) -> Any:
        if len(driver.slept) == 3:
            memory.tamper = None
            memory.elapse(31_000)  # the owners were silent for too long
        return reply

    memory.tamper = give_up_soon
    assert bodies(list(waiting)) == NUMBERS
    assert driver.slept == [100, 200, 400]


def test_pauses_grow_and_end_at_the_deadline(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    driver = memory.driver()
    read = reader(0, forty, deadline_ms=10_000)
    memory.unplugged.add(memory.node(1).address)
    with pytest.raises(errors.RangeStalled, match="Connection refused"):
        list(driver.stream(read.conversation(), read.release()))
    assert driver.slept[:6] == [100, 200, 400, 800, 1_600, 2_000]
    assert 10_000 <= sum(driver.slept) <= 12_000


def test_a_silent_broker_is_told_every_ten_seconds(
    memory: MemoryTubeMQ, reader: Reader, forty: int, caplog: pytest.LogCaptureFixture
) -> None:
    driver = memory.driver()
    read = reader(0, forty, deadline_ms=30_000)
    memory.unplugged.add(memory.node(1).address)
    with pytest.raises(errors.RangeStalled):
        list(driver.stream(read.conversation(), read.release()))
    told = [line for line in caplog.messages if "no record for" in line]
    assert len(told) == 2
    assert ", at offset 0; the read ends after 30 s without one: " in told[0]
    assert all("Connection refused" in line for line in told)


# -- what cannot be delivered ---------------------------------------------------------------------


def test_a_broker_that_moves_back_is_not_trusted(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    replies: list[Any] = []

    def replay(traced: TracedRequest, reply: Any) -> Any:
        if traced.method != GET:
            return reply
        replies.append(reply)
        return replies[0] if len(replies) == 3 else reply

    memory.tamper = replay
    driver = memory.driver()
    read = reader(0, forty)
    assert bodies(list(driver.stream(read.conversation(), read.release()))) == NUMBERS
    assert driver.asked.count(REGISTER) == 4, "it starts over at the resume point"


def test_a_truncated_log_is_reported_at_once(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    driver = memory.driver()
    read = reader(0, forty)
    stream = driver.stream(read.conversation(), read.release())
    next(stream)
    memory.broker(1).storage.open(PARTITION.topic, 0).truncate_to(280)
    with pytest.raises((errors.LogTruncated, errors.RangeStalled)):
        list(stream)


def test_retention_that_takes_the_start_is_data_loss_with_its_numbers(
    memory: MemoryTubeMQ, reader: Reader, forty: int
) -> None:
    memory.broker(1).storage.open(PARTITION.topic, 0).expire_to(280)
    driver = memory.driver()
    read = reader(0, forty)
    with pytest.raises(errors.DataLoss) as failure:
        list(driver.stream(read.conversation(), read.release()))
    assert (failure.value.start, failure.value.available) == (0, 280)
    skipping = reader(0, forty, gap_policy="skip")
    rest = bodies(list(driver.stream(skipping.conversation(), skipping.release())))
    assert rest == NUMBERS[10:]


@pytest.mark.parametrize("code", [403, 415, 400])
def test_a_refusal_that_waiting_does_not_cure_is_raised_at_once(
    memory: MemoryTubeMQ, reader: Reader, forty: int, code: int
) -> None:
    memory.tamper = Meddler(REGISTER, 1, refused(code, "no"))
    driver = memory.driver()
    read = reader(0, forty)
    with pytest.raises(errors.ServerError) as failure:
        list(driver.stream(read.conversation(), read.release()))
    assert failure.value.code == code
    assert driver.slept == []
