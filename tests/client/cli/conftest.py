"""The command line against an embedded cluster of two brokers with shared stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.client.cli.rows import FIRST_DAY, TOPIC, Outcome, flights
from tests.kit.servers import embedded_tubemq
from tubemq_client.cli.app import build_app
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec

Run = Callable[..., Outcome]


mq = embedded_tubemq(
    [TopicSpec(TOPIC, stores=2, partitions=2), "plain"],
    brokers=2,
    scope="module",
    http=True,
    switches=Switches(flush_interval_ms=50),
)


@pytest.fixture
def fresh(mq: EmbeddedTubeMQ, request: pytest.FixtureRequest) -> str:
    """Create a topic for this test only."""
    name = f"t_{abs(hash(request.node.name)):x}"
    mq.add_topic(TopicSpec(name, stores=2, partitions=2))
    return name


@pytest.fixture
def run(mq: EmbeddedTubeMQ) -> Run:
    """`run("ends", TOPIC)`: the command with the cluster's address in the environment."""

    def invoke(*arguments: object, text: str | None = None) -> Outcome:
        found = CliRunner().invoke(
            build_app(),
            [str(a) for a in arguments],
            input=text,
            env={
                "TUBEMQ_MASTERS": mq.masters,
                "TUBEMQ_ADMIN": mq.master_web,
                "TUBEMQ_ADMIN_TOKEN": "abc",
            },
        )
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return Outcome(found.exit_code, found.stdout, found.stderr)

    return invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three days of rows, 60 a day, in time order, as JSON lines."""
    path = tmp_path / "flights.jsonl"
    lines = [json.dumps(row) for row in flights(FIRST_DAY, days=3, a_day=60)]
    path.write_text("\n".join(lines) + "\n")
    return path
