"""Clusters for scenarios: the embedded RocketMQ, or a genuine one of either line.

A site gives settings and fresh topics, and can kill and start its broker. Genuine clusters are
started once per session; where they are not available, tests are skipped, or fail where they must
run.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from rocketmq_client import Admin, ClientSettings
from rocketmq_client.embedded import EmbeddedRocketMQ
from tools.devkit.isolation import can_isolate, is_isolated
from tools.devkit.rocketmq.artifacts import LINES, Line, cached_artifacts
from tools.devkit.rocketmq.genuine import GenuineRocketMQ
from tubemq_provider.engines.java import JavaUnavailable, find_java

GENUINE = [pytest.param(line, marks=pytest.mark.real) for line in LINES]
ALL = ["embedded", *GENUINE]

TWO = " of two brokers"
"""Suffix of names of genuine clusters that also have `broker-b`."""

_SOON = {"transactionCheckInterval": "5000"}
"""Brokers check open transactions after seconds, not minutes."""

_NUMBERS = itertools.count(1)


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("TUBEMQ_REQUIRE_GENUINE") == "1":
        pytest.fail(f"a genuine RocketMQ is required here: {reason}", pytrace=False)
    pytest.skip(reason)


class Site:
    """Cluster with `broker-a`."""

    def __init__(self, name: str, cluster: EmbeddedRocketMQ | GenuineRocketMQ) -> None:
        self.name = name
        self.cluster = cluster

    def __repr__(self) -> str:
        return self.name

    @property
    def genuine(self) -> bool:
        return isinstance(self.cluster, GenuineRocketMQ)

    @property
    def settings(self) -> ClientSettings:
        return self.cluster.settings

    def topic(self, queues: int = 4, **options: object) -> str:
        """Create a topic without records; return its name."""
        name = f"topic-{os.getpid()}-{next(_NUMBERS)}"
        with Admin(self.settings) as admin:
            admin.create_topic(name, queues=queues, **options)  # type: ignore[arg-type]
        return name


@contextmanager
def site_of(name: str, directory: Path) -> Iterator[Site]:
    if name == "embedded":
        with EmbeddedRocketMQ() as mq:
            yield Site(name, mq)
        return
    line: Line = "4.9.7" if name.startswith("4.9.7") else "5.5.0"
    with GenuineRocketMQ(
        line,
        directory,
        brokers=2 if name.endswith(TWO) else 1,
        broker_options=_SOON,
        **require(line),  # type: ignore[arg-type]
    ) as cluster:
        yield Site(name, cluster)


def require(line: Line) -> dict[str, object]:
    """Return the requirements of a genuine cluster; skip the test, or fail where it must run."""
    artifacts = cached_artifacts(line)
    if artifacts is None:
        _unavailable("no RocketMQ jars; run: python -m tools.devkit.rocketmq.artifacts")
    try:
        java = find_java()
    except JavaUnavailable as exc:
        _unavailable(str(exc))
    if not is_isolated() and can_isolate():
        _unavailable(
            "the servers bind every interface; run: "
            "python -m tools.devkit.isolation -- python -m pytest -m real"
        )
    return {"artifacts": artifacts, "java": java}
