"""The same questions to any server, and the comparable parts of its answers.

`python -m tests.rocketmq.dialogue 5.5.0` (with loopback only) asks a genuine line and rewrites its
recording; tests repeat the questions to the embedded server and compare. Frames are recorded whole,
so they also feed the decoders.
"""

from __future__ import annotations

import base64
import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rocketmq_client._wire import codes
from rocketmq_client._wire.batches import BatchElement, encode_batch
from rocketmq_client._wire.bodies import Subscription, heartbeat_body
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client._wire.framing import CommandDecoder
from rocketmq_client._wire.json_text import read_json
from rocketmq_client._wire.properties import decode_properties
from rocketmq_client._wire.records import parse_records
from rocketmq_client.model import Address

FOLDER = Path(__file__).parent / "recorded"
TOPIC = "dialogue"


class Question(NamedTuple):
    name: str
    to: str
    code: int
    fields: dict[str, Any]
    body: bytes = b""


def _send(name: str, queue: int, body: bytes, tags: str = "", **changes: Any) -> Question:
    properties = f"UNIQ_KEY\x01{name}\x02WAIT\x01true\x02" + (f"TAGS\x01{tags}\x02" if tags else "")
    fields = {
        "a": "p",
        "b": TOPIC,
        "c": "TBW102",
        "d": 4,
        "e": queue,
        "f": 0,
        "g": 1_000,
        "h": 7,
        "i": properties,
        "j": 0,
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    return Question(f"send {name}", "broker", 310, fields | changes, body)


def _pull(name: str, offset: int, **changes: Any) -> Question:
    fields = {
        "consumerGroup": "dialogue",
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 0,
        "subscription": "*",
        "expressionType": "TAG",
        "bname": "broker-a",
    }
    return Question(f"pull {name}", "broker", 11, fields | changes)


def _end(name: str, code: int, **changes: Any) -> Question:
    return Question(name, "broker", code, {"topic": TOPIC, "queueId": 0} | changes)


_BATCH = encode_batch([BatchElement(n, b"batch %d" % n, b"TAGS\x01BB\x02") for n in range(3)])
_OFFSET = {"consumerGroup": "dialogue", "topic": TOPIC, "queueId": 0}
_HEARTBEAT = heartbeat_body("me@1", (), {"members": [Subscription(TOPIC)]}, 1)
_WAIT = Question("wait", "", 0, {})

QUESTIONS: tuple[Question, ...] = (
    Question("brokers", "name server", 106, {}),
    Question("route of nothing", "name server", 105, {"topic": "nothing"}),
    Question(
        "create",
        "broker",
        17,
        {
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        },
    ),
    _WAIT,
    Question("route", "name server", 105, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}),
    _pull("of an empty queue", 0),
    _pull("beyond an empty queue", 5),
    _end("max of an empty queue", 30),
    _send("one", 0, b"first", "Aa"),
    _send("two", 0, b"second", "BB"),
    _send("elsewhere", 1, b"third"),
    _send("no such queue", 9, b"x"),
    _send("no such topic", 0, b"x", b="nothing"),
    _send("batch", 0, _BATCH, m="true")._replace(code=320),
    _WAIT,
    _pull("all", 0),
    _pull("from the middle", 3),
    _pull("one", 1, maxMsgNums=1),
    _pull("by tag", 0, subscription="Aa"),
    _pull("by a tag that none has", 0, subscription="absent"),
    _pull("at the end", 5),
    _pull("beyond the end", 9),
    _pull("without subscription", 0, sysFlag=0),
    _pull("of no such queue", 0, queueId=9),
    _pull("of no such topic", 0, topic="nothing"),
    _end("max", 30),
    _end("min", 31),
    _end("max of no such queue", 30, queueId=9),
    _end("search before all", 29, timestamp=1),
    Question("offset of a group that never committed", "broker", 14, _OFFSET),
    Question("commit", "broker", 15, _OFFSET | {"commitOffset": 4}),
    Question("committed", "broker", 14, _OFFSET),
    Question("members of nothing", "broker", 38, {"consumerGroup": "members"}),
    Question("heartbeat", "broker", 34, {}, _HEARTBEAT),
    Question("members", "broker", 38, {"consumerGroup": "members"}),
    Question("leave", "broker", 35, {"clientID": "me@1", "consumerGroup": "members"}),
    Question("members afterwards", "broker", 38, {"consumerGroup": "members"}),
    Question("runtime", "broker", 28, {}),
    Question("topic config", "broker", 351, {"topic": TOPIC}),
    Question("no such request", "broker", 9_999, {}),
    Question("put", "name server", 100, {"namespace": "n", "key": "k", "value": "v"}),
    Question("get", "name server", 101, {"namespace": "n", "key": "k"}),
    Question("list", "name server", 219, {"namespace": "n"}),
    Question("get nothing", "name server", 101, {"namespace": "n", "key": "other"}),
    Question("delete", "broker", 215, {"topic": TOPIC}),
    Question("delete at the name server", "name server", 216, {"topic": TOPIC}),
)


