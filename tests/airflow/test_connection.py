"""What a user can put into the connection form, and what is answered to mistakes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from tubemq_client.errors import ConfigError
from tubemq_provider.hooks.connection import ConnectionConfig
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


def test_credentials_are_refused_and_never_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        ConnectionConfig.from_connection(connection(login="u", password="s3cret-word"))
    assert "does not authenticate" in str(caught.value)
    assert "s3cret-word" not in str(caught.value)


def test_repr_of_the_hook_names_the_connection_only() -> None:
    assert repr(TubeMQHook("prod_mq")) == "TubeMQHook('prod_mq')"
