"""The hook against an embedded cluster."""

from __future__ import annotations

import json

import pytest

from tubemq_client import OffsetRange, Partition, ProducerSettings, Record
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.errors import ConfigError, ConnectError
from tubemq_provider.hooks.tubemq import TubeMQHook

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"


def at(key: str) -> Partition:
    return Partition.from_key(TOPIC, key)


def produce(hook: TubeMQHook, count: int, key: str = "1:0") -> None:
    records = [Record(f"{key} {i}".encode(), partition=at(key)) for i in range(count)]
    assert len(list(hook.produce(TOPIC, records))) == count


def test_partitions_of_every_broker(hook: TubeMQHook) -> None:
    found = hook.partitions(TOPIC)
    assert {p.key for p in found} == {
        f"{b}:{s}{n}" for b in "12" for s in ("", "1000") for n in "01"
    }
    assert all(found.values())


def test_stable_ends_wait_for_the_disk_and_latest_ends_do_not(
    hook: TubeMQHook, mq: EmbeddedTubeMQ
) -> None:
    produce(hook, 5)
    assert hook.ends(TOPIC, "lake", [at("1:0")])[at("1:0")].max_offset == 0
    assert hook.ends(TOPIC, "lake", [at("1:0")], stable=False)[at("1:0")].max_offset == 140
    mq.broker(1).store(TOPIC, 0).flush()
    assert hook.ends(TOPIC, "lake", [at("1:0")])[at("1:0")].max_offset == 140


def test_lag_counts_each_store_once(hook: TubeMQHook) -> None:
    produce(hook, 4, "1:0")
    produce(hook, 3, "1:1")
    produce(hook, 2, "2:10000")
    lag = hook.lag(TOPIC, {at("1:0"): 28, at("1:1"): 56}, "lake", stable=False)
    assert lag.total == 6 + 2
    assert lag.stores == {"1/0": 6, "1/1": 0, "2/0": 0, "2/1": 2}


def test_read_range_gives_exactly_the_records(hook: TubeMQHook) -> None:
    produce(hook, 6)
    found = hook.read_range(OffsetRange(at("1:0"), 28, 112), group="lake")
    assert [m.body for m in found] == [b"1:0 1", b"1:0 2", b"1:0 3"]


def test_committing_moves_the_position_that_the_broker_keeps(
    hook: TubeMQHook, mq: EmbeddedTubeMQ
) -> None:
    produce(hook, 6)
    hook.commit_group_offsets(TOPIC, "lake", {at("1:0"): 84})
    assert mq.broker(1).position("lake", TOPIC, 0) == 84


def test_producer_settings_are_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record beyond the cluster's limit, which the topic's own allows."""
    with EmbeddedTubeMQ(1, [TopicSpec(TOPIC, max_message_mb=2)], http=False) as mq:
        connection = {"conn_type": "tubemq", "host": mq.masters}
        monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
        large = [Record(bytes(3 * 2**19))]
        with pytest.raises(ConfigError, match="large_records"):
            list(TubeMQHook().produce(TOPIC, large))
        sending = ProducerSettings(large_records="send")
        (receipt,) = TubeMQHook().produce(TOPIC, large, producer=sending)
        assert receipt.offset == 0


def test_positions_that_brokers_keep_are_asked_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [TopicSpec(TOPIC, stores=1, partitions=2)]
    with EmbeddedTubeMQ(brokers=2, topics=topics) as mq:
        extra = {"admin_url": f"http://{mq.master_web}"}
        connection = {"conn_type": "tubemq", "host": mq.masters, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
        hook = TubeMQHook()
        produce(hook, 6)
        assert hook.group_offsets(TOPIC, "lake") == {}
        hook.commit_group_offsets(TOPIC, "lake", {at("1:0"): 84, at("2:1"): 0})
        assert hook.group_offsets(TOPIC, "lake") == {at("1:0"): 84, at("2:1"): 0}


def test_a_wrong_admin_address_names_itself(
    hook: TubeMQHook, mq: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"admin_url": "http://127.0.0.1:1"}
    connection = {"conn_type": "tubemq", "host": mq.masters, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
        TubeMQHook().group_offsets(TOPIC, "lake")


def test_connection_test_tells_who_answered_or_why_not(
    hook: TubeMQHook, mq: EmbeddedTubeMQ
) -> None:
    worked, said = hook.test_connection()
    assert worked
    assert f"a master of {hook.config.masters[0][0]}" in said
    assert "administration (HTTP) not tried" in said
    mq.stop()
    worked, said = hook.test_connection()
    assert not worked
    assert "127.0.0.1" in said


def test_a_lookup_without_group_says_what_to_set(hook: TubeMQHook) -> None:
    with pytest.raises(ConfigError, match="default_group"):
        hook.ends(TOPIC)


def test_spark_options_name_the_masters(hook: TubeMQHook, mq: EmbeddedTubeMQ) -> None:
    assert hook.spark_options() == {"masters": mq.masters, "rpcTimeoutMs": "10000"}
