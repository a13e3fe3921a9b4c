"""Crashes of a genuine broker's host: unflushed records are lost, or an older disk comes back.

The test simulates a loss of power: it destroys the log behind the flushed position, and all
indexes. A killed broker counts everything it finds as flushed, so a restart replaces a flush here;
otherwise the broker flushes nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketmq_client import Admin
from tests.rocketmq.real.test_on_genuine import cluster
from tests.rocketmq.windows.topics import Topic
from tools.devkit.rocketmq.artifacts import Line
from tools.devkit.rocketmq.genuine import GenuineRocketMQ
from tubemq_client.errors import LogReplaced, LogTruncated

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(300)]

NEVER_FLUSHES = {
    "flushCommitLogLeastPages": "1000000",
    "flushCommitLogThoroughInterval": "86400000",
}


@pytest.mark.parametrize("line", ["4.9.7", pytest.param("5.5.0", marks=pytest.mark.soak)])
def test_a_host_that_dies_costs_no_window_and_an_older_disk_is_noticed(
    line: Line, tmp_path: Path
) -> None:
    image = tmp_path / "image"
    (tmp_path / "sink").mkdir()
    with cluster(line, tmp_path / "servers", broker_options=NEVER_FLUSHES) as mq:
        with Admin(mq.settings) as admin:
            admin.create_topic("orders", queues=2)
        topic = Topic(mq.settings, "orders", tmp_path / "sink")
        topic.produce(60)
        with mq.broker_down():
            shutil.copytree(store(mq), image)
        what_was_not_on_disk_is_gone(mq, topic)
        published = topic.rows()
        with mq.broker_down():
            shutil.rmtree(store(mq))
            image.rename(store(mq))
        with pytest.raises(LogTruncated):
            topic.run()
        topic.produce(100)  # longer than before: ends alone do not show it any more
        flush(mq)
        with pytest.raises(LogReplaced):
            topic.run()
    assert topic.rows() == published


def what_was_not_on_disk_is_gone(mq: GenuineRocketMQ, topic: Topic) -> None:
    kept, flushed = dict(topic.receipts), position(mq)
    topic.catch_up()
    topic.produce(30)
    assert topic.run().total == 0, "no window has what is not on disk"
    with mq.broker_down():
        lose(mq, flushed)
    topic.receipts = kept
    topic.produce(40)  # at the offsets of what was lost
    assert topic.run().total == 0
    flush(mq)
    topic.catch_up()
    topic.check()


def flush(mq: GenuineRocketMQ) -> None:
    """Flush: a killed broker counts everything it finds as flushed."""
    with mq.broker_down():
        pass


def store(mq: GenuineRocketMQ) -> Path:
    """Return the directory of the broker's store."""
    return mq.home / "broker-a" / "store"


def position(mq: GenuineRocketMQ) -> int:
    """Return the end of the flushed part of the log; there is no other yet."""
    with Admin(mq.settings) as admin:
        table = admin.runtime_info("broker-a").table
    assert table["remainHowManyDataToFlush"].startswith("0")
    return int(table["commitLogMaxOffset"])


def lose(mq: GenuineRocketMQ, flushed: int) -> None:
    """Simulate a crash of the host: nothing behind `flushed` was written, no index is whole."""
    (log,) = (store(mq) / "commitlog").iterdir()
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.seek(flushed)
        lost = file.read(4_096)
        assert any(lost), "there is something to lose"
        file.seek(flushed)
        file.write(bytes(size - flushed))
    for index in ("consumequeue", "index"):
        shutil.rmtree(store(mq) / index, ignore_errors=True)
