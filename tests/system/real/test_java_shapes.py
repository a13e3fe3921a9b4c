"""Records of every shape pass to and from the published Java client: attributes, filters,
checksums, and sizes up to the last byte of a topic's limit.

Both clients send the same shapes to two topics, and both must receive everything that both sent,
but for the stream that both filter out. The larger topic gets a separate limit at run time, and is
read from files: in memory a genuine broker skips records beyond 1 MiB and 10 KiB.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import zlib
from pathlib import Path

import pytest

from tests.system.behaviour.sites import eventually
from tests.system.real import topics
from tools.benchmarks.java_client import run_java
from tools.devkit.patience import PATIENCE
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client import (
    ClientSettings,
    Consumer,
    Message,
    Metadata,
    OffsetRange,
    Producer,
    ProducerSettings,
    RangeReader,
    Record,
    errors,
)
from tubemq_client.admin import AdminClient

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SHAPES = Path(__file__).with_name("java") / "Shapes.java"
TOPIC, LARGE = topics.SHAPES.name, topics.SHAPES_LARGE.name
MIB = 2**20
SIZES = (1, 27, 1_000, 65_535, 65_536, 300_001, 512, 700_000)
WANTED = ("s0", "s2")
WAIT_S = 60.0

Facts = tuple[str, ...]


def body(number: int, size: int) -> bytes:
    pattern = bytes((at * 31 + number) & 0xFF for at in range(256))
    return (pattern * (size // 256 + 1))[:size]


def shaped(number: int, size: int, who: str) -> Record:
    attributes = {"who": who, "k": f"é漢 {number}"}
    return Record(body(number, size), attributes, f"s{number % 3}", "202601020304")


def full(number: int, who: str) -> Record:
    """Return a record that fills the limit: attributes take their bytes, and four for their
    length."""
    attributes = f"who={who},k=é漢 {number},$msgType$=s{number % 3},$msgTime$=202601020304"
    return shaped(number, MIB - 4 - len(attributes.encode()), who)


def shapes(who: str) -> tuple[list[Record], Record]:
    """Return the records of a client: for the topic of 1 MiB, and the one for the topic of
    2 MiB."""
    small = [shaped(number, size, who) for number, size in enumerate(SIZES)]
    return [*small, full(len(SIZES), who)], Record(body(len(SIZES) + 1, 2 * MIB))


def facts(topic: str, found: Record | Message) -> Facts:
    attributes = found.attributes or {}
    return (
        *(topic, str(len(found.body)), str(zlib.crc32(found.body))),
        *(str(found.stream_id).replace("None", "null"), str(found.msg_time or "null")),
        *(attributes.get("who", "null"), attributes.get("k", "null")),
    )


def expected() -> list[Facts]:
    rows = []
    for who in ("java", "ours"):
        small, large = shapes(who)
        rows += [facts(TOPIC, record) for record in small if record.stream_id in WANTED]
        rows.append(facts(LARGE, large))
    return sorted(rows)


def send_ours(settings: ClientSettings) -> None:
    small, large = shapes("ours")
    with Producer(settings, producer=ProducerSettings(large_records="send")) as producer:
        producer.publish(TOPIC)
        producer.publish(LARGE)
        eventually(lambda: accepted(producer, large))
        assert len(list(producer.send_many(TOPIC, small))) == len(small)
        for topic, size in ((TOPIC, MIB + 1), (LARGE, 2 * MIB + 1)):
            with pytest.raises(errors.ConfigError, match="exceeds the limit"):
                producer.send(topic, bytes(size))


def accepted(producer: Producer, large: Record) -> bool | None:
    """Try a large record: a changed limit reaches producers and brokers with heartbeats."""
    try:
        producer.send(LARGE, large.body)
    except (errors.ConfigError, errors.ServerError):
        return None
    return True


def receive_here(settings: ClientSettings, count: int) -> list[Facts]:
    """Receive as a group, with checksums verified."""
    found: list[Facts] = []
    deadline = time.monotonic() + WAIT_S * PATIENCE
    with Consumer(settings, "shapes_ours", {TOPIC: WANTED, LARGE: ()}) as consumer:
        while len(found) < count and time.monotonic() < deadline:
            batch = consumer.receive(1_000)
            if batch is not None:
                found += [facts(batch.partition.topic, message) for message in batch.messages()]
                consumer.confirm(batch)
    return sorted(found)


def read_window(settings: ClientSettings) -> list[Facts]:
    """Everything of the larger topic up to its stable ends."""
    with Metadata(settings) as metadata:
        ends = metadata.ends(LARGE, "shapes_ends")
    with RangeReader(settings, group="shapes_window") as reader:
        return [
            facts(LARGE, message)
            for partition, end in ends.items()
            for batch in reader.read(OffsetRange(partition, end.min_offset, end.max_offset))
            for message in batch.messages()
        ]


def wait_on_disk(settings: ClientSettings) -> None:
    def on_disk() -> bool | None:
        with Metadata(settings) as metadata:
            for topic in (TOPIC, LARGE):
                stable = metadata.ends(topic, "shapes_ends")
                latest = metadata.ends(topic, "shapes_ends", stable=False)
                if any(stable[p].max_offset < end.max_offset for p, end in latest.items()):
                    return None
        return True

    eventually(on_disk)


def test_every_shape_crosses_in_both_directions(
    genuine: GenuineTubeMQ, settings: ClientSettings
) -> None:
    quick = dataclasses.replace(settings, heartbeat_period_ms=1_000)
    rows, theirs = expected(), []
    masters = genuine.masters

    def java() -> None:
        output = run_java(genuine, SHAPES, "receive", masters, TOPIC, LARGE, str(len(rows)))
        theirs.extend(tuple(line.split("\t")) for line in output.splitlines())

    with AdminClient(genuine.master_web, token=genuine.admin_token) as admin:
        admin.set_topic_control(LARGE, max_message_mb=2)
    send_ours(quick)
    limits = (TOPIC, str(MIB), LARGE, str(2 * MIB))
    run_java(genuine, SHAPES, "send", masters, *limits, *map(str, SIZES))
    wait_on_disk(quick)
    thread = threading.Thread(target=java, daemon=True)
    thread.start()
    window = read_window(quick)
    ours = receive_here(quick, len(rows))
    thread.join(WAIT_S)
    assert window == [row for row in rows if row[0] == LARGE]
    assert ours == rows
    assert sorted(theirs) == rows
