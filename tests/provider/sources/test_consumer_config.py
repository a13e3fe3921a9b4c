"""Options of the client in a Dag and a connection: how they are judged, and where they arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rocketmq_client.config import ClientConfig as RocketMQConfig
from rocketmq_client.config import ConsumerConfig as RocketMQConsumerConfig
from tubemq_client.config import ClientConfig, ConsumerConfig
from tubemq_client.errors import ConfigError
from tubemq_client.model import ClientSettings, ReaderSettings
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.validation import parse
from tubemq_provider.sources.consumer_config import consumer_options_of
from tubemq_provider.sources.registry import open_source
from tubemq_provider.spark.credentials_file import access_file
from tubemq_provider.spark.options import parse_options, spark_options
from tubemq_provider.windows.plan import WindowPlan, WindowScope

NAMES = {"topic": "orders", "group": "lake", "cluster": "main"}
GIVEN = {**NAMES, "path": "/lake", "engine": "inline", "initial_position": "earliest"}


def settings() -> ClientSettings:
    return ClientConfig.parse(
        {"masters": "m1", "rpc_timeout_ms": 2_000, "auth": {"username": "etl", "password": "pw"}}
    ).settings()


@pytest.mark.parametrize(
    ("kind", "model", "identity"),
    [
        ("tubemq", ConsumerConfig, {"masters": "m", "topic": "tt", "group": "gg"}),
        ("rocketmq", RocketMQConsumerConfig, {"name_servers": "n"}),
    ],
)
def test_every_option_of_the_clients_own_model_is_taken_or_refused_with_a_way_out(
    kind: str, model: Any, identity: dict[str, str]
) -> None:
    options = consumer_options_of(kind)
    defaults = model.parse(identity).model_dump()
    for name in model.model_fields:
        problems = options.problems({name: defaults[name]})
        assert problems == [] or problems == [f"{name}: {options.elsewhere[name]}"]
    assert {"deadline_ms", "rpc_timeout_ms", "max_frame_bytes"} <= options.names


def test_all_problems_are_listed_at_once_with_near_names_and_without_secrets() -> None:
    wrong = {
        "deadline_m": 1,
        "pool_size": 0,
        "password": "hunter2",
        "auth": {"password": "hunter2"},
    }
    with pytest.raises(ConfigError) as caught:
        parse(IngestArguments, {**GIVEN, "consumer_config": wrong, "max_records": 0})
    text = str(caught.value)
    assert "consumer_config: deadline_m: unknown option; did you mean deadline_ms?" in text
    assert "consumer_config: pool_size: 0: input should be greater than or equal to 1" in text
    assert "consumer_config: password: belongs into the connection" in text
    assert "consumer_config: auth: give login and password in the connection" in text
    assert "max_records" in text
    assert "hunter2" not in text


def test_options_win_over_settings_and_leave_the_others() -> None:
    options = consumer_options_of("tubemq")
    of_connection = options.applied(settings(), {"pool_size": 4, "close_wait_ms": 5})
    both = options.applied(of_connection, {"deadline_ms": "9000", "report_every_beats": 9})
    assert options.applied(settings(), {}) == settings()
    assert (both.pool_size, both.deadline_ms, both.rpc_timeout_ms) == (4, 9_000, 2_000)
    assert (both.member.close_wait_ms, both.member.report_every_beats) == (5, 9)
    assert (both.masters, both.auth) == (settings().masters, settings().auth)
    assert "pw" not in repr(both)
    with pytest.raises(ConfigError, match="longest_reconnect_pause_ms 50 is less than"):
        options.applied(settings(), {"longest_reconnect_pause_ms": 50})


def test_a_source_reads_with_them() -> None:
    source: Any = open_source("tubemq", settings(), identity="main", topic="orders", group="lake")
    source.configure({"deadline_ms": 7_000, "pool_size": 3})
    with source, source._reader("lake") as reader:
        assert (reader._deadline_ms, reader._pool.size) == (7_000, 3)
    assert isinstance(source.settings(), ReaderSettings)

    queues = RocketMQConfig.parse({"name_servers": "n"}).settings()
    rocketmq: Any = open_source("rocketmq", queues, identity="main", topic="t", group="g")
    rocketmq.configure({"deadline_ms": 7_000, "in_flight": 2})
    assert rocketmq.settings().range_options == {"in_flight": 2, "deadline_ms": 7_000}


def test_tasks_of_spark_read_with_them() -> None:
    scope = WindowScope("main", "orders", "lake", "parquet:/x")
    plan = WindowPlan.cursor(scope, 1, {"1:0": (0, 280)})
    chosen = {"deadline_ms": 7_000, "pool_size": 3, "fail_over_wait_ms": 1, "preconnect": True}
    made = consumer_options_of("tubemq").applied(settings(), chosen)
    with access_file(made) as path:
        read = parse_options(spark_options(made, plan, config_file=path))
        arrived = read.settings()
    assert (read.read_timeout_ms, read.pool_size) == (7_000, 3)
    assert arrived == replace(
        settings(), fail_over_wait_ms=1, preconnect=True, dns_refresh_ms=made.dns_refresh_ms
    )


def test_tasks_of_spark_read_rocketmq_with_them() -> None:
    pytest.importorskip("pyspark")
    from tubemq_provider.spark.rocketmq import _parse, reading

    plain = RocketMQConfig.parse({"name_servers": "n"}).settings()
    chosen = {"deadline_ms": 7_000, "in_flight": 2, "route_period_ms": 500}
    made = consumer_options_of("rocketmq").applied(plain, chosen)
    scope = WindowScope("main", "orders", "lake", "parquet:/x", source="rocketmq")
    with reading(made, WindowPlan.explicit(scope, {"broker-a:0": (0, 5)})) as options:
        read, arrived = _parse(options)
    assert (read.reader["deadline_ms"], read.reader["in_flight"]) == (7_000, 2)
    assert arrived == replace(plain, route_period_ms=500)
