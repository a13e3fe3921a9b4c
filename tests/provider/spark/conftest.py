"""Fixtures: a fresh cluster for a test, and one Spark session for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kit.certificates import Certificates, make_certificates
from tests.provider.sinks.object_server import object_server
from tests.provider.spark.world import TOPIC, USER, SecuredWorld, World
from tools.devkit.spark import SparkCluster
from tubemq_client.embedded import EmbeddedTubeMQ, Security, ServerTls, Switches, TopicSpec
from tubemq_client.model import TlsSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def world() -> Iterator[World]:
    topic = TopicSpec(TOPIC, stores=1, partitions=2)
    with EmbeddedTubeMQ(brokers=2, topics=[topic], http=False) as mq:
        yield World(mq)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Start a standalone cluster of two workers with separate directories. Takes some seconds."""
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
    """Return the options of the bucket `lake` of a loopback object store."""
    with object_server() as options:
        yield options


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a local session, configured like the engine's. Takes some seconds, once."""
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


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def secured(certs: Certificates) -> Iterator[SecuredWorld]:
    security = Security(
        produce=True,
        consume=True,
        users={USER.username: USER.password},
        visit_tokens=True,
        visit_token_grace_ms=0,
    )
    with EmbeddedTubeMQ(
        brokers=2,
        topics=[TopicSpec(TOPIC, partitions=2)],
        http=False,
        switches=Switches(security=security),
        tls=ServerTls(
            cert_file=certs.server.cert, key_file=certs.server.key, client_ca_file=certs.ca
        ),
    ) as mq:
        world = SecuredWorld(mq)
        world.tls = TlsSettings(certs.ca, certs.client.cert, certs.client.key)
        yield world
