"""The RPC envelope: both ends agree, padding is tolerated, failures name their side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import _pb, errors
from tubemq_client._wire import envelope, methods
from tubemq_client._wire.framing import FrameDecoder

pytestmark = pytest.mark.timeout(60)

serials = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def unframe(data: bytes) -> tuple[int, bytes]:
    decoder = FrameDecoder()
    decoder.receive_data(data)
    frame = decoder.next_frame()
    assert frame is not None
    return frame


def get_reply(**fields):
    return _pb.GetMessageResponseB2C(success=True, errCode=200, **fields)


def reply_payload(**fields) -> bytes:
    return unframe(envelope.encode_response(1, methods.GET_MESSAGES.id, get_reply(**fields)))[1]


@given(serials, st.integers(1, 2**63 - 1), texts, texts, st.integers(-(2**31), 2**31 - 1))
def test_a_server_reads_what_the_client_writes(serial, timeout_ms, client, topic, partition):
    method = methods.GET_MESSAGES
    message = _pb.GetMessageRequestC2B(
        clientId=client, partitionId=partition, groupName="g", topicName=topic
    )
    got_serial, payload = unframe(envelope.encode_request(serial, method, message, timeout_ms))
    call = envelope.decode_request(payload)
    assert got_serial == serial
    assert call == (method.id, method.service, timeout_ms, 3, message.SerializeToString())
    assert method.request.FromString(call.body) == message


@given(serials, st.lists(st.binary(max_size=300), max_size=5), st.integers(0, 2**62), texts)
def test_the_client_reads_what_a_server_writes(serial, bodies, offset, text):
    message = get_reply(errMsg=text, currOffset=offset)
    for index, body in enumerate(bodies):
        message.messages.add(messageId=index, checkSum=0, payLoadData=body, flag=0)
    frame = envelope.encode_response(serial, methods.GET_MESSAGES.id, message)
    got_serial, payload = unframe(frame)
    assert got_serial == serial
    assert envelope.decode_response(payload, methods.GET_MESSAGES) == message


@given(st.lists(st.tuples(serials, st.binary() | st.integers(7_900, 20_000).map(bytes))))
def test_calls_made_together_are_the_same_bytes_as_one_by_one(calls):
    method = methods.SEND_MESSAGE
    expected = [envelope.encode_request(serial, method, data, 500) for serial, data in calls]
    numbers, requests = [serial for serial, _ in calls], [data for _, data in calls]
    frames = envelope.encode_requests(numbers, method, requests, 500)
    assert frames == b"".join(expected)


receipts = st.fixed_dictionaries(
    {},
    optional={
        "success": st.booleans(),
        "errCode": st.integers(-(2**31), 2**31 - 1),
        "errMsg": texts,
        "requireAuth": st.booleans(),
        "messageId": st.integers(-(2**63), 2**63 - 1),
        "appendTime": st.integers(-(2**63), 2**63 - 1),
        "appendOffset": st.integers(-(2**63), 2**63 - 1),
    },
)


@given(receipts, st.binary(max_size=40) | st.just(b"\xa2\x06\x03new") | st.just(b"\xa0\x06\x01"))
def test_small_replies_equal_those_of_the_slow_path(fields, beside):
    """Missing and unknown fields included. Bytes after the envelope take the slow path."""
    message = _pb.SendMessageResponseB2P(**fields).SerializePartialToString() + beside
    payload = unframe(envelope.encode_response(1, methods.SEND_MESSAGE.id, Raw(message)))[1]

    def read(payload):
        try:
            return envelope.decode_response(payload, methods.SEND_MESSAGE)
        except errors.ProtocolViolation as violation:
            return str(violation)

    assert read(payload) == read(payload + b"\0")


class Raw(bytes):
    """Bytes in place of a message."""

    def SerializeToString(self):  # noqa: N802
        return bytes(self)


@given(texts, texts, st.booleans())
def test_exceptions_keep_name_and_detail(name, detail, fatal):
    _, payload = unframe(envelope.encode_exception(4, name, detail, fatal=fatal))
    with pytest.raises(errors.RemoteException) as caught:
        envelope.decode_response(payload, methods.GET_MESSAGES, "b1")
    assert (caught.value.name, caught.value.detail) == (name, detail)


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.inlong.tubemq.corerpc.exception.StandbyException",
        "com.apache.tubemq.corerpc.exception.StandbyException",
        "com.tencent.tubemq.corerpc.exception.StandbyException",
    ],
)
def test_standby_is_known_under_every_package_name(name):
    _, payload = unframe(envelope.encode_exception(1, name, "m2 is not master now."))
    with pytest.raises(errors.StandbyMaster):
        envelope.decode_response(payload, methods.HEARTBEAT_PRODUCER)


@pytest.mark.parametrize("fatal", [True, False])
def test_other_exceptions_do_not_mean_a_standby(fatal):
    name = "StandbyException" if fatal else "java.lang.reflect.InvocationTargetException"
    _, payload = unframe(envelope.encode_exception(1, name, "", fatal=fatal))
    with pytest.raises(errors.RemoteException) as caught:
        envelope.decode_response(payload, methods.HEARTBEAT_PRODUCER)
    assert not isinstance(caught.value, errors.StandbyMaster)


def test_an_unknown_status_is_a_failure():
    payload = b"\x02\x08\x01" + b"\x02\x08\x07" + b"\x03\x0a\x01E"
    with pytest.raises(errors.RemoteException, match="E"):
        envelope.decode_response(payload, methods.GET_MESSAGES)


@given(st.integers(0, 9))
def test_zeros_after_the_envelope_are_ignored(count):
    padding = bytes(count)
    message = envelope.decode_response(reply_payload(errMsg="OK") + padding, methods.GET_MESSAGES)
    assert message.errMsg == "OK"
    request = _pb.CloseRequestP2M(clientId="c")
    _, payload = unframe(envelope.encode_request(1, methods.CLOSE_PRODUCER, request, 1))
    assert envelope.decode_request(payload + padding).method_id == methods.CLOSE_PRODUCER.id


def test_fields_in_another_order_are_accepted():
    data = get_reply(currOffset=28).SerializeToString()
    body = b"\x12" + bytes([len(data)]) + data + b"\x08\x11"
    payload = b"\x02\x08\x01" + b"\x02\x08\x00" + bytes([len(body)]) + body
    assert envelope.decode_response(payload, methods.GET_MESSAGES).currOffset == 28


def test_an_empty_business_message_lacks_its_required_fields():
    payload = b"\x02\x08\x01" + b"\x02\x08\x00" + b"\x04\x08\x11\x12\x00"
    with pytest.raises(errors.ProtocolViolation, match=r"errCode|success"):
        envelope.decode_response(payload, methods.GET_MESSAGES)


def test_a_reply_to_another_method_is_a_violation():
    with pytest.raises(errors.ProtocolViolation, match=r"method 17 for commit offset \(18\)"):
        envelope.decode_response(reply_payload(), methods.COMMIT_OFFSET)


@given(st.data())
def test_a_cut_reply_is_a_violation(data):
    payload = reply_payload(errMsg="x" * 300)
    size = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(errors.ProtocolViolation):
        envelope.decode_response(payload[:size], methods.GET_MESSAGES)


@given(st.binary(max_size=60))
def test_garbage_is_a_violation_or_an_answer(garbage):
    for read in (
        lambda: envelope.decode_response(garbage, methods.GET_MESSAGES),
        lambda: envelope.decode_request(garbage),
    ):
        try:
            read()
        except (errors.ProtocolViolation, errors.RemoteException):
            continue


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_call_without_time_is_refused_because_servers_drop_it_silently(timeout_ms):
    with pytest.raises(ValueError, match="timeout_ms must be positive"):
        envelope.encode_request(
            1, methods.CLOSE_PRODUCER, _pb.CloseRequestP2M(clientId="c"), timeout_ms
        )


def test_a_request_without_timeout_reads_as_zero():
    payload = b"\x02\x08\x00" + b"\x02\x08\x01" + b"\x02\x08\x04"
    assert envelope.decode_request(payload) == (4, 1, 0, 0, b"")


def test_methods_are_legal_under_their_own_service_only():
    for method in methods.BY_ID.values():
        assert methods.is_legal(method.service, method.id)
    assert methods.is_legal(methods.BROKER_READ_SERVICE, methods.SEND_MESSAGE.id)
    assert not methods.is_legal(methods.MASTER_SERVICE, methods.SEND_MESSAGE.id)
    assert not methods.is_legal(9, methods.SEND_MESSAGE.id)
