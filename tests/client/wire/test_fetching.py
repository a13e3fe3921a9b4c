"""Replies that are parsed late: the same message, the same errors, no false early result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client import _pb, errors
from tubemq_client._wire import envelope, methods
from tubemq_client._wire.fetching import FetchReply, size_if_delivering, whole
from tubemq_client._wire.framing import FrameDecoder

pytestmark = pytest.mark.timeout(60)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
records = st.builds(
    _pb.TransferedMessage,
    messageId=st.none() | int64s,
    checkSum=st.none() | int32s,
    payLoadData=st.none() | st.binary(max_size=80),
    flag=st.none() | int32s,
)
replies = st.builds(
    _pb.GetMessageResponseB2C,
    success=st.none() | st.booleans(),
    errCode=st.none() | st.sampled_from((200, 404, 0)) | int32s,
    errMsg=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    messages=st.lists(records, max_size=4),
    currOffset=st.none() | int64s,
    maxOffset=st.none() | int64s,
).map(lambda reply: reply.SerializePartialToString())
delivering = st.binary(max_size=40).map(b"\x08\x01\x10\xc8\x01".__add__)


@st.composite
def garbled(draw: st.DrawFn) -> bytes:
    """Return a reply with one part replaced, removed or doubled."""
    data = draw(replies)
    start = draw(st.integers(0, len(data)))
    stop = draw(st.integers(start, len(data)))
    instead = draw(st.sampled_from((b"", data[start:stop] * 2)) | st.binary(max_size=12))
    return data[:start] + instead + data[stop:]


def payload(data: bytes) -> bytes:
    """Return the frame payload of a reply with this business message."""

    class Ready:
        def SerializeToString(self) -> bytes:  # noqa: N802
            return data

    decoder = FrameDecoder()
    decoder.receive_data(envelope.encode_response(1, methods.GET_MESSAGES.id, Ready()))
    frame = decoder.next_frame()
    assert frame is not None
    return frame.payload


def outcome(read) -> object:
    try:
        return read()
    except errors.ProtocolViolation as error:
        return str(error)


@given(replies | garbled() | delivering | st.binary(max_size=60))
def test_late_parsing_equals_immediate_parsing(data):
    frame = payload(data)
    at_once = outcome(lambda: envelope.decode_response(frame, methods.GET_MESSAGES))
    late = envelope.decode_response(frame, methods.GET_MESSAGES_UNPARSED)
    parsed = outcome(lambda: whole(late))
    if size_if_delivering(late) and not isinstance(parsed, str):
        assert (parsed.success, parsed.errCode) == (True, 200)
    if isinstance(parsed, str) and "takes back" in parsed:
        assert not (at_once.success and at_once.errCode == 200)
    else:
        assert parsed == at_once


def test_a_delivery_is_recognised_by_its_beginning():
    reply = _pb.GetMessageResponseB2C(success=True, errCode=200, currOffset=28)
    data = reply.SerializeToString()
    assert FetchReply(data).size_if_delivering == len(data)
    assert repr(FetchReply(data)) == f"<FetchReply of {len(data)} bytes>"


@pytest.mark.parametrize(
    "fields",
    [{"success": False, "errCode": 404}, {"success": True, "errCode": 0}, {"success": False}],
)
def test_no_other_reply_is_recognised_as_a_delivery(fields):
    reply = _pb.GetMessageResponseB2C(**fields)
    assert FetchReply(reply.SerializePartialToString()).size_if_delivering == 0
    assert size_if_delivering(reply) == 0, "a message that was parsed already promises nothing"


def test_a_reply_that_contradicts_its_beginning_is_refused():
    first = _pb.GetMessageResponseB2C(success=True, errCode=200).SerializeToString()
    then = _pb.GetMessageResponseB2C(success=False, errCode=404).SerializeToString()
    with pytest.raises(errors.ProtocolViolation, match="takes back"):
        whole(FetchReply(first + then))
