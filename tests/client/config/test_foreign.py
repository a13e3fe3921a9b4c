"""Configurations of the C++ SDK and of Go's client: carried over whole, with their defaults."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tubemq_client import errors
from tubemq_client.config import ConsumerConfig, ProducerConfig, from_file, from_url
from tubemq_client.model import Partition

INI = "[TubeMQ]\nmaster_addrinfo = m1:8715\n"
GO = "m1:9092,m2:9093?topic=orders&filters=12&filters=34&topic=clicks&group=loader"


def ini(tmp_path: Path, *lines: str) -> ConsumerConfig:
    path = tmp_path / "client.conf"
    path.write_text(INI + "group_name = loader\n" + "\n".join(lines))
    return ConsumerConfig.parse(
        {"topic": "orders", **from_file(path)} if "topics" not in str(lines) else from_file(path)
    )


@pytest.mark.parametrize(("said", "rolls_back"), [("false", False), ("0", False), ("true", True)])
def test_the_rollback_switch_of_cpp_is_the_one_for_moving_partitions(
    tmp_path: Path, said: str, rolls_back: bool
) -> None:
    config = ini(tmp_path, f"is_rollback_if_confirm_timeout = {said}")
    assert config.rollback_on_rebalance is rolls_back
    assert config.consumer_settings().rollback_on_rebalance is rolls_back


def test_a_cpp_group_without_a_position_starts_where_cpp_starts_and_a_warning_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "tubemq_client.config"):
        config = ini(tmp_path)
    assert (config.consume_position, config.ready_wait_ms) == ("latest", 60_000)
    assert config.rpc_timeout_ms == 15_000
    told = {record.message.split(": ")[0].split(" no ")[1]: record for record in caplog.records}
    assert {name: record.levelname for name, record in told.items()} == {
        "consume_position": "WARNING",
        "max_part_check_period_ms": "INFO",
        "rpc_read_timeout_ms": "INFO",
    }
    assert "client.conf" in told["consume_position"].message


def test_an_explicit_option_logs_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This is the remedy on the options page."""
    said = ("consume_position = -1", "max_part_check_period_ms = 1", "rpc_read_timeout_ms = 9000")
    with caplog.at_level(logging.INFO, "tubemq_client.config"):
        config = ini(tmp_path, *said)
    assert (config.consume_position, config.rpc_timeout_ms) == ("earliest", 9_000)
    assert not caplog.records


def test_a_file_without_a_group_is_a_producers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "client.conf"
    path.write_text(INI)
    assert ProducerConfig.parse(from_file(path)).rpc_timeout_ms == 15_000
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("period", ["-1", "-5"])
def test_any_negative_wait_of_cpp_is_for_ever(tmp_path: Path, period: str) -> None:
    assert ini(tmp_path, f"max_part_check_period_ms = {period}").ready_wait_ms == -1


def test_a_bound_start_and_several_topics_of_cpp(tmp_path: Path) -> None:
    config = ini(
        tmp_path,
        "topics = orders, clicks",
        "session_key = s1",
        "source_count = 3",
        "is_select_big = false",
    )
    assert config.subscription == {"orders": (), "clicks": ()}
    start = config.bound_start
    assert start is not None
    assert (start.session_key, start.source_count, start.select_big) == ("s1", 3, False)


def test_a_go_address_has_go_s_names() -> None:
    config = ConsumerConfig.parse(
        from_url(f"{GO}&tlsEnable=false&msgNotFoundWait=10000&heartbeatMaxRetryTimes=6")
    )
    assert config.masters == (("m1", 9092), ("m2", 9093))
    assert config.subscription == {"orders": ("12", "34"), "clicks": ()}
    assert (config.group, config.not_found_wait_ms) == ("loader", 10_000)
    assert (config.max_heartbeat_failures, config.tls) == (6, None)


def test_a_go_address_leaves_out_what_go_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tubemq_client.config"):
        config = ConsumerConfig.parse(from_url(GO))
    assert (config.consume_position, config.rpc_timeout_ms) == ("latest", 15_000)
    assert [r.levelname for r in caplog.records].count("WARNING") == 1
    caplog.clear()
    said = from_url(f"{GO}&consumePosition=-1&readTimeout=8s&maxPartCheckPeriod=1m30s")
    config = ConsumerConfig.parse(said)
    assert (config.consume_position, config.rpc_timeout_ms) == ("earliest", 8_000)
    assert config.ready_wait_ms == 90_000
    assert not caplog.records


