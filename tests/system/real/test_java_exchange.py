"""Records cross to and from the published Java client unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.real import topics
from tools.benchmarks.java_client import run_java, run_java_reader
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client.model import ClientSettings, Message, OffsetRange
from tubemq_client.sync import Metadata, Producer, RangeReader

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

EXCHANGE = Path(__file__).with_name("java") / "Exchange.java"
COUNT = 20


def read_all(settings: ClientSettings, topic: str) -> list[Message]:
    with Metadata(settings) as metadata:
        ends = metadata.ends(topic, "exchange", stable=False)
    messages: list[Message] = []
    with RangeReader(settings, group="exchange") as reader:
        for partition, end in sorted(ends.items(), key=lambda item: item[0]):
            for batch in reader.read(OffsetRange(partition, 0, end.max_offset)):
                messages += batch.messages()
    return messages


def test_what_java_sends_is_read_here(genuine: GenuineTubeMQ, settings: ClientSettings) -> None:
    topic = topics.FROM_JAVA.name
    output = run_java(genuine, EXCHANGE, "send", genuine.masters, topic, str(COUNT))
    sent = [line.removeprefix("sent ") for line in output.splitlines()]
    found = sorted(
        (message.body.decode(), message.stream_id, message.msg_time, message.attributes)
        for message in read_all(settings, topic)
    )
    assert found == sorted(
        (body, f"stream{number % 2}", f"20260102030{number % 10}", {"k": f"v{number}"})
        for number, body in enumerate(sent)
    )
    assert len(found) == COUNT


def test_what_is_sent_here_is_read_by_java(
    genuine: GenuineTubeMQ, settings: ClientSettings
) -> None:
    topic = topics.TO_JAVA.name
    expected = []
    with Producer(settings) as producer:
        for number in range(COUNT):
            body = f"from python {number} é漢"
            plain = number % 3 == 0
            producer.send(
                topic,
                body.encode(),
                attributes=None if plain else {"k": f"v{number}"},
                stream_id=None if plain else "beta",
                msg_time=None if plain else "202611210900",
            )
            facts = ("null", "null", "null") if plain else ("beta", "202611210900", f"v{number}")
            expected.append("\t".join((body, *facts)))
    output = run_java(genuine, EXCHANGE, "receive", genuine.masters, topic, str(COUNT))
    assert sorted(output.splitlines()) == sorted(expected)
    total = sum(len(line.partition("\t")[0].encode()) for line in expected)
    rate = run_java_reader(genuine, topic, COUNT, passes=1)
    assert (rate["records"], rate["bytes"]) == (COUNT, total)
