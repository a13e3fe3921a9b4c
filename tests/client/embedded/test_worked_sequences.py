"""Sequences that were observed on a genuine broker, over a real connection."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.request import urlopen

import pytest

from tests.client.embedded.conftest import BY_HAND
from tests.client.embedded.rpc import BrokerWire, bodies
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.testing.clock import ManualClock

pytestmark = pytest.mark.timeout(60)

REACHED = "The request offset reached maxOffset!"


def test_a_new_group_reads_from_the_start_and_commits_the_end(wire: BrokerWire) -> None:
    assert wire.send_all("lone", 10) == list(range(0, 280, 28))

    registered = wire.register("lone")
    batch = wire.get("lone")
    committed = wire.commit("lone", lastPackConsumed=True)

    assert (registered.currOffset, registered.maxOffset) == (0, 280)
    assert bodies(batch) == [b"m%d" % n for n in range(10)]
    assert (batch.currOffset, batch.maxOffset, batch.currDataDlt) == (0, 280, 0)
    assert (committed.currOffset, committed.maxOffset) == (280, 280)


def test_without_flags_the_same_batch_comes_again(wire: BrokerWire) -> None:
    wire.send_all("lone", 3)
    wire.register("lone")

    first, second = wire.get("lone"), wire.get("lone")

    assert bodies(first) == bodies(second)
    assert first.currOffset == second.currOffset == 0


def test_confirming_at_the_end_gives_404_and_moves_the_position(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.send_all("lone", 3)
    wire.register("lone")
    wire.get("lone")

    end = wire.get("lone", lastPackConsumed=True)

    assert (end.success, end.errCode, end.errMsg) == (False, 404, REACHED)
    assert (end.currOffset, end.minLimitTime, end.currDataDlt) == (-1, -1, -1)
    assert mq.broker(1).position("g", "lone", 0) == 84


def test_reading_ahead_of_a_file_rolls_back_and_commits(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.send_all("lone", 14)
    mq.broker(1).flush()
    wire.register("lone")

    first = wire.get("lone", manualCommitOffset=True)
    second = wire.get("lone", manualCommitOffset=True)
    assert (first.currOffset, len(first.messages)) == (0, 7)
    assert (second.currOffset, len(second.messages)) == (196, 4)

    assert wire.commit("lone", lastPackConsumed=False).currOffset == 0
    assert wire.get("lone", manualCommitOffset=True).currOffset == 0
    assert wire.commit("lone", lastPackConsumed=True).currOffset == 196


def test_a_silent_owner_loses_its_partition(
    clock: ManualClock, mq: EmbeddedTubeMQ, wire: BrokerWire, other: BrokerWire
) -> None:
    wire.send_all("lone", 2)
    wire.register("lone")
    wire.get("lone")
    assert other.register("lone").errCode == 410

    clock.advance(31_000)
    mq.tick()
    taken = other.register("lone")

    assert (taken.errCode, taken.currOffset) == (200, 0)
    assert bodies(other.get("lone")) == [b"m0", b"m1"]
    assert wire.get("lone").errCode == 412
    assert wire.commit("lone").errCode == 401


@pytest.mark.parametrize(("status", "after"), [(1, 0), (0, 56)])
def test_unregistering_confirms_or_rolls_back(wire: BrokerWire, status: int, after: int) -> None:
    wire.send_all("lone", 2)
    wire.register("lone")
    wire.get("lone")

    assert wire.unregister("lone", readStatus=status).currOffset == -1
    assert wire.register("lone").currOffset == after


def test_a_wrong_partition_is_refused_and_stays_leased(wire: BrokerWire, other: BrokerWire) -> None:
    sent, registered = wire.send("lone", b"x", 5), wire.register("lone", 5)

    assert sent.errCode == 403
    assert sent.errMsg.startswith("partitionId lone-5 not existed")
    assert registered.errCode == 500
    assert registered.errMsg.startswith("Register broker failure!, exception is Wrong partition")
    assert other.register("lone", 5).errCode == 410


def test_undeclared_stores_are_refused_unless_wanted(wire: BrokerWire) -> None:
    assert wire.send("lone", b"x", 30_000).errCode == 403

    switches = Switches(create_undeclared_stores=True)
    with (
        EmbeddedTubeMQ(1, ["lone"], http=False, switches=switches) as real,
        BrokerWire(real.broker(1).address) as faithful,
    ):
        assert faithful.send("lone", b"x", 30_000).appendOffset == 0


def test_a_404_moves_the_position_past_other_partitions_records(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.register("shared", 0)
    wire.send_all("shared", 4, partition=1)

    answer = wire.get("shared", 0)

    assert (answer.errCode, answer.errMsg) == (404, "Can't found Message by index!")
    assert mq.broker(1).position("g", "shared", 0) == 112


def test_partitions_of_a_store_share_offsets_and_stores_do_not(wire: BrokerWire) -> None:
    sent = [wire.send("wide", b"x", partition) for partition in (0, 2, 10_001, 1, 10_000)]

    assert [reply.appendOffset for reply in sent] == [0, 28, 0, 56, 28]


def test_half_reads_show_over_the_wire(mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    wire.send_all("lone", 100)
    mq.broker(1).flush()
    wire.register("lone")

    sizes = []
    for _ in range(20):
        batch = wire.get("lone", lastPackConsumed=True)
        if batch.errCode != 200:
            break
        sizes.append(len(batch.messages))

    assert sizes == [50, 25, 13, 6, 3, 2, 1]


def test_the_first_fetch_of_a_file_is_smaller_than_the_later_ones(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    for _ in range(80):
        wire.send("lone", bytes(16_332))  # 16 KiB with its header
    mq.broker(1).flush()
    wire.register("lone")

    sizes = [len(wire.get("lone", manualCommitOffset=True).messages) for _ in range(2)]

    assert sizes == [20, 30]


def test_a_group_can_be_read_by_many_groups_at_once(wire: BrokerWire) -> None:
    wire.send_all("lone", 2)

    for group in ("g1", "g2"):
        assert wire.register("lone", groupName=group).errCode == 200
        assert len(wire.get("lone", groupName=group).messages) == 2


@pytest.mark.parametrize("offset", [-1, 0, 28, 57, 84, 999_999])
def test_explicit_starts_are_clamped_and_rounded(wire: BrokerWire, offset: int) -> None:
    wire.send_all("lone", 3)

    start = wire.register("lone", currOffset=offset, readStatus=0).currOffset

    assert start == {-1: 0, 57: 56, 999_999: 84}.get(offset, offset)


def test_a_store_with_expired_records_moves_readers_on(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    wire.send_all("lone", 10)
    wire.register("lone")

    ends = mq.broker(1).store("lone").expire_to(140)
    batch = wire.get("lone")

    assert ends.min == 140
    assert batch.currOffset == 140
    assert bodies(batch) == [b"m5", b"m6", b"m7"]


def test_closed_segments_go_by_timer_as_the_topics_policy_says(clock: ManualClock) -> None:
    switches = replace(BY_HAND, segment_bytes=150, retention_scan_ms=1000)
    with (
        EmbeddedTubeMQ(1, [TopicSpec("lone")], switches=switches, clock=clock) as mq,
        BrokerWire(mq.broker(1).address) as wire,
    ):
        change = f"http://{mq.master_web}/webapi.htm?method=admin_update_topic_deploy_info"
        body = (
            "confModAuthToken=abc&brokerId=1&topicName=lone&deletePolicy=delete,30s&modifyUser=me"
        )
        urlopen(f"{change}&{body}").close()
        wire.send_all("lone", 10)
        mq.broker(1).flush()
        clock.advance(29_000)
        mq.broker(1).expire_segments()
        assert _marks(mq) == (0, 0)
        clock.advance(2_000)
        mq.broker(1).expire_segments()
        assert _marks(mq) == (0, 9 * 54)


def _marks(mq: EmbeddedTubeMQ) -> tuple[int, int]:
    ask = f"http://{mq.broker(1).web}/broker.htm?method=admin_query_pubinfo&topicName=lone"
    with urlopen(ask) as answer:
        (row,) = json.load(answer)["dataSet"][0]["offsetInfo"]
    return row["offsetMin"], row["dataMin"]


def test_topics_of_unknown_size_use_the_clusters_limit(clock: ManualClock) -> None:
    topics = [TopicSpec("small"), TopicSpec("large", max_message_mb=2)]
    with (
        EmbeddedTubeMQ(1, topics, http=False, switches=BY_HAND, clock=clock) as mq,
        BrokerWire(mq.broker(1).address) as wire,
    ):
        refused = wire.send("small", bytes(1_058_817))
        assert refused.errCode == 400
        assert "allowed max length is 1058816, data length is 1058817" in refused.errMsg
        assert wire.send("small", bytes(1_058_816)).errCode == 200
        assert wire.send("large", bytes(1_058_817)).errCode == 200
