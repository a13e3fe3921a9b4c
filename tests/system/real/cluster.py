"""One genuine TubeMQ for the whole test session, or one line with the reason why there is none.

`tests/conftest.py` imports the fixtures, so that every folder gets the same clusters.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.system.real import topics
from tools.devkit.isolation import can_isolate, is_isolated
from tools.devkit.tubemq.artifacts import Artifacts, cached_artifacts
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tools.devkit.tubemq.two_brokers import TwoBrokers
from tubemq_provider.engines.java import JavaRuntime, JavaUnavailable, find_java


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("TUBEMQ_REQUIRE_GENUINE") == "1":
        pytest.fail(f"a genuine TubeMQ is required here: {reason}", pytrace=False)
    pytest.skip(reason)


def require_genuine() -> tuple[Artifacts, JavaRuntime]:
    """Return the needs of a genuine cluster; skip the test, or fail where it must not be
    skipped."""
    artifacts = cached_artifacts()
    if artifacts is None:
        _unavailable("no TubeMQ jars; run: python -m tools.devkit.tubemq.artifacts")
    try:
        java = find_java()
    except JavaUnavailable as exc:
        _unavailable(str(exc))
    if not is_isolated() and can_isolate():
        _unavailable(
            "the servers bind every interface; run: "
            "python -m tools.devkit.isolation -- python -m pytest -m real"
        )
    return artifacts, java


@pytest.fixture(scope="session")
def genuine(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[GenuineTubeMQ]:
    """Start a cluster on which every topic of `tests.system.real.topics` is accepted."""
    artifacts, java = require_genuine()
    directory = tmp_path_factory.mktemp("genuine")
    with GenuineTubeMQ(
        directory,
        topics=topics.ALL,
        artifacts=artifacts,
        java=java,
        # The shortest that a broker accepts, so that tests of arrival time need not wait a minute.
        broker_options={"groupOffsetScanDurMs": "20000"},
    ) as cluster:
        if any(
            "two_brokers" in getattr(item, "fixturenames", ()) for item in request.session.items
        ):
            request.getfixturevalue("pair_of_brokers")  # both become ready in the same half minute
        cluster.wait_accepting()
        yield cluster


@pytest.fixture(scope="session")
def pair_of_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    """Start a cluster next to `genuine`, perhaps not ready yet; use `two_brokers` instead."""
    artifacts, java = require_genuine()
    directory = tmp_path_factory.mktemp("two-brokers")
    with TwoBrokers(
        directory, topics=topics.ON_TWO_BROKERS, artifacts=artifacts, java=java
    ) as pair:
        yield pair


@pytest.fixture
def two_brokers(pair_of_brokers: TwoBrokers) -> TwoBrokers:
    """Return two genuine brokers that accept `topics.ON_TWO_BROKERS`, from any earlier state.

    A test may stop, kill or retire them; the next one waits some 35 s until they serve again.
    """
    pair_of_brokers.restore_both()
    return pair_of_brokers
