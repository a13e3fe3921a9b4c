"""Options become plain settings; all problems are listed together, without secrets."""

from __future__ import annotations

import pytest

from rocketmq_client import ClientSettings, Credentials, ProducerSettings, TlsSettings, errors
from rocketmq_client.config import ClientConfig, ProducerConfig
from rocketmq_snode.options import SnodeConfig


@pytest.mark.parametrize(
    ("value", "servers"),
    [
        ("ns1:9876;ns2", (("ns1", 9876), ("ns2", 9876))),
        ("ns1:1, ns2:2", (("ns1", 1), ("ns2", 2))),
        ("[::1]:9877", (("::1", 9877),)),
        (["ns1", ("ns2", 5)], (("ns1", 9876), ("ns2", 5))),
    ],
)
def test_name_servers_in_any_form(value, servers) -> None:
    assert ClientConfig.parse({"name_servers": value}).settings() == ClientSettings(servers)


def test_everything_arrives() -> None:
    settings = ClientConfig.parse(
        {
            "name_servers": "ns",
            "rpc_timeout_ms": 2_000,
            "auth": {"access_key": "key", "secret_key": "hidden", "security_token": "token"},
            "tls": {"ca_file": "ca.pem"},
        }
    ).settings()

    assert settings.rpc_timeout_ms == 2_000
    assert settings.auth == Credentials("key", "hidden", "token")
    assert settings.tls == TlsSettings(ca_file="ca.pem")
    assert ProducerConfig.parse({}).settings() == ProducerSettings()
    assert ProducerConfig.parse({"compression": "zstd", "retries": 0}).settings() == (
        ProducerSettings(compression="zstd", retries=0)
    )


def test_every_problem_is_reported_and_no_secret() -> None:
    options = {
        "name_servers": "a:b:c;:1;ns:70000",
        "rpc_timeout_ms": 1,
        "colour": "red",
        "auth": {"access_key": "", "secret_key": "very-secret", "pass": "very-secret"},
    }
    with pytest.raises(errors.ConfigError) as caught:
        ClientConfig.parse(options)
    text = str(caught.value)

    assert all(word in text for word in ("a:b:c", "ns:70000", "rpc_timeout_ms", "colour", "auth."))
    assert "very-secret" not in text
    assert "hidden" not in repr(
        ClientConfig.parse(
            {"name_servers": "ns", "auth": {"access_key": "k", "secret_key": "hidden"}}
        )
    )
    with pytest.raises(errors.ConfigError, match="name_servers"):
        ClientConfig.parse({"name_servers": ""})


@pytest.mark.parametrize(
    "auth",
    [
        {"access_key": "k", "secret_key": 20261123777},
        {"access_key": "k", "secret_key": ["20261123777"]},
        {"access_key": "k", "secret_key": "s", "security_token": 20261123777},
        {"access_key": "", "secret_key": {"of": "20261123777"}},
        "k:20261123777",
        ["k", "20261123777"],
    ],
)
def test_a_secret_of_the_wrong_type_or_in_the_wrong_place_is_not_repeated(auth) -> None:
    with pytest.raises(errors.ConfigError, match="auth") as caught:
        ClientConfig.parse({"name_servers": "ns", "auth": auth})
    assert "20261123777" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"users": {"alice": 20261123777}},
        {"users": [["alice", "20261123777", "more"]]},
        {"users": ["alice:20261123777"]},
        {"credentials": ["k", "20261123777"]},
        {"credentials": 20261123777},
    ],
)
def test_a_node_s_users_and_credentials_are_not_repeated(options) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(options))) as caught:
        SnodeConfig.parse({"name_servers": "ns", **options})
    assert "20261123777" not in str(caught.value)
