"""The launcher against the real servers: it starts, knows its topics, and keeps data."""

from __future__ import annotations

import os
import urllib.request

import pytest

from tests.system.real import topics
from tools.devkit.tubemq.genuine import GenuineFailed, GenuineTubeMQ
from tubemq_client.model import ClientSettings, OffsetRange, Partition
from tubemq_client.sync import Metadata, Producer, RangeReader

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def read_bodies(settings: ClientSettings, range_: OffsetRange) -> list[bytes]:
    with RangeReader(settings, group="restart") as reader:
        return [message.body for batch in reader.read(range_) for message in batch.messages()]


def test_it_is_the_requested_version(genuine: GenuineTubeMQ) -> None:
    answer = genuine.query_master("admin_query_server_version")
    assert [item["version"] for item in answer["data"]] == ["2.4.0"]


def test_its_addresses_answer(genuine: GenuineTubeMQ) -> None:
    for address in (f"{genuine.master_web}/webapi.htm", f"{genuine.broker_web}/broker.htm"):
        url = f"http://{address}?method=admin_get_methods"
        with urllib.request.urlopen(url, timeout=10) as response:
            assert response.status == 200
    assert genuine.logs.keys() == {"zookeeper", "master", "broker"}
    assert all(log.stat().st_size for log in genuine.logs.values())


def test_every_topic_is_subscribable_with_its_partitions(
    genuine: GenuineTubeMQ, settings: ClientSettings
) -> None:
    with Metadata(settings) as metadata:
        for spec in (topics.ONE_STORE, topics.TWO_STORES, topics.MANY_STORES, topics.EMPTY):
            found = metadata.topic(spec.name)
            assert [p.partition_id for p in found.subscribable] == spec.partition_ids
            assert {p.broker_id for p in found.partitions} == {genuine.broker_id}


def test_waiting_for_a_missing_topic_ends_with_the_brokers_log(genuine: GenuineTubeMQ) -> None:
    with pytest.raises(GenuineFailed) as caught:
        genuine.wait_accepting([topics.EMPTY.name, "never_made"], timeout_s=0.5)
    first, *log = str(caught.value).splitlines()
    assert first == "the broker did not accept never_made within 0.5 s"
    text = genuine.logs["broker"].read_text()
    assert log
    assert all(line.strip() in text for line in log)


def test_an_orderly_restart_keeps_acknowledged_records(
    genuine: GenuineTubeMQ, settings: ClientSettings
) -> None:
    """Records in memory only are still there after an orderly stop of the broker."""
    bodies = [b"%d-" % number + os.urandom(200) for number in range(100)]
    partition = Partition(genuine.broker_id, topics.RESTART.name, 0)
    with Producer(settings) as producer:
        receipts = [producer.send(topics.RESTART.name, body) for body in bodies]
    assert [receipt.offset for receipt in receipts] == [28 * n for n in range(100)]
    whole = OffsetRange(partition, 0, 28 * len(bodies))
    before = read_bodies(settings, whole)
    genuine.restart_broker()
    genuine.wait_accepting()
    assert before == bodies
    assert read_bodies(settings, whole) == bodies
    with Metadata(settings) as metadata:
        ends = metadata.ends(topics.RESTART.name, "restart", stable=True)
    assert ends[partition].max_offset == whole.end
