"""Recorded answers of genuine servers: decoders read them in any cuts, the embedded server repeats
them.

Recordings are made by `tests/rocketmq/dialogue.py`. Where a line differs from the embedded server,
which imitates 5.5.0, the difference is named here.
"""

from __future__ import annotations

import base64
import json
from functools import cache

import pytest

from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.framing import CommandDecoder
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.rocketmq import dialogue

LINES = ("4.9.7", "5.5.0")
ASKED = [question for question in dialogue.QUESTIONS if question.to]

ELSEWISE = {
    ("4.9.7", "send no such queue"): "1 instead of 29",
    ("4.9.7", "pull of no such queue"): "1 instead of 29",
    ("4.9.7", "topic config"): "no such request",
    ("4.9.7", "pull all"): "the batch's own properties follow those of its records",
    ("4.9.7", "pull from the middle"): "as above",
    ("4.9.7", "pull by tag"): "as above",
}


@cache
def recorded(line: str) -> dict[str, bytes]:
    text = (dialogue.FOLDER / f"{line}.json").read_text()
    return {name: base64.b64decode(frame) for name, frame in json.loads(text).items()}


def decoded(stream: bytes, step: int) -> list[Command]:
    decoder = CommandDecoder()
    commands = []
    for at in range(0, len(stream), step):
        decoder.receive_data(stream[at : at + step])
        commands += list(iter(decoder.next_command, None))
    return commands


@pytest.fixture(scope="module")
def answers() -> dict[str, Command]:
    with EmbeddedRocketMQ() as mq:
        address = mq.do(lambda broker: broker.address)
        replies = list(dialogue.converse(mq.name_server, address))
    return {item.question.name: item.answer for item in replies}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("step", [1, 7, 1_000_000])
def test_recordings_are_read_in_any_cuts(line, step) -> None:
    frames = recorded(line)
    stream = b"".join(frames.values())

    commands = decoded(stream, step)

    assert [answer.is_answer for answer in commands] == [True] * len(frames)
    assert commands == decoded(stream, len(stream))


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("question", ASKED, ids=lambda question: question.name)
def test_the_embedded_server_answers_like_genuine_ones(line, question, answers) -> None:
    (genuine,) = decoded(recorded(line)[question.name], 1_000_000)
    expected = dialogue.comparable(question, genuine)
    parts = dialogue.comparable(question, answers[question.name])

    if (line, question.name) in ELSEWISE:
        assert parts != expected, "the difference is gone: remove it from the list"
    else:
        assert parts == expected
