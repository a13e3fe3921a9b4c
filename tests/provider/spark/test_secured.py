"""Windows from a cluster that asks for a user, a visit token and a client certificate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.kit.certificates import Certificates, make_certificates
from tests.provider.spark.test_session_engine import silent, written
from tests.provider.spark.world import TOPIC, World
from tubemq_client import ClientSettings
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Security, ServerTls, Switches, TopicSpec
from tubemq_client.errors import AuthenticationFailed
from tubemq_client.model import Credentials, TlsSettings
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.windows.protocols import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

USER = Credentials("etl", "s3cret-word")


class SecuredWorld(World):
    """A world that only its user sees, over mutual TLS."""

    tls: TlsSettings

    @property
    def settings(self) -> ClientSettings:
        masters = ClientConfig.parse({"masters": self.mq.tls_masters}).masters
        return ClientSettings(masters=masters, auth=USER, tls=self.tls)


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


@pytest.mark.parametrize("direct_write", ["on", "off"])
def test_a_window_is_read_and_no_plan_shows_the_password(
    spark: SparkSession, secured: SecuredWorld, tmp_path: Path, direct_write: Literal["on", "off"]
) -> None:
    secured.produce(100)
    staging = Staging("w-1", "try-1", str(tmp_path))
    engine = SessionEngine(secured.settings, direct_write=direct_write)
    counts = engine.ingest(secured.plan(secured.whole()), staging, silent)
    assert counts.total == 100
    assert written(staging) == secured.expected(secured.whole())
    plans = shown_plans(spark)
    assert plans
    assert USER.password not in "\n".join(plans)


def shown_plans(spark: SparkSession) -> list[str]:
    """What Spark's web pages say of every query so far."""
    store = spark._jsparkSession.sharedState().statusStore()  # type: ignore[attr-defined]
    found = store.executionsList()
    return [found.apply(n).physicalPlanDescription() for n in range(found.size())]


def test_the_wrong_password_fails_with_the_name_of_the_option(
    spark: SparkSession, secured: SecuredWorld, tmp_path: Path
) -> None:
    secured.produce(10)
    plan = secured.plan(secured.whole())
    wrong = replace(secured.settings, auth=Credentials(USER.username, "guess"))
    with pytest.raises(AuthenticationFailed, match=r"auth\.password"):
        SessionEngine(wrong).ingest(plan, Staging("w-1", "try-1", str(tmp_path)), silent)
