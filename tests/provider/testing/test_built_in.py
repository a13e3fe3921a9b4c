"""The suites of the test kit, over the sources and decoders of the package.

Sinks, stores, engines and resolvers inherit from their suites where their other tests are.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import ClassVar

import pytest

from rocketmq_client import Producer as RocketMQProducer
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.kit.servers import embedded_rocketmq, embedded_tubemq
from tools.devkit.patience import PATIENCE
from tubemq_client import Producer
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.model import ClientSettings
from tubemq_provider.sources.base import End, Source
from tubemq_provider.testing.decoder_suite import DecoderSuite
from tubemq_provider.testing.source_suite import SourceSuite, SourceTopic

mq = embedded_tubemq(
    [TopicSpec("orders", stores=2, partitions=2)],
    switches=Switches(flush_interval_ms=None, unflushed_records=None),
)
rocketmq = embedded_rocketmq(2)


def ends(source: Source, which: End) -> dict[str, int]:
    return {partition.key: end.max_offset for partition, end in source.ends(which).items()}


class TestTubeMQSource(SourceSuite):
    @pytest.fixture
    def topic(self, mq: EmbeddedTubeMQ) -> SourceTopic:
        def produce(bodies: list[bytes]) -> None:
            with Producer(ClientSettings(masters=(mq.master_address,))) as producer:
                for body in bodies:
                    producer.send("orders", body)
            mq.broker(1).flush()

        return SourceTopic("tubemq", {"masters": mq.masters}, "orders", produce)


class TestRocketMQSource(SourceSuite):
    @pytest.fixture
    def topic(self, rocketmq: EmbeddedRocketMQ) -> SourceTopic:
        def produce(bodies: list[bytes]) -> None:
            with RocketMQProducer(rocketmq.settings) as producer:
                for body in bodies:
                    producer.send("orders", body)
            with made.open() as source:
                deadline = time.monotonic() + 20 * PATIENCE
                while ends(source, "stable") != ends(source, "latest"):
                    assert time.monotonic() < deadline, "the stable end does not come"
                    time.sleep(0.01)

        host, port = rocketmq.name_server
        made = SourceTopic("rocketmq", {"name_servers": f"{host}:{port}"}, "orders", produce)
        return made


class TestToySource(SourceSuite):
    """A source that is files, as small as one can be."""

    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tubemq_provider.windows import spaces

        monkeypatch.setitem(spaces.SOURCES, "lines", "tests.kit.toy_source")

    def make(self, tmp_path: Path) -> SourceTopic:
        folder = tmp_path / "cluster" / "orders"
        folder.mkdir(parents=True)
        for name in ("north.0", "south.0"):
            (folder / name).touch()

        def produce(bodies: list[bytes]) -> None:
            for number, body in enumerate(bodies):
                with (folder / ("north.0", "south.0")[number % 2]).open("ab") as file:
                    file.write(body + b"\n")

        options = {"root": str(folder.parent)}
        return SourceTopic("lines", options, "orders", produce, values="text", body=str.encode)


class TestJson(DecoderSuite):
    decode: ClassVar = {"format": "json", "schema": "id bigint, name string"}
    bodies = (b'{"id": 1, "name": "a"}', json.dumps({"id": 2, "name": None}).encode())
    rows = ({"id": 1, "name": "a"}, {"id": 2, "name": None})
    corrupt = b"{"


class TestCsv(DecoderSuite):
    decode: ClassVar = {"format": "csv", "schema": "id bigint, name string"}
    bodies = (b"1,a", b"2,b")
    rows = ({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    corrupt = b"x,y,z"
