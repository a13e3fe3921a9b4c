"""Frames and headers: what is written is read, in any cuts; garbage costs bounded memory."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_client import errors
from rocketmq_client._wire.commands import Command, decode_command, encode_command
from rocketmq_client._wire.framing import CommandDecoder, ReplyDecoder

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COMMANDS = st.builds(
    Command,
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    fields=st.dictionaries(TEXT, TEXT, max_size=5),
    body=st.binary(max_size=100),
    flag=st.integers(0, 3),
    remark=st.none() | TEXT.filter(bool),
    language=st.sampled_from(["JAVA", "PYTHON", "RUST"]),
    version=st.integers(0, 2**15 - 1),
    binary=st.booleans(),
)


def decoded(chunks, limit=1_000_000) -> list[Command]:
    decoder = CommandDecoder(limit)
    commands = []
    for chunk in chunks:
        decoder.receive_data(chunk)
        commands += list(iter(decoder.next_command, None))
    return commands


@settings(deadline=None)
@given(st.lists(COMMANDS, max_size=4), st.data())
def test_commands_survive_any_cuts(commands, data) -> None:
    stream = b"".join(map(encode_command, commands))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert decoded([stream]) == commands
    assert decoded(pieces) == commands
    assert decoded(stream[i : i + 1] for i in range(len(stream))) == commands


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(4, 200))
def test_garbage_is_commands_or_a_violation_in_bounded_memory(garbage, limit) -> None:
    decoder = CommandDecoder(limit)
    try:
        for at in range(0, len(garbage), 7):
            decoder.receive_data(garbage[at : at + 7])
            while decoder.next_command() is not None:
                pass
    except errors.ProtocolViolation:
        decoder.receive_data(garbage)
        with pytest.raises(errors.ProtocolViolation):
            decoder.next_command()
    assert len(decoder._buffer) <= limit + 4 + 7


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_a_header_of_garbage_is_a_violation_or_a_command(header) -> None:
    for mark in (0, 1):
        frame = bytes((mark,)) + len(header).to_bytes(3, "big") + header
        try:
            assert isinstance(decode_command(frame), Command)
        except errors.ProtocolViolation:
            pass


@settings(deadline=None)
@given(COMMANDS, st.data())
def test_a_flipped_byte_is_a_violation_or_a_command(command, data) -> None:
    frame = bytearray(encode_command(command)[4:])
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert isinstance(decode_command(bytes(frame)), Command)
    except errors.ProtocolViolation:
        pass


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"HTTP/1.1 400 Bad Request", "is this a RocketMQ port, and is it TLS or plain"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "is this a RocketMQ port, and is it TLS or plain"),
        (b"\x00\x00\x00\x03", "announces 3 bytes"),
        (b"\x7f\xff\xff\xff", "announces 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "announces -1 bytes"),
        (b"\x00\x00\x00\x10\x07", "unknown form of header 7"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x09abcd", "a header of 9 bytes in a frame of 8"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x02[]", "not a JSON object"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x02{'", "not JSON"),
    ],
)
def test_another_protocol_is_detected_early(stream, why) -> None:
    with pytest.raises(errors.ProtocolViolation, match=why):
        decoded([stream], 16 * 1024 * 1024)


def test_headers_take_numbers_and_refuse_other_shapes() -> None:
    def frame(header) -> bytes:
        text = json.dumps(header).encode()
        return bytes(1) + len(text).to_bytes(3, "big") + text

    command = decode_command(frame({"code": 5, "extFields": {"n": 7, "b": True, "x": None}}))
    assert (command.code, command.opaque, command.fields) == (5, 0, {"n": "7", "b": "true"})
    for wrong in ({"code": "5"}, {"code": 1 << 40}, {"extFields": [1]}, {"remark": 5}):
        with pytest.raises(errors.ProtocolViolation):
            decode_command(frame(wrong))
    with pytest.raises(errors.ProtocolViolation):
        decode_command(bytes(1) + (90_000).to_bytes(3, "big") + b'{"a":' + b"[" * 89_995)


def test_requests_of_the_server_answer_nothing() -> None:
    decoder = ReplyDecoder()
    decoder.receive_data(encode_command(Command(40, 7, {}, flag=2)))
    decoder.receive_data(encode_command(Command(0, 7, {}, flag=1)))

    assert decoder.next_frame().serial == -1
    assert decoder.next_frame().serial == 7
    assert decoder.next_frame() is None
