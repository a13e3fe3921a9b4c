"""Routing texts, ids, membership and the delays of a master."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.embedded.conftest import BY_HAND
from tests.client.embedded.rpc import BrokerWire, Wire
from tubemq_client import _pb
from tubemq_client._wire import methods
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.testing.clock import ManualClock

pytestmark = pytest.mark.timeout(60)

UNKNOWN = {"brokerConfigId": -2, "topicMetaInfoId": -2}


def join(master: Wire, *topics: str, client: str = "c1", group: str = "g", **fields: Any) -> Any:
    request = {
        "clientId": client,
        "groupName": group,
        "hostName": "127.0.0.1",
        "sourceCount": -2,
        "nodeId": -2,
        "topicList": topics,
        "subRepInfo": _pb.ClientSubRepInfo(**UNKNOWN),
    } | fields
    return master.call(methods.REGISTER_CONSUMER_V2, _pb.RegisterRequestC2MV2(**request))


def meta(master: Wire, client: str = "c1", group: str = "g", **known: int) -> Any:
    request = _pb.GetPartMetaRequestC2M(clientId=client, groupName=group, **UNKNOWN | known)
    return master.call(methods.GET_PARTITION_META, request)


def produce(master: Wire, *topics: str, register: bool = True, **fields: Any) -> Any:
    base = {"clientId": "p", "hostName": "h", "brokerCheckSum": -1}
    if register:
        master.call(methods.REGISTER_PRODUCER, _pb.RegisterRequestP2M(**base))
    request = _pb.HeartRequestP2M(**base | fields, topicList=topics)
    return master.call(methods.HEARTBEAT_PRODUCER, request)


def test_metadata_gives_stores_before_partitions(mq: EmbeddedTubeMQ, master: Wire) -> None:
    join(master, "wide", "lone")

    found = meta(master)

    assert list(found.topicMetaInfoList) == ["lone#1:1:1:1", "wide#1:2:3:1"]
    assert list(found.brokerConfigList) == [f"1:{mq.broker(1).address}"]


def test_routes_give_partitions_before_stores(mq: EmbeddedTubeMQ, master: Wire) -> None:
    mq.add_topic(TopicSpec("large", max_message_mb=3))

    beat = produce(master, "wide", "large", "unknown")

    assert list(beat.topicInfos) == ["large#1:1:1#3145728", "wide#1:3:2#"]


def test_known_lists_are_not_sent_again(mq: EmbeddedTubeMQ, master: Wire) -> None:
    join(master, "lone")
    first = meta(master)

    known = meta(master, brokerConfigId=first.brokerConfigId, topicMetaInfoId=first.topicMetaInfoId)
    assert (list(known.topicMetaInfoList), list(known.brokerConfigList)) == ([], [])
    assert known.topicMetaInfoId == first.topicMetaInfoId
    beat = produce(master, brokerCheckSum=first.brokerConfigId)
    assert list(beat.brokerInfos) == []

    mq.add_topic(TopicSpec("lone", 1, 4))
    grown = meta(master, topicMetaInfoId=first.topicMetaInfoId)
    assert grown.topicMetaInfoId > first.topicMetaInfoId
    assert list(grown.topicMetaInfoList) == ["lone#1:1:4:1"]


def test_two_brokers_have_equal_partition_ids_and_their_own_logs() -> None:
    with EmbeddedTubeMQ(2, ["lone"], http=False) as mq, Wire(mq.masters) as master:
        join(master, "lone")
        found = meta(master)
        assert list(found.topicMetaInfoList) == ["lone#1:1:1:1,2:1:1:1"]
        assert list(produce(master, "lone").topicInfos) == ["lone#1:1:1,2:1:1#"]
        for broker_id in (1, 2):
            with BrokerWire(mq.broker(broker_id).address) as wire:
                assert wire.send("lone", b"x").appendOffset == 0


def test_topics_on_some_brokers_only() -> None:
    with EmbeddedTubeMQ(2, http=False) as mq, Wire(mq.masters) as master:
        mq.add_topic("half", brokers=[2])
        join(master, "half")
        assert list(meta(master).topicMetaInfoList) == ["half#2:1:1:1"]
        with BrokerWire(mq.broker(1).address) as wire:
            assert wire.send("half", b"x").errCode == 403


def test_a_dead_broker_is_believed_in_until_its_timeout(
    clock: ManualClock, mq: EmbeddedTubeMQ, master: Wire
) -> None:
    join(master, "lone")
    mq.broker(1).crash()
    assert list(meta(master).topicMetaInfoList) == ["lone#1:1:1:1"]

    clock.advance(25_000)
    assert list(meta(master).topicMetaInfoList) == ["lone#1:1:1:0"]
    assert list(produce(master, "lone").topicInfos) == []

    mq.broker(1).restart()
    assert list(meta(master).topicMetaInfoList) == ["lone#1:1:1:1"]


def test_a_stopped_broker_is_gone_at_once(mq: EmbeddedTubeMQ, master: Wire) -> None:
    join(master, "lone")

    mq.broker(1).stop()

    assert list(meta(master).topicMetaInfoList) == ["lone#1:1:1:0"]


def test_new_topics_may_take_their_time() -> None:
    clock = ManualClock()
    switches = Switches(subscribe_delay_ms=13_000, publish_delay_ms=45_000)
    with (
        EmbeddedTubeMQ(1, ["late"], http=False, switches=switches, clock=clock) as mq,
        Wire(mq.masters) as master,
        BrokerWire(mq.broker(1).address) as wire,
    ):
        assert wire.send("late", b"x").errCode == 200
        seen = []
        for _ in range(3):
            join(master, "late")
            status = meta(master).topicMetaInfoList[0][-1]
            seen.append((status, len(produce(master, "late").topicInfos)))
            clock.advance(23_000)
        assert seen == [("0", 0), ("1", 0), ("1", 1)]


def test_silent_members_are_forgotten(clock: ManualClock, mq: EmbeddedTubeMQ, master: Wire) -> None:
    join(master, "lone")
    produce(master, "lone")
    clock.advance(20_000)
    mq.tick()
    assert meta(master).errCode == 200

    clock.advance(20_000)
    mq.tick()
    assert meta(master).errCode == 200, "a look-up counts as a heartbeat"
    assert produce(master, "lone", register=False).errCode == 411

    clock.advance(30_000)
    mq.tick()
    assert meta(master).errMsg == "Not found groupName g in holder!"


def test_a_group_vanishes_with_its_last_member(master: Wire) -> None:
    join(master, "lone")
    assert join(master, "wide", client="c2").errCode == 425

    master.call(methods.CLOSE_CONSUMER, _pb.CloseRequestC2M(clientId="c1", groupName="g"))

    assert join(master, "wide", client="c2").errCode == 200


def test_a_fail_over_forgets_everybody(mq: EmbeddedTubeMQ, master: Wire) -> None:
    join(master, "lone")
    produce(master, "lone")

    mq.forget_members()

    assert meta(master).errCode == 411
    assert produce(master, "lone", register=False).errCode == 411


def test_heartbeats_push_metadata_only_to_clients_that_have_not_fetched_it_for_long(
    clock: ManualClock, master: Wire
) -> None:
    join(master, "lone")

    def beat(**report: Any) -> Any:
        info = _pb.ClientSubRepInfo(**UNKNOWN, **report)
        request = _pb.HeartRequestC2MV2(clientId="c1", groupName="g", subRepInfo=info)
        return master.call(methods.HEARTBEAT_CONSUMER_V2, request)

    assigned = clock.now_ms
    held = {"reportSubInfo": True, "partSubInfo": ["lone#1:0"]}
    assert not beat(lstAssignedTime=assigned, **held).HasField("topicMetaInfoId")
    clock.advance(180_001)
    assert list(beat(lstAssignedTime=assigned).topicMetaInfoList) == ["lone#1:1:1:1"]
    assert not beat().HasField("topicMetaInfoId")
    nothing_held = {"reportSubInfo": True}
    assert not beat(lstAssignedTime=assigned, **nothing_held).HasField("topicMetaInfoId")


def test_default_ports_are_written_as_a_blank(master: Wire, mq: EmbeddedTubeMQ) -> None:
    assert BY_HAND.broker_timeout_ms == 25_000
    registered = join(master, "lone")

    assert list(registered.brokerConfigList) == [f"1:{mq.broker(1).address}"]
