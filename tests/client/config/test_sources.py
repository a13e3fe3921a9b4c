"""Options from files, URLs and the environment; what overrules what; nothing secret in texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tubemq_client import errors
from tubemq_client.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    from_file,
    from_url,
    with_environment,
)
from tubemq_client.model import ClientSettings, ConsumerSettings, ProducerSettings

TOML = """
masters = ["m1", "[::1]:9"]
topic = "orders"
group = "loader"
not_found_wait_ms = 50

[auth]
username = "loader"
password = "hunter2"

[tls]
ca_file = "/etc/ca.pem"
"""

INI = """
[TubeMQ]
log_num = 10
master_addrinfo = m1:8000,m2
group_name = loader
auth_enable = true
usr_name = loader
usr_passwd = hunter2
consume_position = -1
max_subinfo_report_intvl = 7
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_toml_file_has_our_names(tmp_path: Path) -> None:
    config = ConsumerConfig.parse(from_file(written(tmp_path / "tubemq.toml", TOML)))
    settings = config.settings()
    assert settings.masters == (("m1", 8716), ("::1", 9))
    assert settings.auth is not None
    assert settings.auth.password == "hunter2"
    assert settings.tls is not None
    assert settings.tls.ca_file == "/etc/ca.pem"
    assert config.consumer_settings().not_found_wait_ms == 50
    assert "hunter2" not in f"{config!r} {settings!r} {config.model_dump()}"


def test_an_ini_file_of_the_cpp_sdk_has_its_names(tmp_path: Path) -> None:
    options = from_file(written(tmp_path / "client.conf", INI))
    config = ConsumerConfig.parse({**options, "topic": "orders"})
    assert config.masters == (("m1", 8000), ("m2", 8715))
    assert (config.group, config.consume_position) == ("loader", "earliest")
    assert config.report_every_beats == 7
    assert config.auth is not None
    assert config.auth.username == "loader"


def test_an_ini_file_with_what_means_nothing_here_is_refused(tmp_path: Path) -> None:
    text = INI + "colour = red\ntls_enabled = true\n"
    with pytest.raises(errors.ConfigError) as failure:
        from_file(written(tmp_path / "client.conf", text))
    problems = "\n".join(failure.value.problems)
    assert [problem.split(": ")[1] for problem in failure.value.problems] == [
        "colour",
        "tls_enabled",
    ]
    assert "hunter2" not in problems


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.toml", "masters ="), ("a.ini", "no section"), ("a.ini", "[Other]\na=1"), ("a.ini", None)],
)
def test_files_that_are_none_are_named(tmp_path: Path, name: str, text: str | None) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(errors.ConfigError, match=r"a\.(toml|ini)"):
        from_file(path)


@pytest.mark.parametrize(
    ("text", "line"),
    [("[TubeMQ]\nmaster_addrinfo=m1\nusr_passwd hunter2\n", 3), ("usr_passwd=hunter2\n", 1)],
)
def test_a_line_that_cannot_be_read_is_numbered_and_not_repeated(
    tmp_path: Path, text: str, line: int
) -> None:
    with pytest.raises(errors.ConfigError, match=rf"a\.ini: .*line {line}\b") as failure:
        from_file(written(tmp_path / "a.ini", text))
    assert "hunter2" not in str(failure.value)


def test_the_environment_overrules_a_file_and_only_when_asked() -> None:
    environ = {
        "TUBEMQ_MASTERS": "e1",
        "TUBEMQ_RPC_TIMEOUT_MS": "5000",
        "TUBEMQ_FILTERS": "a,b",
        "TUBEMQ_AUTH_PASSWORD": "hunter2",
        "TUBEMQ_TLS": "true",
        "TUBEMQ_TLS_CHECK_HOSTNAME": "false",
        "TUBEMQ_HOME": "/opt",
    }
    options = {
        "masters": "m1",
        "topic": "orders",
        "group": "loader",
        "auth": {"username": "loader", "password": "other"},
    }
    config = ConsumerConfig.parse(with_environment(ConsumerConfig, options, environ))
    assert config.masters == (("e1", 8716),)
    assert (config.rpc_timeout_ms, config.filters) == (5_000, ("a", "b"))
    assert config.auth is not None
    assert (config.auth.username, config.auth.password.get_secret_value()) == ("loader", "hunter2")
    assert config.tls is not None
    assert config.tls.check_hostname is False
    assert options["masters"] == "m1"


