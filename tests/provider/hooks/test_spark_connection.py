"""Connections of the type ``spark`` without the provider that has the type."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.hooks.spark_connection import spark_settings


def connection(extra: Any = None, **given: Any) -> Any:
    fields = {"conn_id": "lab", "conn_type": "spark", "host": None, "port": None, **given}
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
    ],
)
def test_host_and_port_are_the_master(given: dict[str, Any], master: str) -> None:
    assert spark_settings(connection(**given)) == {"spark.master": master}


def test_extras_become_settings() -> None:
    extra = {"queue": "night", "deploy-mode": "client", "spark.executor.cores": 2}
    assert spark_settings(connection(extra, host="yarn")) == {
        "spark.master": "yarn",
        "spark.yarn.queue": "night",
        "spark.executor.cores": "2",
    }


def test_what_would_have_no_effect_is_refused_all_at_once() -> None:
    extra = {"deploy-mode": "cluster", "colour": "green"}
    with pytest.raises(ConfigError) as caught:
        spark_settings(connection(extra, conn_type="http"))
    assert len(caught.value.problems) == 4
    with pytest.raises(ConfigError, match="no JSON object"):
        spark_settings(connection([1], host="yarn"))
