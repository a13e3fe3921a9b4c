"""The hook against an embedded cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from threading import Timer

import pytest
from airflow.sdk import ExceptionRetryPolicy, RetryAction

from rocketmq_client import errors as rocketmq
from tubemq_client import OffsetRange, Partition, ProducerSettings, Record
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.errors import (
    ConfigError,
    ConnectError,
    NetworkError,
    ServiceUnavailable,
    TlsError,
    UnknownTopic,
)
from tubemq_client.sync import AssignedConsumer
from tubemq_provider.hooks.admin import TubeMQAdminHook
from tubemq_provider.hooks.retries import tubemq_retry_policy
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.windows.errors import StoreConflict, WindowNotReady

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

TOPIC = "orders"
TOKEN = "abc"


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


def test_a_member_of_a_group_is_opened_from_a_connection(hook: TubeMQHook) -> None:
    produce(hook, 3)
    with hook.consumer({TOPIC: ()}, "crew") as member:
        batch = member.receive(60_000)
        assert batch is not None
        assert [message.body for message in batch.messages()]
        member.confirm(batch)
    with pytest.raises(ConfigError, match="group"):
        hook.consumer({TOPIC: ()})


def test_missing_and_unreachable_partitions_are_not_committed(
    hook: TubeMQHook, mq: EmbeddedTubeMQ
) -> None:
    """A group's position keeps them, and what came behind them was never shown."""
    produce(hook, 6)
    produce(hook, 3, "2:0")
    position = {"1:0": 84, "1:7": 28, "2:0": 28, "9:0": 28}
    with hook.source(TOPIC, "lake") as source:
        assert sorted(source.mirror(position)) == ["1:7", "9:0"]
    assert mq.broker(1).position("lake", TOPIC, 0) == 84
    assert mq.broker(2).position("lake", TOPIC, 0) == 28
    mq.broker(1).stop()
    offsets = {at(key): offset for key, offset in (position | {"2:0": 56, "1:1": 0}).items()}
    left_out = hook.mirror_group_offsets(TOPIC, "lake", offsets)
    assert sorted(place.key for place in left_out) == ["1:0", "1:1", "1:7", "9:0"]
    assert mq.broker(2).position("lake", TOPIC, 0) == 56
    mq.broker(2).stop()
    with pytest.raises((NetworkError, ServiceUnavailable)):
        hook.mirror_group_offsets(TOPIC, "lake", offsets)


def test_offsets_of_one_group_are_committed_on_several_topics_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two tasks that did so in one moment failed each other for good."""
    with EmbeddedTubeMQ(1, [TOPIC, "payments"], http=False) as mq:
        connection = {"conn_type": "tubemq", "host": mq.masters}
        monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
        hook = TubeMQHook()
        with AssignedConsumer(hook.get_settings(), "lake", {"payments": ()}) as other:
            leaves = Timer(0.05, other.close)
            leaves.start()
            assert hook.mirror_group_offsets(TOPIC, "lake", {at("1:0"): 0}) == {}
            leaves.join()
        assert mq.broker(1).position("lake", TOPIC, 0) == 0


def test_producer_settings_apply(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_offsets_of_brokers_are_read_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_connection_test_reports_servers_and_errors(hook: TubeMQHook, mq: EmbeddedTubeMQ) -> None:
    worked, said = hook.test_connection()
    assert worked
    assert "resolved; a master answered" in said
    assert "not tried: administration" in said
    mq.stop()
    worked, said = hook.test_connection()
    assert not worked
    assert "127.0.0.1" in said


def test_a_lookup_without_group_names_the_missing_field(hook: TubeMQHook) -> None:
    with pytest.raises(ConfigError, match="default_group"):
        hook.ends(TOPIC)


def test_spark_options_name_the_masters(hook: TubeMQHook, mq: EmbeddedTubeMQ) -> None:
    assert hook.spark_options() == {"masters": mq.masters, "rpcTimeoutMs": "10000"}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedTubeMQ]:
    """Yield a cluster with administration, and the connection to it."""
    with EmbeddedTubeMQ(topics=[TopicSpec("orders"), TopicSpec("clicks")]) as server:
        extra = {
            "cluster": "test",
            "admin_url": f"http://{server.master_web}",
            "admin_token": TOKEN,
        }
        connection = {"conn_type": "tubemq", "host": server.masters, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
        yield server


def test_connection_test_reports_each_step(served: EmbeddedTubeMQ) -> None:
    worked, said = TubeMQHook().test_connection()
    assert worked
    for step in ("resolved", "a master answered", "administration at", "1 brokers accept"):
        assert step in said
    assert TOKEN not in said
    served.broker(1).stop()
    worked, said = TubeMQHook().test_connection()
    assert not worked
    assert "does not accept connections" in said


def test_a_topic_that_nearly_matches_is_offered(served: EmbeddedTubeMQ) -> None:
    with pytest.raises(UnknownTopic, match=r"did you mean 'orders'\?\nthere are: clicks, orders"):
        TubeMQHook().ends("oders", "lake")


def test_the_admin_hook_makes_and_lists_topics(served: EmbeddedTubeMQ) -> None:
    hook = TubeMQAdminHook()
    assert not hook.has_topic("returns")
    hook.create_topic("returns")
    assert {found.name for found in hook.topics()} == {"clicks", "orders", "returns"}
    assert TOKEN not in repr(hook) + repr(hook.config)


def test_the_retry_policy_follows_the_errors() -> None:
    policy = tubemq_retry_policy(network_delay=timedelta(seconds=7))

    def judged(error: Exception) -> tuple[RetryAction, timedelta | None]:
        found = policy.evaluate(error, 1, 3)
        return found.action, found.retry_delay

    assert judged(ConnectError("refused")) == (RetryAction.RETRY, timedelta(seconds=7))
    assert judged(TlsError("no handshake"))[0] is RetryAction.FAIL
    assert judged(ConfigError("wrong"))[0] is RetryAction.FAIL
    assert judged(WindowNotReady("later")) == (RetryAction.RETRY, timedelta(minutes=2))
    assert judged(StoreConflict("again")) == (RetryAction.RETRY, None)
    assert judged(rocketmq.for_code(16, "no right"))[0] is RetryAction.FAIL
    assert judged(rocketmq.Busy(2, "limiting")) == (RetryAction.RETRY, None)
    assert judged(KeyError("mine"))[0] is RetryAction.DEFAULT
    again = ExceptionRetryPolicy.deserialize(json.loads(json.dumps(policy.serialize())))
    assert again.evaluate(ConnectError("refused"), 1, 3).action is RetryAction.RETRY
