"""Recorded exchanges, byte for byte: what the client writes and what it reads back.

Each line of transcripts.txt is decoded down to its business message and encoded again; some
requests are also built from their values alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tubemq_client import _pb, errors
from tubemq_client._wire import envelope, framing, methods, payload, strings
from tubemq_client.model import BrokerNode, Partition

pytestmark = pytest.mark.timeout(60)

FRAMES = {
    name: bytes.fromhex(text)
    for name, text in (
        line.split()
        for line in Path(__file__).with_name("transcripts.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}
REQUESTS = sorted(name for name in FRAMES if name.endswith("q"))
REPLIES = sorted(name for name in FRAMES if name.endswith("r") and name != "X1r")

GROUP_MEMBER = "g1_127.0.0.1-1-1700000000000-1-py-0.1.0"
BALANCE_MEMBER = "g1_127.0.0.1-1-1700000000000-1-Balance-py-0.1.0"
TOKEN = 1700000000000


def frame(name: str) -> framing.Frame:
    decoder = framing.FrameDecoder()
    decoder.receive_data(FRAMES[name])
    decoded = decoder.next_frame()
    assert decoded is not None
    assert decoder.next_frame() is None
    assert not decoder.mid_frame
    return decoded


def request(name: str):
    call = envelope.decode_request(frame(name).payload)
    return call, methods.BY_ID[call.method_id].request.FromString(call.body)


def reply(name: str):
    call = envelope.decode_request(frame(name[:-1] + "q").payload)
    return envelope.decode_response(frame(name).payload, methods.BY_ID[call.method_id])


def test_all_transcripts_are_there():
    assert len(REQUESTS) == 16
    assert len(REPLIES) == 15


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_rewritten_byte_for_byte(name):
    call, message = request(name)
    method = methods.BY_ID[call.method_id]
    assert call.service == method.service
    assert (call.timeout_ms, call.protocol_ver) == (10_000, 3)
    assert methods.is_legal(call.service, call.method_id)
    serial = frame(name).serial
    assert envelope.encode_request(serial, method, message, call.timeout_ms) == FRAMES[name]


@pytest.mark.parametrize("name", REPLIES)
def test_replies_are_rewritten_byte_for_byte(name):
    call, _ = request(name[:-1] + "q")
    message = reply(name)
    assert message.errCode == 200
    assert envelope.encode_response(frame(name).serial, call.method_id, message) == FRAMES[name]


def test_the_standby_refusal_names_the_master_and_is_rewritten():
    recorded = frame("X1r")
    with pytest.raises(errors.StandbyMaster, match="tube-master-2 is not master now") as caught:
        envelope.decode_response(recorded.payload, methods.REGISTER_CONSUMER, "m1:8715")
    again = envelope.encode_exception(recorded.serial, caught.value.name, caught.value.detail)
    assert again == FRAMES["X1r"]
    assert str(caught.value).startswith("m1:8715: ")


def test_consumer_registration_from_values():
    message = _pb.RegisterRequestC2M(
        clientId=GROUP_MEMBER,
        groupName="g1",
        hostName="127.0.0.1",
        topicList=["t1"],
        topicCondition=[strings.format_topic_condition("t1", ["f1"])],
        requireBound=False,
        sessionTime=TOKEN,
        groupFlowCheckId=-2,
        defFlowCheckId=-2,
        qryPriorityId=-2,
    )
    assert envelope.encode_request(1, methods.REGISTER_CONSUMER, message, 10_000) == FRAMES["A1q"]


def test_heartbeat_that_acknowledges_an_event_from_values():
    held = strings.format_subscribe_info(
        strings.SubscribeInfo(
            GROUP_MEMBER, "g1", BrokerNode(1, "127.0.0.1", 8123), Partition(1, "t1", 0)
        )
    )
    message = _pb.HeartRequestC2M(
        clientId=GROUP_MEMBER,
        groupName="g1",
        subscribeInfo=[held],
        reportSubscribeInfo=True,
        event=_pb.EventProto(rebalanceId=7, opType=10, status=2, subscribeInfo=[held]),
        defFlowCheckId=-2,
        groupFlowCheckId=-2,
        qryPriorityId=-2,
    )
    assert envelope.encode_request(3, methods.HEARTBEAT_CONSUMER, message, 10_000) == FRAMES["A7q"]


def test_commit_from_values_has_topic_and_group_in_the_right_places():
    message = _pb.CommitOffsetRequestC2B(
        clientId=GROUP_MEMBER, topicName="t1", partitionId=0, groupName="g1", lastPackConsumed=True
    )
    assert envelope.encode_request(3, methods.COMMIT_OFFSET, message, 10_000) == FRAMES["A5q"]


def test_assigned_partition_registration_from_values():
    message = _pb.RegisterRequestC2B(
        opType=methods.OP_REGISTER,
        clientId=BALANCE_MEMBER,
        groupName="g1",
        topicName="t1",
        partitionId=1,
        readStatus=0,
        currOffset=28,
        qryPriorityId=-2,
        authInfo=_pb.AuthorizedInfo(visitAuthorizedToken=TOKEN),
    )
    assert envelope.encode_request(1, methods.REGISTER_PARTITION, message, 10_000) == FRAMES["B3q"]


def test_send_from_values():
    data, flag = payload.encode_payload(b"hello", stream_id="f1", msg_time="202401011230")
    message = _pb.SendMessageRequestP2B(
        clientId="127.0.0.1-1-1700000000000-1-py-0.1.0",
        topicName="t1",
        partitionId=1,
        data=data,
        flag=flag,
        checkSum=-1,
        sentAddr=2130706433,
        msgType="f1",
        msgTime="202401011230",
        authInfo=_pb.AuthorizedInfo(visitAuthorizedToken=TOKEN),
    )
    assert envelope.encode_request(1, methods.SEND_MESSAGE, message, 10_000) == FRAMES["C3q"]


def test_a_fetched_record_is_read_down_to_its_body():
    decoded = reply("A4r")
    (record,) = decoded.messages
    assert (decoded.currOffset, decoded.maxOffset, decoded.currDataDlt) == (0, 56, 76)
    assert payload.checksum(record.payLoadData) == record.checkSum == 107938143
    raw, body = payload.split_payload(record.payLoadData, record.flag)
    assert body == b"hello"
    assert payload.parse_attributes(raw or b"") == ({}, "f1", "202401011230")


def test_routes_are_read_from_replies():
    (broker,) = map(strings.parse_broker, reply("B1r").brokerConfigList)
    assert broker == BrokerNode(1, "127.0.0.1", 8123)
    (routes,) = map(strings.parse_topic_info, reply("C2r").topicInfos)
    assert list(routes.partitions()) == [Partition(1, "t1", 0), Partition(1, "t1", 1)]
    assert routes.max_message_bytes == 1 << 20
    (meta,) = map(strings.parse_topic_meta, reply("B2r").topicMetaInfoList)
    assert dict(meta.partitions()) == {Partition(1, "t1", 0): True, Partition(1, "t1", 1): True}


def test_an_event_names_the_assigned_partition():
    event = reply("A2r").event
    (info,) = map(strings.parse_subscribe_info, event.subscribeInfo)
    assert (event.rebalanceId, event.opType) == (7, 10)
    assert (info.consumer_id, info.group) == (GROUP_MEMBER, "g1")
    assert info.partition == Partition(1, "t1", 0)
