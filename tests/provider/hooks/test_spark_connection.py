"""Connections of the types ``spark`` and ``spark_connect`` without the provider that has them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.hooks.spark_connection import spark_settings


def connection(extra: Any = None, **given: Any) -> Any:
    fields = {"conn_id": "lab", "conn_type": "spark", "host": None, "port": None}
    fields |= {"login": None, "password": None, **given}
    return SimpleNamespace(**fields, extra=None if extra is None else json.dumps(extra))


@pytest.mark.parametrize(
    ("given", "master"),
    [
        ({"host": "spark://master1", "port": 7077}, "spark://master1:7077"),
        ({"host": "master1", "port": 7077}, "spark://master1:7077"),
        ({"host": "localhost", "port": 7077}, "spark://localhost:7077"),
        ({"host": "yarn1.lab", "port": 7077}, "spark://yarn1.lab:7077"),
        ({"host": "yarn"}, "yarn"),
        ({"host": "local[4]"}, "local[4]"),
        ({"host": "k8s://https://kube", "port": 6443}, "k8s://https://kube:6443"),
        ({"host": "fd00::5", "port": 7077}, "spark://[fd00::5]:7077"),
        ({"host": "spark://a:7077,b:7077"}, "spark://a:7077,b:7077"),
    ],
)
def test_host_and_port_are_the_master(given: dict[str, Any], master: str) -> None:
    assert spark_settings(connection(**given), "submit") == {"spark.master": master}


def test_extras_become_settings() -> None:
    extra = {"queue": "night", "deploy-mode": "cluster", "spark.executor.cores": 2}
    extra["spark.memory.fraction"] = 0.5
    assert spark_settings(connection(extra, host="yarn"), "session") == {
        "spark.master": "yarn",
        "spark.yarn.queue": "night",
        "spark.submit.deployMode": "cluster",
        "spark.executor.cores": "2",
        "spark.memory.fraction": "0.5",
    }


def test_what_would_have_no_effect_is_refused_all_at_once() -> None:
    extra = {"spark-binary": "spark3-submit", "colour": "green"}
    with pytest.raises(ConfigError) as caught:
        spark_settings(connection(extra), "session")
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match=r"extra 'spark.master' is set by host and port"):
        spark_settings(connection({"spark.master": "local[2]"}, host="yarn"), "submit")
    server = connection({"spark.remote": "sc://c2"}, host="c1", conn_type="spark_connect")
    with pytest.raises(ConfigError, match=r"extra 'spark.remote' is set by host and port"):
        spark_settings(server, "connect")
    with pytest.raises(ConfigError, match="no JSON object"):
        spark_settings(connection([1], host="yarn"), "session")
    with pytest.raises(ConfigError, match="not 'spark'"):
        spark_settings(connection(host="yarn", conn_type="http"), "session")


def test_a_server_of_spark_connect() -> None:
    extra = {"use_ssl": True, "spark.sql.ansi.enabled": False}
    who = {"login": "data team", "password": "hush-hush", "conn_type": "spark_connect"}
    assert spark_settings(connection(extra, host="sc://c1", port=443, **who), "connect") == {
        "spark.remote": "sc://c1:443/;user_id=data%20team;use_ssl=true",
        "spark.sql.ansi.enabled": "false",
        "spark.connect.authenticate.token": "hush-hush",
    }
    plain = connection(host="c1", conn_type="spark_connect")
    assert spark_settings(plain, "connect") == {"spark.remote": "sc://c1"}
    six = connection(host="fd00::5", port=15002, conn_type="spark_connect")
    assert spark_settings(six, "connect") == {"spark.remote": "sc://[fd00::5]:15002"}
    with pytest.raises(ConfigError) as caught:
        spark_settings(connection({"queue": "night"}, conn_type="spark_connect"), "connect")
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigError, match="not 'spark_connect', which engine='connect' takes"):
        spark_settings(connection(host="yarn"), "connect")
