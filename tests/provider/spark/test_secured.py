"""Windows from a cluster that asks for a user, a visit token and a client certificate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from tests.provider.spark.test_session_engine import written
from tests.provider.spark.world import USER, SecuredWorld
from tubemq_client.errors import AuthenticationFailed
from tubemq_client.model import Credentials
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.windows.protocols import IngestWatch, Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


@pytest.mark.parametrize("direct_write", ["on", "off"])
def test_a_window_is_read_and_no_plan_shows_the_password(
    spark: SparkSession, secured: SecuredWorld, tmp_path: Path, direct_write: Literal["on", "off"]
) -> None:
    secured.produce(100)
    staging = Staging("w-1", "try-1", str(tmp_path))
    engine = SessionEngine(secured.settings, direct_write=direct_write)
    counts = engine.ingest(secured.plan(secured.whole()), staging, IngestWatch())
    assert counts.total == 100
    assert written(staging) == secured.expected(secured.whole())
    plans = shown_plans(spark)
    assert plans
    assert USER.password not in "\n".join(plans)


def shown_plans(spark: SparkSession) -> list[str]:
    """Return Spark's web pages of every query so far."""
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
        SessionEngine(wrong).ingest(plan, Staging("w-1", "try-1", str(tmp_path)), IngestWatch())
