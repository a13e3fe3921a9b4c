"""A genuine broker for the tests marked `kafka`, and the plug-in as if it were installed."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tubemq_provider import extensions

SRC = Path(__file__).parents[1] / "src"


def installed(site: Path) -> Path:
    """Return a folder that makes the plug-in's entry point known, as its wheel would."""
    info = site / "tubemq_provider_kafka-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tubemq-provider-kafka\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        "[tubemq_provider.sources]\nkafka = tubemq_provider_kafka\n"
    )
    return site


@pytest.fixture(scope="session", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the plug-in."""
    site = installed(tmp_path_factory.mktemp("site"))
    added = [str(site), str(SRC), str(Path(__file__).parent)]
    sys.path[:0] = added
    # Python workers of Spark have the environment, not this process's path.
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*added, before])
    extensions._points.cache_clear()
    yield
    os.environ["PYTHONPATH"] = before
    for each in added:
        sys.path.remove(each)
    extensions._points.cache_clear()


SETTINGS = """\
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
log.cleaner.backoff.ms=200
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=100
"""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a broker on loopback, once for all tests."""
    from tools.devkit.kafka import Kafka, KafkaUnavailable
    from tubemq_provider.engines.java import find_java

    try:
        broker = Kafka(
            tmp_path_factory.mktemp("kafka"), find_java(), port=free_port(), settings=SETTINGS
        )
        with broker:
            yield broker
    except KafkaUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def topics(kafka: Any) -> Any:
    """Return what makes topics and sends records."""
    from topics import Topics

    return Topics(kafka.address)


def free_port() -> int:
    """Return a port of a pair that nobody listens at."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                two.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