def test_switches_of_a_go_address_switch_their_groups() -> None:
    groups = "&CACertFile=%2Fca.pem&tlsServerName=m&sessionKey=s1&sourceCount=2&selectBig=false"
    off = ConsumerConfig.parse(from_url(f"{GO}{groups}"))
    assert (off.tls, off.bound) == (None, None)
    on = ConsumerConfig.parse(from_url(f"{GO}{groups}&tlsEnable=true&boundConsume=true"))
    assert on.tls is not None
    assert (on.tls.ca_file, on.tls.server_hostname) == ("/ca.pem", "m")
    assert on.bound is not None
    assert (on.bound.source_count, on.bound.select_big) == (2, False)
    assert ConsumerConfig.parse(from_url(f"{GO}&tlsEnable=true")).tls is not None


def test_a_go_address_rolls_back_as_told() -> None:
    config = ConsumerConfig.parse(from_url(f"{GO}&rollbackIfConfirmTimeout=false"))
    assert config.rollback_on_rebalance is False


def test_a_go_address_lists_topics_as_its_first_releases_did() -> None:
    config = ConsumerConfig.parse(
        from_url("127.0.0.1:9092,127.0.0.1:9093?group=g1&topics=Topic1,%20Topic2&filters=x")
    )
    assert config.subscription == {"Topic1": (), "Topic2": ("x",)}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("topics=T&ttt", "no value"),
        ("topics=A,,B", "has an empty name"),
        ("topic=orders&ttt=1", "ttt: means nothing here"),
        ("filters=1&topic=orders", "stands before any topic"),
        ("topic=orders&consumePosition=7", "is not -1, 0 or 1"),
        ("topic=orders&readTimeout=soon", "neither ms nor a duration"),
        ("topic=orders&authUserName=u&authPassword=hunter2", "credentials do not belong"),
    ],
)
def test_a_go_address_with_a_mistake_is_refused(query: str, problem: str) -> None:
    with pytest.raises(errors.ConfigError, match=problem) as failure:
        from_url(f"m1:8715?{query}&group=g1")
    assert "hunter2" not in str(failure.value)


TOML = """
masters = "m1"
group = "loader"

[topics]
orders = ["a", "b"]
clicks = []

[bound]
session_key = "2026-11-22"
source_count = 2

[bound.offsets.orders]
"1:0" = 2800
"""


def test_a_file_may_name_several_topics_and_a_bound_start(tmp_path: Path) -> None:
    path = tmp_path / "tubemq.toml"
    path.write_text(TOML)
    config = ConsumerConfig.parse(from_file(path))
    assert config.subscription == {"orders": ("a", "b"), "clicks": ()}
    assert config.bound_start is not None
    assert config.bound_start.offsets == {Partition(1, "orders", 0): 2800}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "give topic, or topics"),
        ({"topic": "orders", "topics": "clicks"}, "give topic, or topics"),
        ({"topics": "orders", "filters": ["a"]}, "filters are those of topic"),
        ({"topics": {}}, "topics"),
        ({"topics": '{"orders": ['}, "not valid JSON"),
        ({"topics": {"1abc-x": []}}, "is not a topic name"),
        ({"topics": {"t" * 65: []}}, "at most 64"),
        ({"topics": {"té": []}}, "is not a topic name"),
        ({"topics": {"orders": ["a"] * 501}}, "500"),
        ({"topic": "orders", "filters": ["a" * 257]}, "at most 256"),
        ({"topic": "orders", "group": "té"}, "is not a group name"),
        ({"topic": "orders", "group": "g" * 1025}, "at most 1024"),
        (
            {"topic": "orders", "bound": {"session_key": "k" * 1025, "source_count": 1}},
            "at most 1024",
        ),
        (
            {
                "topic": "orders",
                "bound": {
                    "session_key": "k",
                    "source_count": 1,
                    "offsets": {"clicks": {"1:0": 28}},
                },
            },
            "is not subscribed",
        ),
        (
            {
                "topic": "orders",
                "bound": {"session_key": "k", "source_count": 1, "offsets": {"orders": {"x": 28}}},
            },
            r"bound\.offsets",
        ),
    ],
)
def test_a_subscription_with_a_mistake_is_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(errors.ConfigError, match=problem):
        ConsumerConfig.parse({"masters": "m1", "group": "loader", **options})


def test_topics_come_from_a_url_and_the_environment() -> None:
    from tubemq_client.config import with_environment

    url = from_url("tubemq://m1?group=loader&topics=orders,clicks&bound.session_key=s")
    config = ConsumerConfig.parse({**url, "bound": {"session_key": "s", "source_count": 1}})
    assert list(config.subscription) == ["orders", "clicks"]
    environ = {"TUBEMQ_TOPICS": '{"orders": ["a"]}', "TUBEMQ_BOUND_SOURCE_COUNT": "4"}
    config = ConsumerConfig.parse(with_environment(ConsumerConfig, url, environ))
    assert config.subscription == {"orders": ("a",)}
    assert config.bound is not None
    assert (config.bound.session_key, config.bound.source_count) == ("s", 4)