class Said(NamedTuple):
    question: Question
    frame: bytes
    answer: Command


def converse(name_server: Address, broker: Address) -> Iterator[Said]:
    """Ask everything in order."""
    with (
        socket.create_connection(name_server, 10) as one,
        socket.create_connection(broker, 10) as two,
    ):
        ask = {"name server": _asker(one), "broker": _asker(two)}
        for number, question in enumerate(QUESTIONS, 1):
            if question is _WAIT:
                time.sleep(1)  # indexes and routes follow
                continue
            frame, answer = ask[question.to](number, question)
            yield Said(question, frame, answer)


def _asker(connection: socket.socket) -> Callable[[int, Question], tuple[bytes, Command]]:
    def ask(number: int, question: Question) -> tuple[bytes, Command]:
        fields = {name: str(value) for name, value in question.fields.items()}
        connection.sendall(encode_command(Command(question.code, number, fields, question.body)))
        while True:
            frame = _frame(connection)
            decoder = CommandDecoder()
            decoder.receive_data(frame)
            command = decoder.next_command()
            assert command is not None
            if command.is_answer and command.opaque == number:
                return frame, command

    return ask


def _frame(connection: socket.socket) -> bytes:
    head = _exactly(connection, 4)
    return head + _exactly(connection, int.from_bytes(head, "big"))


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = connection.recv(count - len(received))
        assert piece, "the server closed the connection"
        received += piece
    return received


_PULLED = ("nextBeginOffset", "minOffset", "maxOffset")
_STATES = {0, 19, 20, 21}


def comparable(question: Question, answer: Command) -> dict[str, Any]:
    """Return the parts that two servers must have in common: codes, offsets, records, the shape of
    tables."""
    parts: dict[str, Any] = {"code": answer.code}
    for name in ("offset", "queueOffset", "queueId", "value", *_PULLED):
        if name in answer.fields:
            parts[name] = answer.fields[name]
    if question.code == codes.PULL_MESSAGE.code and answer.code in _STATES:
        parts["remark"] = answer.remark
        parts["records"] = [
            (record.queue_offset, record.flag, record.body, _own(record.properties))
            for record in parse_records(answer.body)
        ]
    elif answer.body and answer.code == 0:
        parts["body"] = _shape(question, read_json(answer.body, question.name))
    return parts


def _own(properties: bytes) -> dict[str, str]:
    """Return the properties that the producer gave."""
    pairs = decode_properties(properties)
    return {name: pairs[name] for name in ("TAGS", "UNIQ_KEY") if name in pairs}


_RUNTIME = (
    *("commitLogMaxOffset", "remainHowManyDataToFlush", "bootTimestamp", "runtime"),
    *("dispatchBehindBytes", "pageCacheLockTimeMills"),
)


def _shape(question: Question, body: dict[str, Any]) -> Any:
    if question.name == "runtime":
        return {name: name in body["table"] for name in _RUNTIME}
    if question.name == "route":
        broker = body["brokerDatas"][0]
        queues = {key: body["queueDatas"][0][key] for key in ("readQueueNums", "perm")}
        return [broker["brokerName"], sorted(broker["brokerAddrs"]), queues]
    if question.name == "brokers":
        return [sorted(body["brokerAddrTable"]), body["clusterAddrTable"]]
    return body


def record(line: str) -> None:
    """Ask a genuine server and store its answers."""
    from tools.devkit.rocketmq.genuine import GenuineRocketMQ

    with GenuineRocketMQ("4.9.7" if line == "4.9.7" else "5.5.0") as mq:
        answers = list(converse(mq.name_server, mq.addresses["broker-a"]))
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(
        {item.question.name: base64.b64encode(item.frame).decode() for item in answers}, indent=1
    )
    (FOLDER / f"{line}.json").write_text(text + "\n")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        record(argument)
