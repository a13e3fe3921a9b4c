"""A connection of the type ``spark`` becomes the master of whatever engine runs in Spark."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.provider.hooks.test_spark_connection import connection
from tubemq_client.config import ClientConfig
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.validation import parse
from tubemq_provider.ingest.values import Spark, SparkConnect, SparkSubmit, expand_values
from tubemq_provider.operators.job import open_job
from tubemq_provider.sources.tubemq.source import TubeMQSource


class Hook:
    """Hook whose cluster receives no query."""

    admin_url = None

    def expect_cluster(self, cluster: str) -> None:
        """Accept any cluster."""

    def source(self, topic: str, group: str, filters: Any = ()) -> TubeMQSource:
        settings = ClientConfig.parse({"masters": "127.0.0.1:1"}).settings()
        return TubeMQSource(settings, identity="main", topic=topic, group=group, filters=filters)

    def get_connection(self, conn_id: str) -> Any:
        extra = {"queue": "night", "spark.executor.memory": "1g"}
        return connection(extra, conn_id=conn_id, host="master1", port=7077)


@pytest.mark.parametrize("kind", [Spark, SparkSubmit])
def test_the_connection_has_the_master_and_the_dag_the_engine(kind: Any, tmp_path: Path) -> None:
    value = kind(conf={"spark.executor.memory": "4g"}, conn_id="lab")
    given = {"topic": "orders", "group": "lake", "cluster": "main", "path": str(tmp_path)}
    more = {"engine": value, "initial_position": "earliest"}
    arguments = parse(IngestArguments, expand_values({**given, **more}))

    with ExitStack() as stack:
        engine: Any = open_job(arguments, Hook(), (None, None), stack)._engine
        made = getattr(engine, "_runtime", engine)

    assert made._master == "spark://master1:7077"
    assert made._conf["spark.executor.memory"] == "4g"
    assert made._conf["spark.yarn.queue"] == "night"


def test_a_server_of_spark_connect_and_its_token(tmp_path: Path) -> None:
    class Served(Hook):
        def get_connection(self, conn_id: str) -> Any:
            given = {"host": "connect1", "port": 15002, "login": "etl", "password": "hush-hush"}
            return connection({"use_ssl": True}, conn_type="spark_connect", **given)

    engine = SparkConnect(conf={"spark.sql.ansi.enabled": "false"}, conn_id="lab")
    given = {"topic": "orders", "group": "lake", "cluster": "main", "path": str(tmp_path)}
    arguments = parse(
        IngestArguments, expand_values({**given, "engine": engine, "initial_position": "earliest"})
    )

    with ExitStack() as stack:
        job: Any = open_job(arguments, Served(), (None, None), stack)

    runtime = job._engine._runtime
    assert runtime._remote == "sc://connect1:15002/;user_id=etl;use_ssl=true"
    assert runtime._conf == {"spark.sql.ansi.enabled": "false"}
    assert runtime._token == "hush-hush"
    assert "hush-hush" not in repr(job._arguments)
