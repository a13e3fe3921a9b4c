"""Blocks of the site's pages that need the reader's Spark session run as they are printed.

tests/provider/test_pages.py runs the other blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_client import Producer as RocketMQProducer
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.kit.printed import steps
from tubemq_client import Producer, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if any(step.on_spark for step in steps(path))
]
MASTERS = re.compile(r"(?:127\.0\.0\.1|master\d):87\d\d(?:,master\d:87\d\d)*")


class Page:
    """Names that comments of pages use."""

    def __init__(self, mq: EmbeddedTubeMQ) -> None:
        self.mq = mq

    def settings(self) -> Any:
        return ClientConfig.parse({"masters": self.mq.masters}).settings()


@pytest.fixture(scope="module")
def mq() -> Iterator[EmbeddedTubeMQ]:
    switches = Switches(flush_interval_ms=20)
    with EmbeddedTubeMQ(1, ["orders"], switches=switches) as mq:
        with Producer(Page(mq).settings()) as producer:
            for _ in producer.send_many("orders", [Record(b'{"id": 1}')] * 300):
                pass
        mq.broker(1).flush()
        yield mq


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_on_spark_run_as_printed(
    page: Path, mq: EmbeddedTubeMQ, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "lake").mkdir()
    names: dict[str, Any] = {"spark": spark, "page": Page(mq), "mq": mq, "folder": tmp_path}
    ran = 0
    with EmbeddedRocketMQ(topics={"orders": 2}) as rocketmq:
        with RocketMQProducer(rocketmq.settings) as producer:
            producer.send("orders", b"1")
        ((host, port), *_) = rocketmq.settings.name_servers
        for step in steps(page):
            if not step.on_spark or step.not_run:
                continue
            text = MASTERS.sub(mq.masters, step.text).replace("ns1:9876", f"{host}:{port}")
            text = re.sub(r'(?<=")/lake(?=/)', f"{tmp_path}/lake", text)
            exec(compile(text, page.name, "exec"), names)
            if "frame" in names and step.on_spark and "frame = " in text:
                assert names["frame"].count() > 0
            ran += 1
    assert ran
