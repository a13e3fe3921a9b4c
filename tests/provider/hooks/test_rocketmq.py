"""Fields of the RocketMQ connection form, and errors for mistakes in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from rocketmq_client.errors import ConfigError
from rocketmq_client.model import Credentials
from tubemq_provider.hooks.rocketmq import RocketMQConnection

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]


def connection(extra: Any = None, **fields: Any) -> Connection:
    return Connection(
        conn_id="rocketmq_default",
        conn_type="rocketmq",
        host="ns1:9876;ns2",
        extra=json.dumps(extra or {}),
        **fields,
    )


def test_login_password_and_token_sign_requests_and_are_never_shown() -> None:
    config = RocketMQConnection.from_connection(
        connection({"security_token": "t0ken-word"}, login="k", password="s3cret-word")
    )
    assert config.settings().auth == Credentials("k", "s3cret-word", "t0ken-word")
    shown = f"{config!r} {config} {config.settings()!r}"
    assert not [word for word in ("s3cret-word", "t0ken-word") if word in shown]


def test_a_token_without_the_key_that_it_belongs_to_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"security_token: .* without login") as caught:
        RocketMQConnection.from_connection(connection({"security_token": "t0ken-word"}))
    assert "t0ken-word" not in str(caught.value)
    blank = RocketMQConnection.from_connection(connection({"security_token": ""}))
    assert blank.settings().auth is None


def test_an_extra_that_is_no_object_is_refused() -> None:
    made = connection({})
    made.extra = '["security_token"]'
    with pytest.raises(ConfigError, match="extra: it is no JSON object"):
        RocketMQConnection.from_connection(made)


def test_a_token_that_is_a_number_is_refused_without_repeating_it() -> None:
    given = connection({"security_token": 20261123777}, login="k", password="p")
    with pytest.raises(ConfigError, match=r"auth\.security_token") as caught:
        RocketMQConnection.from_connection(given)
    assert "20261123777" not in str(caught.value)
