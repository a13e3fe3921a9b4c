"""Fixtures: a fresh cluster for a test, and one Spark session for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

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
