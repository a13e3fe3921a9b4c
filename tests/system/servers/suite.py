"""Answers of a TubeMQ server, frame by frame: one suite for the genuine and the embedded one.

Inherit from `WireSuite` and provide a fixture `servers`. The topics are shared and never reset, so
every test works from the present end of the log and with a separate group. Everything asserted here
has been observed on the genuine server; if a text and this suite differ, this suite is right.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import pytest

from tests.client.embedded.rpc import BrokerWire, Wire, bodies
from tubemq_client import _pb, errors
from tubemq_client._wire import envelope, framing, methods, payload, strings
from tubemq_client.model import BrokerNode, Partition

LONE = "t_wire"
"""Topic of one partition."""

SHARED = "t_wire_shared"
"""Topic of three partitions in one store."""

EMPTY = "t_empty"
"""Topic of two partitions without records."""

SILENCE_S = 1.0
MEMORY = 303
STABLE = 1


class Servers(NamedTuple):
    """Addresses as ``host:port``; the broker has id 1."""

    master: str
    broker: str


class Group(BrokerWire):
    """A consumer and producer of a separate group."""

    def __init__(self, servers: Servers, group: str) -> None:
        super().__init__(servers.broker)
        self.group = group
        self.client_id = f"{group}_127.0.0.1-1-1700000000000-1-Pull-test"

    def end(self, topic: str) -> int:
        """End in memory of the topic's first store; registers nothing that lasts."""
        reply = self.register(topic, readStatus=2, qryPriorityId=MEMORY)
        self.unregister(topic, readStatus=1)
        offset: int = reply.currOffset
        assert offset == reply.maxOffset
        return offset

    def register_at(self, topic: str, offset: int, partition: int = 0, **fields: Any) -> Any:
        fields = {"currOffset": offset, "qryPriorityId": MEMORY} | fields
        return self.register(topic, partition, **fields)

    def read(self, topic: str, count: int, partition: int = 0) -> list[bytes]:
        """`count` bodies from the registered position; a fetch may give any part of them."""
        found: list[bytes] = []
        for _ in range(50):
            reply = self.get(topic, partition, lastPackConsumed=True)
            found += bodies(reply)
            if len(found) >= count:
                return found
        raise AssertionError(f"{len(found)} of {count} records after 50 fetches")


def request_frame(serial: int, method: int, service: int, body: bytes, **fields: int) -> bytes:
    """Build a call whose numbers need not fit together."""
    parts = (
        _pb.RpcConnHeader(flag=0),
        _pb.RequestHeader(serviceType=service, protocolVer=envelope.PROTOCOL_VERSION),
        _pb.RequestBody(method=method, request=body, **fields),
    )
    encoded = [part.SerializeToString() for part in parts]
    assert all(len(part) < 128 for part in encoded)
    return framing.encode_frame(serial, b"".join(bytes((len(p),)) + p for p in encoded))


def a_question(serial: int, **fields: int) -> bytes:
    """Build a call that any broker answers: unregistering without a lease (411)."""
    body = _pb.RegisterRequestC2B(
        opType=methods.OP_UNREGISTER,
        clientId="nobody",
        groupName="nobody",
        topicName=LONE,
        partitionId=0,
        readStatus=0,
    ).SerializeToString()
    return request_frame(serial, 15, methods.BROKER_READ_SERVICE, body, **fields)


def answered(wire: Wire, serial: int) -> bool:
    """Return True if the reply `serial` arrives before silence. Raises for a closed connection."""
    wire.sock.settimeout(SILENCE_S)
    try:
        wire.receive(serial)
    except TimeoutError:
        return False
    return True


def failure(wire: Wire, frame: bytes) -> errors.RemoteException:
    """Return the RPC-level exception that answers `frame`."""
    wire.sock.sendall(frame)
    with pytest.raises(errors.RemoteException) as caught:
        envelope.decode_response(wire.receive(), methods.REGISTER_PARTITION)
    return caught.value


