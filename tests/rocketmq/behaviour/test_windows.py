"""Exact windows: random ranges equal the receipts, also during writes and after a broker's
death."""

from __future__ import annotations

import random
import threading
import time

import pytest

from rocketmq_client import QueueRange, errors
from tests.rocketmq.behaviour.writing import Writer
from tests.rocketmq.shells import Shell
from tests.rocketmq.sites import Site
from tools.devkit.patience import PATIENCE

WINDOWS = 80


def wait_readable(metadata, topic: str, written) -> dict:
    """Wait for ends that include all acknowledged records; return them."""
    deadline = time.monotonic() + 60 * PATIENCE
    while True:
        ends = metadata.ends(topic, stable=False)
        short = [q for q, items in written.items() if ends[q].latest_offset <= max(items)]
        if not short:
            return ends
        assert time.monotonic() < deadline, f"not readable: {short}"
        time.sleep(0.05)


def read(reader, range_: QueueRange) -> dict[int, tuple[bytes, str | None]]:
    records: dict[int, tuple[bytes, str | None]] = {}
    position = range_.start
    for batch in reader.read(range_):
        assert batch.start == position, "batches tile the range"
        position = batch.end
        for message in batch.messages():
            assert message.offset not in records, "a record came twice"
            records[message.offset] = (message.body, message.tags)
    return records


def check_windows(shell: Shell, site: Site, topic: str, writer: Writer, chance, count) -> int:
    """Read random windows: each offset once, equal to the receipts. Every second one is also read
    with two tags, one of which shares its hash with a third."""
    compared = 0
    with (
        shell.Metadata(site.settings) as metadata,
        shell.RangeReader(site.settings, group="windows") as reader,
        shell.RangeReader(site.settings, group="windows", tags=["red", "BB"]) as choosing,
    ):
        for number in range(count):
            ends = metadata.ends(topic, stable=False)
            queue = chance.choice(sorted(ends))
            first, last = sorted(chance.randint(0, ends[queue].latest_offset) for _ in "ab")
            records = read(reader, QueueRange(queue, first, last))
            assert list(records) == list(range(first, last))
            for offset, value in writer.acknowledged(queue).items():
                if first <= offset < last:
                    assert records[offset] == value
                    compared += 1
            if number % 2:
                chosen = {n: item for n, item in records.items() if item[1] in {"red", "BB"}}
                assert read(choosing, QueueRange(queue, first, last)) == chosen
    return compared


@pytest.mark.timeout(240)
def test_random_windows_equal_the_receipts(shell: Shell, site: Site) -> None:
    topic, chance = site.topic(4), random.Random(16)
    with Writer(site.settings, topic, seed=1) as writer:
        writer_ready = threading.Event()
        writer_ready.wait(0.5)
        before = check_windows(shell, site, topic, writer, chance, WINDOWS // 2)
        site.cluster.kill_broker()
        site.cluster.start_broker()
        after = check_windows(shell, site, topic, writer, chance, WINDOWS // 2)
    with (
        shell.Metadata(site.settings) as metadata,
        shell.RangeReader(site.settings, group="windows") as reader,
    ):
        ends = wait_readable(metadata, topic, writer.written)
        for queue, items in writer.written.items():
            records = read(reader, QueueRange(queue, 0, ends[queue].latest_offset))
            assert items.items() <= records.items(), "an acknowledged record is missing"

    assert before > 0
    assert after > 0


@pytest.mark.timeout(240)
def test_a_read_resumes_after_the_death_of_its_broker(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    writer = Writer(site.settings, topic, seed=2)
    writer.write(6_000)
    ((queue, items),) = writer.written.items()
    with shell.Metadata(site.settings) as metadata:
        end = wait_readable(metadata, topic, writer.written)[queue].latest_offset
    with shell.RangeReader(site.settings, group="windows") as reader:
        batches = reader.read(QueueRange(queue, 0, end))
        bodies = [message.body for message in next(batches).messages()]
        site.cluster.kill_broker()
        restart = threading.Thread(target=site.cluster.start_broker)
        restart.start()
        bodies += [message.body for batch in batches for message in batch.messages()]
        restart.join()

    assert bodies == [items[offset][0] for offset in range(end)]
    assert reader.stats.records == end


@pytest.mark.parametrize("where", ["here", "broker"])
def test_windows_of_tags_equal_filtering(shell: Shell, site: Site, where) -> None:
    topic, chance = site.topic(4), random.Random(5)
    writer = Writer(site.settings, topic, seed=3)
    writer.write(3_000)
    with shell.Metadata(site.settings) as metadata:
        ends = wait_readable(metadata, topic, writer.written)
    for tags in (["red"], ["Aa"], ["red", "BB"]):
        with shell.RangeReader(
            site.settings, group="windows", tags=tags, tag_filter=where
        ) as reader:
            for _ in range(10):
                queue = chance.choice(sorted(writer.written))
                first, last = sorted(chance.randint(0, ends[queue].latest_offset) for _ in "ab")
                records = {
                    message.offset: (message.body, message.tags)
                    for batch in reader.read(QueueRange(queue, first, last))
                    for message in batch.messages()
                }
                assert records == {
                    offset: item
                    for offset, item in writer.written[queue].items()
                    if first <= offset < last and item[1] in tags
                }


def test_a_range_beyond_the_log_is_refused(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    writer = Writer(site.settings, topic, seed=4)
    writer.write(50)
    ((queue, items),) = writer.written.items()
    with shell.RangeReader(site.settings, group="windows", deadline_ms=5_000) as reader:
        with pytest.raises(errors.LogTruncated, match="plan the window again"):
            list(reader.read(QueueRange(queue, 0, len(items) + 1)))
        with pytest.raises(errors.LogTruncated):
            list(reader.read(QueueRange(queue, len(items) + 500, len(items) + 501)))


def test_a_reader_needs_no_name_server_when_it_is_given_addresses(shell: Shell, site: Site) -> None:
    topic = site.topic(1)
    writer = Writer(site.settings, topic, seed=6)
    writer.write(40)
    ((queue, items),) = writer.written.items()
    with shell.Metadata(site.settings) as metadata:
        brokers = metadata.topic(topic).masters()
        wait_readable(metadata, topic, writer.written)
    nowhere = type(site.settings)((("127.0.0.1", 1),))
    with shell.RangeReader(nowhere, group="windows", brokers=brokers) as reader:
        records = read(reader, QueueRange(queue, 0, len(items)))

    assert records == items


@pytest.mark.parametrize(
    "attributes", [{"queue.type": "BatchCQ"}, {"cleanup.policy": "COMPACTION"}]
)
def test_topics_whose_offsets_do_not_count_records_are_refused(
    shell: Shell, site: Site, attributes
) -> None:
    topic = site.topic(1, attributes=attributes)
    with shell.Metadata(site.settings) as metadata:
        if site.name == "4.9.7":  # knows no such topics, and makes an ordinary one
            assert metadata.topic(topic).readable()
            return
        with pytest.raises(errors.UnsupportedTopic):
            metadata.topic(topic)
