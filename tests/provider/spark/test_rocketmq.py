"""`format("rocketmq")`: a read delivers each record once, on the driver's plan, in any schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_client import OutgoingMessage, Producer
from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.kit.servers import embedded_rocketmq
from tubemq_client.errors import ConfigError
from tubemq_provider.engines.spark_runtime import temporary_conf

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


rocketmq = embedded_rocketmq(2, brokers=2)


def produce(
    rocketmq: EmbeddedRocketMQ, count: int, tags: str | None = None
) -> dict[tuple[str, int], bytes]:
    with Producer(rocketmq.settings) as producer:
        messages = [OutgoingMessage(b"%d" % n, tags=tags, keys=("k",)) for n in range(count)]
        sent = [(producer.send("orders", m.body, tags=tags), m.body) for m in messages]
    return {(receipt.queue.key, receipt.offset): body for receipt, body in sent}


def options(rocketmq: EmbeddedRocketMQ, **more: str) -> dict[str, str]:
    host, port = rocketmq.name_server
    return {"nameServers": f"{host}:{port}", "topic": "orders", "group": "lake", **more}


def load(spark: Any, given: dict[str, str]) -> Any:
    return spark.read.format("rocketmq").options(**given).load()


def test_a_frame_has_each_record_once_and_stays_as_it_was_loaded(spark, rocketmq) -> None:
    receipts = produce(rocketmq, 50)
    frame = load(spark, options(rocketmq, maxRecordsPerPartition="7"))
    produce(rocketmq, 10)
    rows = frame.collect()

    assert {(row["partition"], row["offset"]): bytes(row["value"]) for row in rows} == receipts
    assert len(rows) == frame.count() == 50
    assert all(row["store_time"] and row["topic"] == "orders" for row in rows)


def test_offsets_columns_and_tags_are_options(spark, rocketmq) -> None:
    produce(rocketmq, 8, "kept")
    produce(rocketmq, 8, "left")
    kept = load(spark, options(rocketmq, tags="kept", columns="offset,tags")).collect()
    assert [row["tags"] for row in kept] == ["kept"] * 8
    keys = [f"broker-{name}:{number}" for name in "ab" for number in (0, 1)]
    ending = json.dumps({"orders": dict.fromkeys(keys, 1)})
    assert load(spark, options(rocketmq, endingOffsets=ending)).count() == 4


def test_wrong_options_are_listed_at_once(spark, rocketmq) -> None:
    from tubemq_provider.spark.rocketmq import RocketMQDataSource

    with pytest.raises(ConfigError) as caught:
        RocketMQDataSource({"topik": "a", "secretKey": "hidden", "pullsInFlight": "0"})
    text = str(caught.value)
    assert all(name in text for name in ("topik", "secretKey", "pullsInFlight", "nameServers"))
    assert "hidden" not in text


def test_times_are_instants_whatever_a_session_takes_a_timestamp_for(spark, rocketmq) -> None:
    receipts = produce(rocketmq, 5)
    with temporary_conf(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        frame = load(spark, options(rocketmq, columns="store_time,value"))
        assert sorted(bytes(row["value"]) for row in frame.collect()) == sorted(receipts.values())
        assert frame.schema["store_time"].dataType.simpleString() == "timestamp"