class WireSuite:
    """Each test opens its own connections to `servers`."""

    # ------------------------------------------------------------ frames and envelopes

    def test_a_wrong_token_is_neither_answered_nor_closed(self, servers: Servers) -> None:
        with Wire(servers.broker) as wire:
            wire.sock.sendall(b"\x00\x00\x00\x01" + a_question(1, timeout=5_000)[4:])
            assert not answered(wire, 1)

    def test_a_call_without_a_timeout_is_dropped_without_a_word(self, servers: Servers) -> None:
        with Wire(servers.broker) as wire:
            wire.sock.sendall(a_question(1) + a_question(2, timeout=0))
            assert not answered(wire, 1)
            wire.sock.sendall(a_question(3, timeout=5_000))
            assert answered(wire, 3)

    def test_an_unreadable_envelope_is_answered_and_the_connection_stays(
        self, servers: Servers
    ) -> None:
        with Wire(servers.broker) as wire:
            problem = failure(wire, framing.encode_frame(1, b"\x00\x00\x00"))
            assert problem.detail.startswith("IPC server unable to read call parameters:")
            wire.sock.sendall(a_question(2, timeout=5_000))
            assert answered(wire, 2)

    @pytest.mark.parametrize(
        ("method", "service", "detail"),
        [
            (99, 2, "IPC server handle request error :Unsupported method ID :99"),
            (19, 2, "IPC server handle request error :Unsupported method ID :19"),
            (15, 3, "Unsupported method 15in service type 3!"),
            (15, 9, "Service Type is invalid!"),
        ],
    )
    def test_a_method_that_does_not_fit_is_refused(
        self, servers: Servers, method: int, service: int, detail: str
    ) -> None:
        body = envelope.decode_request(frame_payload(a_question(1, timeout=5_000))).body
        with Wire(servers.broker) as wire:
            problem = failure(wire, request_frame(1, method, service, body, timeout=5_000))
            assert (problem.name, problem.detail) == ("java.lang.Exception", detail)

    def test_a_request_without_its_required_fields_is_refused(self, servers: Servers) -> None:
        with Wire(servers.broker) as wire:
            problem = failure(wire, request_frame(1, 15, 2, b"", timeout=5_000))
            assert problem.name == "com.google.protobuf.InvalidProtocolBufferException"
            assert problem.detail.startswith("IPC server handle request error :")

    def test_a_handler_that_stumbles_answers_with_an_empty_exception(
        self, servers: Servers
    ) -> None:
        with Group(servers, "w_stumble") as group, pytest.raises(errors.RemoteException) as caught:
            group.heartbeat("rubbish")
        assert caught.value.name == "java.lang.reflect.InvocationTargetException"
        assert caught.value.detail == ""

    # ------------------------------------------------------------ producer

    def test_a_producer_learns_brokers_and_topics(self, servers: Servers) -> None:
        names = {"clientId": "127.0.0.1-1-1-1-Producer-test", "hostName": "127.0.0.1"}
        with Wire(servers.master) as wire:
            reply = wire.call(
                methods.REGISTER_PRODUCER, _pb.RegisterRequestP2M(**names, brokerCheckSum=-1)
            )
            assert (reply.success, reply.errCode, reply.errMsg) == (True, 200, "OK!")
            assert reply.appdConfig.maxMsgSize == 1 << 20
            assert reply.authorizedInfo.visitAuthorizedToken > 0
            (broker,) = map(strings.parse_broker, reply.brokerInfos)
            assert f"{broker.host}:{broker.port}" == servers.broker
            reply = wire.call(
                methods.HEARTBEAT_PRODUCER,
                _pb.HeartRequestP2M(
                    **names, brokerCheckSum=reply.brokerCheckSum, topicList=[SHARED, "nope"]
                ),
            )
            assert list(reply.brokerInfos) == []
            (routes,) = map(strings.parse_topic_info, reply.topicInfos)
            assert (routes.topic, broker.broker_id) == (SHARED, 1)
            reply = wire.call(
                methods.CLOSE_PRODUCER, _pb.CloseRequestP2M(clientId=names["clientId"])
            )
            assert reply.success

    def test_a_producer_the_master_does_not_know_has_to_register(self, servers: Servers) -> None:
        with Wire(servers.master) as wire:
            reply = wire.call(
                methods.HEARTBEAT_PRODUCER,
                _pb.HeartRequestP2M(clientId="new", brokerCheckSum=-1, hostName="127.0.0.1"),
            )
        assert (reply.success, reply.errCode, reply.brokerCheckSum) == (False, 411, -1)

    def test_a_receipt_states_where_and_when(self, servers: Servers) -> None:
        with Group(servers, "w_receipt") as group:
            end = group.end(SHARED)
            replies = [group.send(SHARED, b"x", partition) for partition in (0, 1, 2, 0)]
        assert [reply.appendOffset for reply in replies] == [end + 28 * n for n in range(4)]
        for reply in replies:
            assert (reply.success, reply.errCode) == (True, 200)
            assert reply.errMsg == str(reply.messageId)
            assert abs(reply.appendTime - time.time() * 1000) < 60_000

    @pytest.mark.parametrize(
        ("topic", "partition", "fields", "code"),
        [
            (LONE, 5, {}, 403),
            ("nope", 0, {}, 403),
            (LONE, 0, {"checkSum": 5}, 403),
            (LONE, 0, {"data": b""}, 400),
            (LONE, 0, {"data": bytes(2 << 20)}, 400),
        ],
        ids=["partition", "topic", "checksum", "empty", "large"],
    )
    def test_a_record_that_cannot_be_stored_is_refused(
        self, servers: Servers, topic: str, partition: int, fields: dict[str, Any], code: int
    ) -> None:
        with Group(servers, "w_refuse") as group:
            end = group.end(LONE)
            reply = group.send(topic, b"x", partition, **fields)
            assert (reply.success, reply.errCode) == (False, code)
            assert not reply.HasField("appendOffset")
            assert group.end(LONE) == end

    # ------------------------------------------------------------ consumer at the broker

    def test_a_record_arrives_as_it_was_sent(self, servers: Servers) -> None:
        data, flag = payload.encode_payload(
            b"body", {"k": "v"}, stream_id="alpha", msg_time="202611210900"
        )
        with Group(servers, "w_arrive") as group:
            end = group.end(LONE)
            sent = group.send(LONE, b"", data=data, flag=flag, msgType="alpha")
            group.register_at(LONE, end)
            (message,) = group.get(LONE).messages
        assert (message.payLoadData, message.flag) == (data, flag)
        assert message.checkSum == payload.checksum(data)
        assert message.messageId == sent.messageId

    def test_a_register_takes_the_requested_offset(self, servers: Servers) -> None:
        with Group(servers, "w_offset") as group:
            group.send_all(LONE, 5)
            end = group.end(LONE)
            for asked, got in ((end, end), (end - 56, end - 56), (end - 27, end - 28), (0, 0)):
                reply = group.register_at(LONE, asked)
                assert (reply.currOffset, reply.maxOffset) == (got, end)
            assert group.register_at(LONE, end + 2_800).currOffset == end

    @pytest.mark.parametrize("status", [0, 1, 2])
    def test_a_new_group_starts_where_its_read_status_says(
        self, servers: Servers, status: int
    ) -> None:
        with Group(servers, f"w_new_{status}_{time.time_ns()}") as group:
            group.send(LONE, b"x")
            reply = group.register(LONE, readStatus=status)
            assert reply.currOffset == (reply.maxOffset if status else 0)

    def test_a_fetch_repeats_until_the_batch_is_consumed(self, servers: Servers) -> None:
        with Group(servers, "w_repeat") as group:
            end = group.end(LONE)
            group.send_all(LONE, 6)
            group.register_at(LONE, end)
            first, again = group.get(LONE), group.get(LONE)
            assert bodies(first) == bodies(again)
            assert (first.currOffset, again.currOffset) == (end, end)
            assert group.commit(LONE, lastPackConsumed=False).currOffset == end
            rest = group.get(LONE)
            assert bodies(rest) == bodies(first)
            moved = group.commit(LONE, lastPackConsumed=True).currOffset
            assert moved == end + 28 * len(first.messages)

    def test_the_end_of_the_log_is_a_404_without_an_offset(self, servers: Servers) -> None:
        with Group(servers, "w_end") as group:
            end = group.end(LONE)
            group.send_all(LONE, 3)
            group.register_at(LONE, end)
            assert group.read(LONE, 3) == [b"m0", b"m1", b"m2"]
            reply = group.get(LONE, lastPackConsumed=True)
            assert (reply.success, reply.errCode) == (False, 404)
            assert reply.errMsg == "The request offset reached maxOffset!"
            assert reply.currOffset == -1
            reply = group.commit(LONE)
            assert (reply.currOffset, reply.maxOffset) == (end + 84, end + 84)

    def test_partitions_of_a_store_share_its_offsets(self, servers: Servers) -> None:
        with Group(servers, "w_share") as group:
            end = group.end(SHARED)
            for partition in (0, 1, 2, 0, 1, 1, 1):
                group.send(SHARED, b"p%d" % partition, partition)
            for partition, count in ((0, 2), (1, 4), (2, 1)):
                reply = group.register_at(SHARED, end, partition)
                assert (reply.currOffset, reply.maxOffset) == (end, end + 7 * 28)
                assert group.read(SHARED, count, partition) == [b"p%d" % partition] * count

    def test_nothing_for_this_partition_is_a_404_that_moves_on(self, servers: Servers) -> None:
        with Group(servers, "w_moves") as group:
            end = group.end(SHARED)
            for _ in range(3):
                group.send(SHARED, b"other", 1)
            group.register_at(SHARED, end)
            for _ in range(10):
                reply = group.get(SHARED, lastPackConsumed=True)
                assert list(reply.messages) == []
                if reply.errMsg == "The request offset reached maxOffset!":
                    break
            assert reply.errCode == 404
            assert group.commit(SHARED).currOffset == end + 84

    def test_a_filter_lets_only_its_streams_through(self, servers: Servers) -> None:
        streams = ("alpha", "beta", None, "alpha")
        with Group(servers, "w_filter") as group:
            end = group.end(LONE)
            for number, stream in enumerate(streams):
                group.send(LONE, b"f%d" % number, stream_id=stream)
            group.register_at(LONE, end, filterCondStr=["alpha"])
            assert group.read(LONE, 2) == [b"f0", b"f3"]

    def test_an_unwritten_topic_is_empty_from_0_to_0(self, servers: Servers) -> None:
        with Group(servers, "w_empty") as group:
            reply = group.register_at(EMPTY, 0)
            assert (reply.errCode, reply.currOffset, reply.maxOffset) == (200, 0, 0)
            reply = group.get(EMPTY)
            assert (reply.errCode, reply.errMsg) == (404, "Request offset reached cache maxOffset")

    def test_the_stable_end_is_behind_what_is_only_in_memory(self, servers: Servers) -> None:
        """Priority 1 selects the fsynced end; 101 does not."""
        with Group(servers, "w_stable") as group:
            offset = group.send(LONE, b"fresh").appendOffset
            ends = {
                priority: group.register_at(LONE, 0, qryPriorityId=priority).maxOffset
                for priority in (STABLE, 101, MEMORY)
            }
        assert ends[STABLE] <= offset
        assert ends[101] == ends[MEMORY] == offset + 28

    @pytest.mark.parametrize(("status", "moved"), [(0, True), (1, False)])
    def test_giving_back_settles_the_batch_in_flight(
        self, servers: Servers, status: int, moved: bool
    ) -> None:
        with Group(servers, f"w_back_{status}") as group:
            end = group.end(LONE)
            group.send(LONE, b"one")
            group.register_at(LONE, end)
            assert bodies(group.get(LONE)) == [b"one"]
            reply = group.unregister(LONE, readStatus=status)
            assert (reply.success, reply.currOffset) == (True, -1)
            assert group.register(LONE).currOffset == (end + 28 if moved else end)

    def test_a_held_partition_refuses_everybody_else(self, servers: Servers) -> None:
        place = f"1:{servers.broker}#{LONE}:0"
        with Group(servers, "w_held") as holder, Group(servers, "w_held") as other:
            other.client_id += "-2"
            assert holder.register(LONE).errCode == 200
            assert other.register(LONE).errCode == 410
            assert other.get(LONE).errCode == 412
            assert other.commit(LONE).errCode == 401
            assert other.unregister(LONE).errCode == 412
            reply = other.heartbeat(place)
            assert (reply.errCode, reply.hasPartFailure) == (200, True)
            assert list(reply.failureInfo) == [f"412:{place}"]
            assert not holder.heartbeat(place).hasPartFailure
            holder.unregister(LONE)
            assert holder.get(LONE).errCode == 411
            assert holder.commit(LONE).errCode == 401
            assert holder.unregister(LONE).errCode == 411
            assert list(holder.heartbeat(place).failureInfo) == [f"411:{place}"]
            assert other.register(LONE).errCode == 200
            other.unregister(LONE)

    @pytest.mark.parametrize(
        ("topic", "partition", "fields", "code"),
        [("nope", 0, {}, 403), (LONE, 5, {}, 500), (LONE, 0, {"opType": 33}, 400)],
        ids=["topic", "partition", "operation"],
    )
    def test_a_register_that_cannot_be_is_refused(
        self, servers: Servers, topic: str, partition: int, fields: dict[str, Any], code: int
    ) -> None:
        with Group(servers, f"w_cannot_{code}") as group:
            reply = group.register(topic, partition, **fields)
        assert (reply.success, reply.errCode, reply.currOffset) == (False, code, -1)

    # ------------------------------------------------------------ client balance at the master

    def test_a_member_learns_partitions_and_leaves(self, servers: Servers) -> None:
        names = {"clientId": "w_meta_127.0.0.1-1-1-1-Balance-test", "groupName": "w_meta"}
        with Wire(servers.master) as wire:
            reply = join(wire, names, [LONE, SHARED])
            assert (reply.errCode, reply.errMsg) == (200, "OK!")
            (broker,) = map(strings.parse_broker, reply.brokerConfigList)
            host, _, port = servers.broker.rpartition(":")
            assert broker == BrokerNode(1, host, int(port))
            reply = wire.call(
                methods.GET_PARTITION_META,
                _pb.GetPartMetaRequestC2M(**names, brokerConfigId=-2, topicMetaInfoId=-2),
            )
            found = dict(
                item
                for meta in map(strings.parse_topic_meta, reply.topicMetaInfoList)
                for item in meta.partitions()
            )
            shared = [Partition(1, SHARED, number) for number in range(3)]
            assert found == dict.fromkeys([Partition(1, LONE, 0), *shared], True)
            reply = wire.call(
                methods.HEARTBEAT_CONSUMER_V2,
                _pb.HeartRequestC2MV2(**names, subRepInfo=nothing_known()),
            )
            assert reply.errCode == 200
            for _ in range(2):  # leaving twice is fine
                reply = wire.call(methods.CLOSE_CONSUMER, _pb.CloseRequestC2M(**names))
                assert (reply.success, reply.errCode) == (True, 200)

    @pytest.mark.parametrize(("topics", "code"), [(["nope"], 431), ([], 400), ([LONE], 425)])
    def test_a_member_that_does_not_fit_is_refused(
        self, servers: Servers, topics: list[str], code: int
    ) -> None:
        group = f"w_misfit_{code}"
        names = {"clientId": f"{group}_127.0.0.1-1-1-2-Balance-test", "groupName": group}
        first = names | {"clientId": f"{group}_127.0.0.1-1-1-1-Balance-test"}
        with Wire(servers.master) as wire:
            assert join(wire, first, [LONE, SHARED]).errCode == 200
            assert join(wire, names, topics).errCode == code
            wire.call(methods.CLOSE_CONSUMER, _pb.CloseRequestC2M(**first))

    def test_a_member_the_master_does_not_know_has_to_register(self, servers: Servers) -> None:
        with Wire(servers.master) as wire:
            reply = wire.call(
                methods.GET_PARTITION_META,
                _pb.GetPartMetaRequestC2M(
                    clientId="nobody", groupName="w_nobody", brokerConfigId=-2, topicMetaInfoId=-2
                ),
            )
        assert reply.errCode == 411


def frame_payload(frame: bytes) -> bytes:
    decoder = framing.FrameDecoder()
    decoder.receive_data(frame)
    found = decoder.next_frame()
    assert found is not None
    return found.payload


def nothing_known() -> Any:
    return _pb.ClientSubRepInfo(brokerConfigId=-2, topicMetaInfoId=-2, reportSubInfo=False)


def join(wire: Wire, names: dict[str, str], topics: list[str]) -> Any:
    """Register as a member of a client-balance group."""
    return wire.call(
        methods.REGISTER_CONSUMER_V2,
        _pb.RegisterRequestC2MV2(
            **names,
            hostName="127.0.0.1",
            sourceCount=-2,
            nodeId=-2,
            topicList=topics,
            subRepInfo=nothing_known(),
        ),
    )
