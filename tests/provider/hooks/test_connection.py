"""Fields of the connection form, and errors for mistakes in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from tubemq_client.admin import web_urls
from tubemq_client.errors import ConfigError
from tubemq_client.model import Credentials, TlsSettings
from tubemq_provider.hooks.connection import ConnectionConfig, extra_fields
from tubemq_provider.hooks.rocketmq import RocketMQConnection
from tubemq_provider.hooks.tubemq import TubeMQHook

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]


def connection(host: str = "m1:8715,m2", extra: Any = None, **fields: Any) -> Connection:
    return Connection(
        conn_id="tubemq_default",
        conn_type="tubemq",
        host=host,
        extra=json.dumps(extra or {}),
        **fields,
    )


def test_host_is_a_list_of_masters_and_the_alias_defaults_to_the_connection_id() -> None:
    config = ConnectionConfig.from_connection(connection())
    assert config.masters == (("m1", 8715), ("m2", 8715))
    assert config.cluster == "tubemq_default"
    assert config.admin_urls() == ("http://m1:8080", "http://m2:8080")


def test_masters_with_addresses_of_ipv6_are_asked_over_http_too() -> None:
    config = ConnectionConfig.from_connection(connection(host="[::1]:8715,m2"))
    assert web_urls(config.admin_urls()) == ("http://[::1]:8080", "http://m2:8080")


def test_fields_that_the_form_leaves_blank_do_not_count() -> None:
    extra = {"cluster": "", "rpc_timeout_ms": None, "admin_url": "http://m1:18080/"}
    config = ConnectionConfig.from_connection(connection(extra=extra))
    assert config.cluster == "tubemq_default"
    assert config.rpc_timeout_ms == 10_000
    assert config.admin_urls() == ("http://m1:18080",)


def test_a_connection_given_as_uri_works_too() -> None:
    uri = "tubemq://master1:18715/?cluster=prod&rpc_timeout_ms=5000"
    config = ConnectionConfig.from_connection(Connection.from_uri(uri, conn_id="c"))
    assert (config.cluster, config.masters) == ("prod", (("master1", 18715),))
    assert config.settings().rpc_timeout_ms == 5000


def test_all_mistakes_are_listed_at_once() -> None:
    extra = {"cluster": "a/b", "rpc_timeout_ms": 5, "retries": 3, "admin_url": "m1:8080"}
    with pytest.raises(ConfigError) as caught:
        ConnectionConfig.from_connection(connection(host="", extra=extra))
    text = str(caught.value)
    assert "connection 'tubemq_default'" in text
    for name in ("masters", "cluster", "rpc_timeout_ms", "retries: unknown option", "admin_url"):
        assert name in text
    assert len(caught.value.problems) == 5


def test_login_and_password_sign_requests_and_are_never_shown() -> None:
    config = ConnectionConfig.from_connection(connection(login="u", password="s3cret-word"))
    settings = config.settings()
    assert settings.auth == Credentials("u", "s3cret-word")
    assert "s3cret-word" not in f"{config!r} {settings!r} {config}"


@pytest.mark.parametrize("half", [{"login": "u"}, {"password": "s3cret-word"}])
def test_half_of_a_pair_is_refused_without_repeating_it(half: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"auth\.") as caught:
        ConnectionConfig.from_connection(connection(**half))
    assert "s3cret-word" not in str(caught.value)


def test_credentials_among_the_extras_are_refused() -> None:
    extra = {"auth": {"username": "u", "password": "s3cret-word"}}
    with pytest.raises(ConfigError, match="login and password") as caught:
        ConnectionConfig.from_connection(connection(extra=extra))
    assert "s3cret-word" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["http://", "ftp://", "http:/", ""])
def test_an_address_with_a_password_is_refused_without_repeating_it(scheme: str) -> None:
    extra = {"admin_url": f"{scheme}u:s3cret-word@m1:8080"}
    with pytest.raises(ConfigError, match="admin_url: credentials do not belong") as caught:
        ConnectionConfig.from_connection(connection(extra=extra))
    assert "s3cret-word" not in str(caught.value)


def test_tls_is_a_switch_and_its_fields() -> None:
    assert ConnectionConfig.from_connection(connection()).settings().tls is None
    plain = ConnectionConfig.from_connection(connection(host="m1", extra={"tls": True}))
    assert plain.settings().tls == TlsSettings()
    assert plain.masters == (("m1", 8716),)
    extra = {"tls_ca_file": "/ca.pem", "tls_check_hostname": False}
    mutual = ConnectionConfig.from_connection(connection(extra=extra)).settings().tls
    assert mutual == TlsSettings(ca_file="/ca.pem", check_hostname=False)


def test_fields_of_tls_may_stay_while_it_is_switched_off() -> None:
    extra = {"tls": False, "tls_ca_file": "/ca.pem"}
    assert ConnectionConfig.from_connection(connection(extra=extra)).settings().tls is None


def test_repr_of_the_hook_names_the_connection_only() -> None:
    assert repr(TubeMQHook("prod_mq")) == "TubeMQHook('prod_mq')"


def test_mistakes_use_the_words_of_the_form() -> None:
    with pytest.raises(ConfigError, match=r"host \(Masters\) is empty: name the masters"):
        ConnectionConfig.from_connection(connection(host=""))
    with pytest.raises(ConfigError) as caught:
        ConnectionConfig.from_connection(connection(extra={"clustr": "main"}))
    assert "clustr" in str(caught.value)
    assert " auth," not in str(caught.value), "it is refused as an extra"


@pytest.mark.parametrize("text", ['{"tls": true,}', '["tls"]', '"tls"', "tls"])
def test_an_extra_that_is_no_object_is_refused(text: str) -> None:
    made = Connection(conn_id="odd", conn_type="tubemq", host="m1")
    made.extra = text
    with pytest.raises(ConfigError, match="extra: it is no JSON object"):
        ConnectionConfig.from_connection(made)


def test_fields_without_effect_are_refused() -> None:
    both = {"tls": {"ca_file": "/etc/ca.pem"}, "tls_cert_file": "/me.pem"}
    with pytest.raises(ConfigError) as caught:
        ConnectionConfig.from_connection(connection("m1,m2", both, port=8000))
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["port", "tls"]


@pytest.mark.parametrize(("host", "port"), [("m1:8000", 9000), ("[::1]:8000", 9000), ("m1;m2", 9)])
def test_a_port_that_would_have_no_effect_is_refused(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="port: "):
        ConnectionConfig.from_connection(connection(host, port=port))


def test_masters_beside_a_host_are_refused() -> None:
    with pytest.raises(ConfigError, match="masters: not an extra beside a host"):
        ConnectionConfig.from_connection(connection("m1", {"masters": "m2"}))


@pytest.mark.parametrize("host", ["::1", "[::1]", "[::1]:9000"])
def test_the_port_of_an_address_of_ipv6_counts(host: str) -> None:
    given = connection(host, port=9000)
    assert ConnectionConfig.from_connection(given).masters == (("::1", 9000),)
    assert RocketMQConnection.from_connection(given).name_servers == (("::1", 9000),)


def test_a_password_in_a_host_beside_a_port_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        ConnectionConfig.from_connection(connection("u:s3cret-word@m1", port=9000))
    assert "s3cret-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "extra"),
    [
        (RocketMQConnection, {"name_servers": "https://user:s3cret@m/"}),
        (RocketMQConnection, {"name_servers": "https://user:s3cret,s3cret@m/"}),
        (RocketMQConnection, {"name_servers": "m", "cluster": "https://user:s3cret@m/"}),
        (RocketMQConnection, {"name_servers": "m", "rpc_timeout_ms": "user:s3cret@m"}),
        (ConnectionConfig, {"masters": "https://user:s3cret@m/"}),
        (ConnectionConfig, {"masters": "m", "admin_url": "https://user:s3cret@m/"}),
        (ConnectionConfig, {"masters": "m", "admin_url": "ftp://m/?token=s3cret"}),
    ],
)
def test_no_error_of_a_connection_repeats_what_may_be_a_password(model: Any, extra: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        model.from_connection(connection(host="", extra=extra))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("extra", ['{"cluster": "a", "cluster": "b"}', '{"tls": {"a": 1, "a": 2}}'])
def test_an_extra_with_a_name_twice_is_refused_by_that_name(extra: str) -> None:
    given = Connection(conn_id="c", conn_type="tubemq", host="m:1", extra=extra)
    with pytest.raises(ConfigError, match=r"extra: '(cluster|a)' occurs twice"):
        extra_fields(given)
