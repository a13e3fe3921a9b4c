"""Windows of RocketMQ through `spark-submit`: a try that dies, the next one that resumes its
application, and a service node as their only peer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_client import ClientSettings, Credentials, Producer
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_snode import SnodeSettings
from tests.provider.spark.jobs import Listener
from tests.provider.spark.test_submit_on_cluster import TaskDied, commands, said
from tests.snode.conftest import Node
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.job import IngestJob
from tubemq_provider.ingest.validation import parse
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.read import read_windows
from tubemq_provider.sources.registry import open_source
from tubemq_provider.windows.run.result import WindowResult

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

BROKERS = Credentials("nodes01", "secret-of-nodes")
"""Credentials that brokers require and only the node has: nothing reaches a broker directly."""
READER = Credentials("reader01", "hush-hush")
NAMES = {"topic": "orders", "group": "lake"}


class Job:
    """Tries of one task: a window of everything, of two tags, in a Spark process."""

    def __init__(self, settings: ClientSettings, root: Path) -> None:
        self.settings, self.root = settings, root
        self.journal = MemoryJournal()
        self.tries = 0

    def run(self, at: Callable[[str], None]) -> WindowResult:
        """Run one try; `at` is called at every point and may raise."""
        self.tries += 1
        given = {
            **NAMES,
            "cluster": "test",
            "source": "rocketmq",
            "filters": ["red", "blue"],
            "sink": str(self.root / "lake"),
            "initial_position": "earliest",
            "engine": "submit",
            "spark_conf": {"spark.master": "local[2]", "spark.driver.memory": "512m"},
            "spark_work_dir": str(self.root / "work"),
            "ship_package": True,
        }
        source = open_source(
            "rocketmq", self.settings, identity="test", **NAMES, filters=("red", "blue")
        )
        with ExitStack() as stack:
            sink = sink_for(str(self.root / "lake"))
            job = IngestJob(parse(IngestArguments, given), source, sink, stack)
            store = MemoryOffsetStore(self.journal, task="task")
            return job.run(
                store, attempt=f"try-{self.tries}", serialised=True, observer=Listener(at)
            )


def produced(settings: ClientSettings) -> list[tuple[str, int, bytes, str]]:
    """Produce records of three tags; return the position of each."""
    found = []
    with Producer(settings) as producer:
        for number in range(600):
            tag, body = ("red", "green", "blue")[number % 3], b"%d" % number
            receipt = producer.send("orders", body, tags=tag)
            found.append((receipt.queue.key, receipt.offset, body, tag))
    return found


def test_a_task_dies_and_its_next_try_resumes_the_application(tmp_path: Path) -> None:
    shown: list[str] = []
    points: list[str] = []

    def die(point: str) -> None:
        if point in {"application submitted", "frame loaded"}:
            shown.append(commands())
        if point == "frame loaded":
            raise TaskDied

    with EmbeddedRocketMQ(topics={"orders": 2}, brokers=2, credentials=BROKERS) as mq:
        users = ((READER.access_key, READER.secret_key),)
        options = SnodeSettings(
            (mq.name_server,), listen=("127.0.0.1", 0), credentials=BROKERS, users=users
        )
        with Node(options) as node:
            job = Job(replace(node.settings, auth=READER), tmp_path)
            sent = produced(job.settings)
            with pytest.raises(TaskDied):
                job.run(die)
            shown.extend(said(tmp_path / "work"))
            result = job.run(points.append)

    table = read_windows(tmp_path / "lake").to_table().to_pylist()
    rows = [(row["partition"], row["offset"], row["value"]) for row in table]
    assert sorted(rows) == sorted(place[:3] for place in sent if place[3] != "green")
    assert result.total == 400
    assert "earlier try taken up" in points
    assert "application submitted" not in points
    assert not list((tmp_path / "work").iterdir())
    assert "program.py" in shown[0]
    secrets = (READER.secret_key, BROKERS.secret_key)
    assert not [text[:200] for text in shown if any(secret in text for secret in secrets)]
