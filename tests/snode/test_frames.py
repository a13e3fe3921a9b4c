"""Frames as a node forwards them: cut anywhere, renumbered, and without escaped keys."""

from __future__ import annotations

import json
import os
import random

from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client import errors
from rocketmq_client._wire.commands import ANSWER, Command, encode_command
from rocketmq_snode.frames import (
    FrameCutter,
    command_of,
    read_answer,
    read_head,
    renumbered,
)

NUMBERS = st.integers(-(2**31), 2**31 - 1)
FIELDS = st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=20), max_size=6)


@st.composite
def commands(draw):
    return Command(draw(st.integers(0, 999)), draw(NUMBERS), draw(FIELDS), draw(st.binary()))


def framed(header: bytes, body: bytes = b"") -> bytes:
    size = 4 + len(header) + len(body)
    return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


@given(commands(), NUMBERS)
def test_a_renumbered_frame_is_the_same_request_under_another_number(command, number) -> None:
    raw = encode_command(command)
    head = read_head(raw)
    if head is None:  # re-encoded from values
        assert any("opaque" in text for pair in command.fields.items() for text in pair)
        return
    assert (head.code, head.opaque, head.fields) == (command.code, command.opaque, command.fields)
    assert command_of(renumbered(raw, head.at, head.to, number)) == command._replace(opaque=number)


@given(commands(), st.integers(0, 2**31 - 1))
def test_an_answer_is_paired_and_renumbered(command, number) -> None:
    answer = command._replace(flag=ANSWER, opaque=abs(command.opaque) % 2**31, remark="it is so")
    raw = encode_command(answer)
    found = read_answer(raw)
    if found is not None:
        assert (found.code, found.opaque) == (answer.code, answer.opaque)
        again = renumbered(raw, found.at, found.to, number)
        assert command_of(again) == answer._replace(opaque=number)


@given(st.lists(commands(), max_size=5), st.randoms(use_true_random=False))
def test_any_cut_gives_the_same_frames(found, chance) -> None:
    frames = [encode_command(command) for command in found]
    stream, cutter, seen = b"".join(frames), FrameCutter(2**20), []
    while stream:
        size = chance.randint(1, len(stream))
        seen += cutter.cut(stream[:size])
        stream = stream[size:]
    assert seen == frames


def test_headers_that_brokers_may_read_differently_are_not_forwarded() -> None:
    sound = b'{"code":11,"extFields":{"topic":"a"},"flag":0,"language":"JAVA","opaque":5}'
    assert read_head(framed(sound)) is not None
    for header in (
        b'{"code":11,"opaque":5,"Opaque":6}',
        b'{"code":11,"opaque":5,"opaque":6}',
        b'{"code":11,"opaque":5,"\\u006fpaque":6}',
        b'{"code":11,"opaque":5,"ext_fields":{"topic":"b"}}',
        b'{"code":11,"opaque":5.0}',
        b'{"code":11,"opaque":99999999999}',
        b'{"code":11,"opaque" :5}',
        b'{"code":11,"extFields":{"opaque":6},"opaque":5}',
        b'{"code":"11","opaque":5}',
        b'{"code":11,"opaque":5} ',
        b"[11]",
        b"{" * 5_000,
    ):
        assert read_head(framed(header)) is None, header


def test_invalid_frames_end_the_stream_and_keep_nothing() -> None:
    for garbage in (b"GET / HTTP/1.1\r\n", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x09\x07abcdefgh"):
        cutter = FrameCutter(2**20)
        good = encode_command(Command(11, 1, {}))
        assert cutter.cut(good + garbage) == [good]
        assert isinstance(cutter.failure, errors.ProtocolViolation)
        assert cutter.cut(good) == []


def test_fuzzed_headers_are_refused_or_forwarded_unchanged() -> None:
    """`SNODE_FUZZ` frames; a hundred thousand by hand."""
    chance = random.Random(16)
    fields = {"topic": "orders", "queueId": "0", "bname": "broker-a", "i": "a\x01b\x02"}
    sound = encode_command(Command(310, 77, fields, b"body" * 10))
    for _ in range(int(os.environ.get("SNODE_FUZZ", "5000"))):
        frame = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            frame[chance.randrange(8, len(frame))] = chance.randrange(256)
        raw = bytes(frame)
        head = read_head(raw)
        if head is None:
            continue
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[5:8], "big")])
        assert (head.code, head.opaque) == (header["code"], header["opaque"])
        again = read_head(renumbered(raw, head.at, head.to, 123_456))
        assert again is not None
        assert again[:1] + again[2:4] == head[:1] + head[2:4]
        assert again.opaque == 123_456
