"""The command on a genuine cluster: looking, moving positions, consuming, the doctor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from tests.client.cli.rows import Outcome
from tests.system.behaviour.sites import SINGLE, eventually
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client.cli.app import build_app

pytestmark = pytest.mark.real


@pytest.fixture
def tubemq(genuine: GenuineTubeMQ) -> Callable[..., Outcome]:
    environment = {
        "TUBEMQ_MASTERS": genuine.masters,
        "TUBEMQ_ADMIN": genuine.master_web,
        "TUBEMQ_ADMIN_TOKEN": genuine.admin_token,
    }

    def invoke(*arguments: object, text: str | None = None) -> Outcome:
        words = [str(a) for a in arguments]
        found = CliRunner().invoke(build_app(), words, input=text, env=environment)
        return Outcome(found.exit_code, found.stdout, found.stderr)

    return invoke


def test_the_doctor_finds_nothing(tubemq: Callable[..., Outcome]) -> None:
    outcome = tubemq("doctor", "--topic", SINGLE, "-o", "jsonl")
    assert outcome.code == 0, outcome
    steps = {row["step"]: row["state"] for row in outcome.rows()}
    assert (steps["clock"], steps["read"], steps["admin"]) == ("ok", "ok", "ok")


def test_produce_consume_and_move(tubemq: Callable[..., Outcome], genuine: GenuineTubeMQ) -> None:
    place = f"{genuine.broker_id}:0"
    sent = tubemq("produce", SINGLE, "-o", "jsonl", text='{"a": 1}\n{"a": 2}\n').rows()[0]
    end = sent["until_offsets"][place] if sent["until_offsets"] else None
    rows = tubemq("ends", SINGLE, "--latest", "-o", "jsonl").rows()
    end = end or rows[0]["latest"]
    got = tubemq("consume", SINGLE, "--from", f"{place}={end - 56}", "-o", "raw")
    assert got.out.split("\n")[:2] == ['{"a": 1}', '{"a": 2}']

    assert tubemq("offsets", "set", "cli_real", SINGLE, f"{place}={end - 28}", "--yes").code == 0
    found = eventually(
        lambda: (
            [
                row
                for row in tubemq(
                    "offsets", "show", "cli_real", "--topic", SINGLE, "-o", "jsonl"
                ).rows()
                if row["position"] is not None
            ]
            or None
        )
    )
    assert (found[0]["position"], found[0]["lag"]) == (end - 28, 1)
    assert SINGLE in tubemq("topics", "list").out
    assert "running" in tubemq("brokers", "list").out
    assert tubemq("topics", "create", SINGLE).code == 1
