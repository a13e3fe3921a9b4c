"""Fixtures: a fresh cluster for a test, and one Spark session for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from devkit.spark import SparkCluster
from tests.provider.sinks.object_server import object_server
from tests.provider.spark.world import TOPIC, World
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def world() -> Iterator[World]:
    topic = TopicSpec(TOPIC, stores=1, partitions=2)
    with EmbeddedTubeMQ(brokers=2, topics=[topic], http=False) as mq:
        yield World(mq)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A standalone cluster of two workers with directories of their own. Costs some seconds."""
    pytest.importorskip("pyspark")
    from tubemq_provider.engines.java import JavaUnavailable, find_java

    try:
        java = find_java().home
    except JavaUnavailable as error:
        pytest.skip(str(error))
    with SparkCluster(tmp_path_factory.mktemp("cluster"), java) as started:
        yield started


@pytest.fixture(scope="session")
def lake() -> Iterator[dict[str, str]]:
    """What opens the bucket `lake` of a loopback object store."""
    with object_server() as options:
        yield options


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session, started the way the engine starts one. Costs some seconds, once."""
    pytest.importorskip("pyspark")
    from tubemq_provider.engines.java import JavaUnavailable
    from tubemq_provider.engines.spark_runtime import open_session

    conf = {
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.showConsoleProgress": "false",
    }
    try:
        session, _ = open_session("local[2]", conf)
    except JavaUnavailable as error:
        pytest.skip(str(error))
    yield session
    session.stop()
