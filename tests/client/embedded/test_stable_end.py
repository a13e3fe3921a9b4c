"""The end that survives a hard kill, and what a hard kill takes."""

from __future__ import annotations

import pytest

from tests.client.embedded.rpc import BrokerWire, bodies
from tubemq_client.embedded import EmbeddedTubeMQ, Ends, Switches
from tubemq_client.testing.clock import ManualClock

pytestmark = pytest.mark.timeout(60)


def test_priority_1_sees_the_stable_end_and_others_the_end_in_memory(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.send_all("lone", 3)
    mq.broker(1).store("lone").flush()
    wire.send_all("lone", 2)

    ends = {p: wire.register("lone", qryPriorityId=p).maxOffset for p in (1, 101, 303)}

    assert ends == {1: 84, 101: 140, 303: 140}


def test_filtered_readers_wait_for_the_file_unless_they_ask(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.send("lone", b"x", stream_id="a")
    wire.register("lone", filterCondStr=["a"])
    assert wire.get("lone").errMsg == "current offset is exceed max file offset"

    wire.register("lone", filterCondStr=["a"], qryPriorityId=303)
    assert bodies(wire.get("lone")) == [b"x"]

    mq.broker(1).flush()
    wire.register("lone", currOffset=0, filterCondStr=["a"])
    assert bodies(wire.get("lone")) == [b"x"]


def test_a_crash_loses_what_was_not_flushed_and_reuses_its_offsets(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    kept = [wire.send("lone", b"kept%d" % n) for n in range(3)]
    mq.broker(1).flush()
    lost = [wire.send("lone", b"lost%d" % n) for n in range(4)]

    assert mq.broker(1).crash() == 4
    mq.broker(1).restart()

    with BrokerWire(mq.broker(1).address) as again:
        fresh = [again.send("lone", b"new%d" % n) for n in range(2)]
        again.register("lone")
        assert bodies(again.get("lone")) == [b"kept0", b"kept1"]
    assert [reply.appendOffset for reply in fresh] == [84, 112]
    ids = [reply.messageId for reply in (*kept, *lost, *fresh)]
    assert len(set(ids)) == len(ids)


def test_a_position_beyond_the_shorter_log_goes_back_to_its_end(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.send_all("lone", 5)
    wire.register("lone")
    wire.get("lone")
    wire.commit("lone")

    mq.broker(1).crash()
    mq.broker(1).restart()

    with BrokerWire(mq.broker(1).address) as again:
        assert again.register("lone").currOffset == 140
        assert again.get("lone").errCode == 404
        assert mq.broker(1).position("g", "lone", 0) == 0


def test_a_crash_ends_connections_and_leases(mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    wire.register("lone")

    mq.broker(1).crash()

    with pytest.raises(OSError):  # noqa: PT011 - refused or reset, as the system pleases
        wire.get("lone")
    with pytest.raises(ConnectionRefusedError):
        BrokerWire(mq.broker(1).address)
    mq.broker(1).restart()
    with BrokerWire(mq.broker(1).address) as again:
        assert again.get("lone").errCode == 411


def test_a_crash_may_take_confirmed_positions_back_to_the_last_save(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.send_all("lone", 2)
    mq.broker(1).flush()
    wire.register("lone")
    mq.tick()
    wire.get("lone")
    wire.commit("lone")

    mq.broker(1).crash(lose_positions=True)
    mq.broker(1).restart()

    assert mq.broker(1).position("g", "lone", 0) == 0


def test_an_orderly_stop_keeps_records_and_takes_batches_in_flight_as_read(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.send_all("lone", 2)
    wire.register("lone")
    wire.get("lone")

    mq.broker(1).restart()

    assert mq.broker(1).store("lone").ends == Ends(0, 56, 56, 56)
    assert mq.broker(1).position("g", "lone", 0) == 56


def test_other_brokers_do_not_notice_a_crash() -> None:
    with EmbeddedTubeMQ(2, ["lone"], http=False) as mq:
        with BrokerWire(mq.broker(2).address) as wire:
            wire.send("lone", b"x")
            mq.broker(1).crash()
            assert wire.send("lone", b"y").appendOffset == 28
        assert mq.broker(1).store("lone").ends.memory == 0


@pytest.mark.parametrize(
    ("switches", "sends", "wait_ms", "stable"),
    [
        (Switches(flush_interval_ms=500, unflushed_records=None), 3, 499, 0),
        (Switches(flush_interval_ms=500, unflushed_records=None), 3, 500, 3),
        (Switches(flush_interval_ms=None, unflushed_records=4), 3, 9_999, 0),
        (Switches(flush_interval_ms=None, unflushed_records=4), 6, 0, 4),
        (Switches(flush_interval_ms=0), 3, 0, 3),
    ],
)
def test_the_stable_end_follows_by_time_or_by_count(
    clock: ManualClock, switches: Switches, sends: int, wait_ms: int, stable: int
) -> None:
    with (
        EmbeddedTubeMQ(1, ["lone"], http=False, switches=switches, clock=clock) as mq,
        BrokerWire(mq.broker(1).address) as wire,
    ):
        wire.send_all("lone", sends)
        clock.advance(wait_ms)
        mq.tick()
        assert mq.broker(1).store("lone").ends.stable == stable * 28


def test_truncation_on_demand(mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    wire.send_all("lone", 5)

    assert mq.broker(1).store("lone").truncate_to(84) == 2
    assert wire.send("lone", b"x").appendOffset == 84