def test_the_environment_asks_for_tls_with_the_details_of_the_file() -> None:
    options = {"masters": "m1", "tls": {"ca_file": "/ca.pem", "cert_file": "/c.pem"}}
    for value, wanted in (("true", options["tls"]), ("1", options["tls"]), ("false", "false")):
        found = with_environment(ClientConfig, options, {"TUBEMQ_TLS": value})
        assert found["tls"] == wanted


def test_a_url_may_ask_for_tls_and_its_details() -> None:
    url = "tubemq://m1,[::1]:9/orders?group=grp&tls.ca_file=/ca.pem&tls=true"
    config = ConsumerConfig.parse(from_url(url))
    assert config.masters == (("m1", 8716), ("::1", 9))
    assert config.tls is not None
    assert config.tls.ca_file == "/ca.pem"


def test_a_url_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(errors.ConfigError) as failure:
        from_url("tubemq://m1/orders?auth.username=u&auth.password=hunter2")
    assert "hunter2" not in str(failure.value)


def test_problems_say_value_and_range_but_no_secret() -> None:
    with pytest.raises(errors.ConfigError) as failure:
        ProducerConfig.parse(
            {
                "masters": "m1",
                "rpc_timeout_ms": 5,
                "link_max_quarantined_share": 2,
                "auth": {"username": "u", "password": ["hunter2"]},
                "tls": {"handshake_timeout_ms": 1, "colour": "hunter2"},
            }
        )
    problems = {line.split(":")[0]: line for line in failure.value.problems}
    assert problems.keys() == {
        "rpc_timeout_ms",
        "link_max_quarantined_share",
        "auth.password",
        "tls.handshake_timeout_ms",
        "tls.colour",
    }
    assert problems["rpc_timeout_ms"].endswith("(allowed: 1000 to 600000)")
    assert "5" in problems["rpc_timeout_ms"].split("(")[0]
    assert "ca_file" in problems["tls.colour"]
    assert "hunter2" not in str(failure.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"heartbeat_period_after_failures_ms": 2_000}, "is less than heartbeat_period_ms"),
        ({"longest_reconnect_pause_ms": 50}, "is less than reconnect_pause_ms"),
        ({"tls": {"key_file": "/k"}}, "need cert_file"),
        ({"tls": "perhaps"}, "tls"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: dict[str, object], problem: str
) -> None:
    with pytest.raises(errors.ConfigError, match=problem):
        ClientConfig.parse({"masters": "m1", **options})


def test_models_and_plain_settings_have_the_same_defaults() -> None:
    need = {"masters": "m1:1"}
    assert ClientConfig.parse(need).settings() == ClientSettings((("m1", 1),))
    assert ProducerConfig.parse(need).producer_settings() == ProducerSettings()
    consumer = ConsumerConfig.parse({**need, "topic": "orders", "group": "loader"})
    assert consumer.consumer_settings() == ConsumerSettings()


def test_tls_that_is_switched_off_stays_off_beside_its_details() -> None:
    details = {"TUBEMQ_TLS_CA_FILE": "/ca.pem"}
    for options, environ in (
        ({}, {"TUBEMQ_TLS": "false"}),
        ({}, {"TUBEMQ_TLS": "0"}),
        ({"tls": {"cert_file": "/c.pem"}}, {"TUBEMQ_TLS": "off"}),
        ({"tls": False}, {}),
    ):
        found = with_environment(ClientConfig, {"masters": "m1", **options}, environ | details)
        assert ClientConfig.parse(found).tls is None
    for url in ("tls=false&tls.ca_file=/ca.pem", "tls.ca_file=/ca.pem&tls=false"):
        assert ClientConfig.parse(from_url(f"tubemq://m1?{url}")).tls is None
    asked = with_environment(ClientConfig, {"tls": False}, {"TUBEMQ_TLS": "true", **details})
    assert asked["tls"] == {"ca_file": "/ca.pem"}
