"""Servers that misbehave on demand, and clients that misbehave by themselves."""

from __future__ import annotations

import struct

import pytest

from tests.client.embedded.members import Player
from tests.client.embedded.rpc import BrokerWire, Wire, bodies
from tubemq_client import _pb
from tubemq_client._wire import envelope, methods, payload
from tubemq_client._wire.framing import encode_frame
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.errors import RemoteException, StandbyMaster

pytestmark = pytest.mark.timeout(60)

GET = _pb.GetMessageRequestC2B(clientId="c", partitionId=0, groupName="g", topicName="lone")


def test_stopped_services_answer_503(mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    wire.register("lone")
    mq.broker(1).stop_reading()
    mq.broker(1).stop_writing()

    assert wire.get("lone").errCode == 503
    refused = wire.send("lone", b"x")
    assert (refused.errCode, refused.errMsg) == (503, "Write StoreService temporary unavailable!")

    mq.broker(1).resume_reading()
    mq.broker(1).resume_writing()
    assert wire.send("lone", b"x").errCode == 200
    assert wire.get("lone").errCode == 200


def test_every_nth_send_overflows_and_stores_nothing(mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    mq.broker(1).overflow_every(3)

    codes = [wire.send("lone", b"x").errCode for _ in range(6)]

    assert codes == [200, 200, 419, 200, 200, 419]
    assert mq.broker(1).store("lone").ends.memory == 4 * 28


def test_corrupt_deliveries_and_corrupt_records(mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    wire.send_all("lone", 3)
    wire.register("lone")

    def sound() -> list[bool]:
        batch = wire.get("lone")
        return [m.checkSum == payload.checksum(m.payLoadData) for m in batch.messages]

    mq.broker(1).corrupt_next(2)
    assert sound() == [False, False, True]
    assert sound() == [True, True, True]

    mq.broker(1).store("lone").corrupt(28)
    assert sound() == sound() == [True, False, True]


def test_revoked_and_stolen_leases(mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    wire.register("lone")
    assert mq.broker(1).revoke_lease("g", "lone", 0)
    assert not mq.broker(1).revoke_lease("g", "lone", 0)
    assert wire.get("lone").errCode == 411

    wire.register("lone")
    mq.broker(1).steal_lease("g", "lone", 0, "thief")
    assert wire.get("lone").errMsg.endswith(f"consumed by thief;Current consumer {wire.client_id}")


def test_silenced_methods_never_answer_and_others_do(mq: EmbeddedTubeMQ) -> None:
    mq.broker(1).silence(methods.GET_MESSAGES.id)
    with BrokerWire(mq.broker(1).address, timeout_s=0.3) as wire:
        wire.register("lone")
        with pytest.raises(TimeoutError):
            wire.get("lone")
        assert wire.commit("lone").errCode == 200
        mq.broker(1).silence()
        assert wire.get("lone").errCode == 404


def test_a_standby_master_names_itself(mq: EmbeddedTubeMQ, master: Wire) -> None:
    register = _pb.RegisterRequestP2M(clientId="p", brokerCheckSum=-1, hostName="h")
    mq.set_standby()

    with pytest.raises(StandbyMaster) as caught:
        master.call(methods.REGISTER_PRODUCER, register)
    assert caught.value.detail == (f"{mq.masters} is not master now. the connecting client id is p")

    mq.set_standby(standby=False)
    assert master.call(methods.REGISTER_PRODUCER, register).success


def test_old_clients_get_their_own_class_names(mq: EmbeddedTubeMQ, master: Wire) -> None:
    mq.set_standby()
    register = _pb.RegisterRequestP2M(clientId="p", brokerCheckSum=-1, hostName="h")
    frame = envelope.encode_request(1, methods.REGISTER_PRODUCER, register, 1_000)
    names = []
    for version in (1, 2, 3):
        master.sock.sendall(frame.replace(b"\x04\x08\x01\x10\x03", bytes((4, 8, 1, 16, version))))
        with pytest.raises(StandbyMaster) as caught:
            envelope.decode_response(master.receive(), methods.REGISTER_PRODUCER)
        names.append(caught.value.name.removesuffix("corerpc.exception.StandbyException"))

    assert names == ["com.tencent.tubemq.", "com.apache.tubemq.", "org.apache.inlong.tubemq."]


def test_a_wrong_token_is_neither_answered_nor_closed(mq: EmbeddedTubeMQ) -> None:
    with BrokerWire(mq.broker(1).address, timeout_s=0.3) as wire:
        wire.sock.sendall(struct.pack(">Iii", 0x01020304, 1, 1) + b"garbage")
        with pytest.raises(TimeoutError):
            wire.call(methods.GET_MESSAGES, GET)
        for _ in range(64):
            wire.sock.sendall(bytes(1 << 16))
        with pytest.raises(TimeoutError):
            wire.sock.recv(1)
    with BrokerWire(mq.broker(1).address) as sane:
        assert sane.get("lone").errCode == 411


def test_expired_requests_are_dropped(mq: EmbeddedTubeMQ) -> None:
    with BrokerWire(mq.broker(1).address, timeout_s=0.3) as wire:
        frame = envelope.encode_request(1, methods.GET_MESSAGES, GET, 1)
        wire.sock.sendall(frame.replace(b"\x08\x11\x10\x01\x1a", b"\x08\x11\x10\x00\x1a"))
        with pytest.raises(TimeoutError):
            wire.receive(1)
        assert wire.get("lone").errCode == 411


@pytest.mark.parametrize("junk", [b"\x05abc", b"\xff" * 40, b"\x02\x08\x00\x02\x08\x01\x01\x08"])
def test_unreadable_envelopes_get_a_fatal_answer(wire: BrokerWire, junk: bytes) -> None:
    wire.sock.sendall(encode_frame(7, junk))

    with pytest.raises(RemoteException, match="IPC server unable to read call parameters:"):
        envelope.decode_response(wire.receive(7), methods.GET_MESSAGES)
    assert wire.get("lone").errCode == 411


def test_requests_may_arrive_in_any_cuts_and_many_at_once(wire: BrokerWire) -> None:
    frames = b"".join(
        envelope.encode_request(serial, methods.GET_MESSAGES, GET, 1_000) for serial in (5, 6, 7)
    )
    for position in range(len(frames)):
        wire.sock.sendall(frames[position : position + 1])

    for serial in (5, 6, 7):
        reply = envelope.decode_response(wire.receive(serial), methods.GET_MESSAGES)
        assert reply.errCode == 411


def test_a_client_that_does_not_read_is_not_buffered_without_end(
    mq: EmbeddedTubeMQ, wire: BrokerWire
) -> None:
    for _ in range(2):
        wire.send("lone", bytes(1_000_000))
    wire.register("lone")
    frame = envelope.encode_request(9, methods.GET_MESSAGES, _get_of(wire), 60_000)
    for _ in range(40):
        wire.sock.sendall(frame)

    with BrokerWire(mq.broker(1).address) as other:
        assert other.send("lone", b"x").errCode == 200
    sizes = []
    for _ in range(40):
        reply = envelope.decode_response(wire.receive(9), methods.GET_MESSAGES)
        sizes.append(len(bodies(reply)))
    assert sizes == [1] * 40


def _get_of(wire: BrokerWire) -> object:
    return _pb.GetMessageRequestC2B(
        clientId=wire.client_id, partitionId=0, groupName=wire.group, topicName="lone"
    )


def test_ordered_refusals_come_so_often_and_change_nothing(
    mq: EmbeddedTubeMQ, wire: BrokerWire, master: Wire
) -> None:
    mq.broker(1).refuse(methods.SEND_MESSAGE.id, 500, "out of order", times=2)
    mq.refuse(methods.REGISTER_CONSUMER.id, 450, "not you")

    codes = [wire.send("lone", b"x").errCode for _ in range(3)]
    assert codes == [500, 500, 200]
    assert mq.broker(1).store("lone").ends.memory == 28
    player = Player(master)
    assert (player.register().errMsg, player.register().errCode) == ("not you", 200)

    mq.broker(1).refuse(methods.REGISTER_PARTITION.id, 410, times=9)
    assert wire.register("lone").errCode == 410
    mq.broker(1).refuse(methods.REGISTER_PARTITION.id, 410, times=0)
    assert wire.register("lone").errCode == 200


def test_ordered_exceptions_are_named(mq: EmbeddedTubeMQ, wire: BrokerWire, master: Wire) -> None:
    mq.broker(1).fail(methods.GET_MESSAGES.id, "java.lang.OutOfMemoryError", "heap", fatal=True)
    mq.fail(methods.REGISTER_PRODUCER.id, "java.lang.NullPointerException")

    with pytest.raises(RemoteException, match="heap"):
        wire.get("lone")
    assert wire.get("lone").errCode == 411
    register = _pb.RegisterRequestP2M(clientId="p", brokerCheckSum=-1, hostName="h")
    with pytest.raises(RemoteException, match="NullPointerException"):
        master.call(methods.REGISTER_PRODUCER, register)


def test_events_get_lost_come_twice_or_not_at_all(mq: EmbeddedTubeMQ, master: Wire) -> None:
    player = Player(master)
    player.register()
    player.beat()
    mq.withhold_balance()
    mq.balance()
    assert not player.beat().HasField("event")

    mq.withhold_balance(withhold=False)
    mq.lose_events()
    mq.balance()
    assert [player.beat().HasField("event") for _ in range(2)] == [False, False]

    other = Player(master, "c2", "other")
    other.register()
    other.beat()
    mq.repeat_events()
    mq.balance()
    assert [other.beat().HasField("event") for _ in range(3)] == [True, True, False]


def test_a_renewed_broker_list_is_sent_again(mq: EmbeddedTubeMQ, master: Wire) -> None:
    base = {"clientId": "p", "hostName": "h"}
    first = master.call(
        methods.REGISTER_PRODUCER, _pb.RegisterRequestP2M(**base, brokerCheckSum=-1)
    )

    def beat() -> int:
        message = _pb.HeartRequestP2M(**base, brokerCheckSum=first.brokerCheckSum)
        return len(master.call(methods.HEARTBEAT_PRODUCER, message).brokerInfos)

    assert beat() == 0
    mq.renew_broker_list()
    assert beat() == 1


def test_empty_batches_and_strange_waits(mq: EmbeddedTubeMQ, wire: BrokerWire) -> None:
    wire.send_all("lone", 2)
    wire.register("lone")
    mq.broker(1).empty_next()
    mq.broker(1).hint_wait(-77)

    empty = wire.get("lone", lastPackConsumed=True)
    assert (empty.errCode, empty.currOffset, len(empty.messages)) == (200, 0, 0)
    assert len(wire.get("lone", lastPackConsumed=True).messages) == 2
    assert wire.get("lone", lastPackConsumed=True).errCode == 404  # at the end nothing was scanned

    wire.register("lone", 0, currOffset=0, filterCondStr=["none"], qryPriorityId=303)
    assert wire.get("lone").minLimitTime == -77
    mq.broker(1).hint_wait(None)
    wire.register("lone", 0, currOffset=0, filterCondStr=["none"], qryPriorityId=303)
    assert wire.get("lone").minLimitTime >= 0
