"""Fields of the RocketMQ connection form, and errors for mistakes in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from rocketmq_client import ConsumerSettings, Producer
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.errors import ConfigError
from rocketmq_client.model import Credentials, address_text
from tubemq_provider.hooks.rocketmq import RocketMQConnection, RocketMQHook

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


def test_a_member_of_a_group_is_opened_from_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1}) as rocketmq:
        place = {"conn_type": "rocketmq", "host": address_text(rocketmq.name_server)}
        monkeypatch.setenv("AIRFLOW_CONN_ROCKETMQ_DEFAULT", json.dumps(place))
        with Producer(rocketmq.settings) as producer:
            producer.send("orders", b"x")
        first = ConsumerSettings(consume_from="first")
        with RocketMQHook().consumer({"orders": ()}, "crew", settings=first) as member:
            batch = member.receive(20_000)
            assert batch is not None
            assert [message.body for message in batch.messages] == [b"x"]
            member.confirm(batch)
        with pytest.raises(ConfigError, match="group"):
            RocketMQHook().consumer({"orders": ()})
