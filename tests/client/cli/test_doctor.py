"""`tubemq doctor`: every step reports, the exit code names the first class that failed."""

from __future__ import annotations

import socket

import pytest

from tests.client.admin.test_hostile_servers import GOOD, head, web
from tests.client.cli.conftest import Run
from tests.client.cli.rows import TOPIC
from tubemq_client.embedded import EmbeddedTubeMQ

DEAD = "127.0.0.1:1"


def states(rows: list[dict[str, str]]) -> dict[str, str]:
    """Worst state of each step."""
    order = ["skipped", "ok", "warning", "failed"]
    found: dict[str, str] = {}
    for row in rows:
        worst = max(found.get(row["step"], "skipped"), row["state"], key=order.index)
        found[row["step"]] = worst
    return found


def test_a_sound_cluster(run: Run) -> None:
    outcome = run("doctor", "--topic", TOPIC, "-o", "jsonl")
    assert outcome.code == 0
    assert states(outcome.rows()) == {
        "names": "ok",
        "masters": "ok",
        "tls": "skipped",
        "register": "ok",
        "topic": "ok",
        "brokers": "ok",
        "admin": "ok",
        "clock": "ok",
        "read": "ok",
    }
    assert run("doctor").code == 0


@pytest.mark.parametrize(
    ("options", "code", "failed"),
    [
        (("--masters", "no-such-host.invalid"), 3, {"names", "masters"}),
        (("--masters", "m1..example:8715"), 3, {"names", "masters"}),
        (("--masters", DEAD), 4, {"masters"}),
        (("--topic", "nowhere"), 7, {"topic"}),
        (("--admin", DEAD), 9, {"admin"}),
    ],
)
def test_the_first_class_that_failed(
    run: Run, options: tuple[str, ...], code: int, failed: set[str]
) -> None:
    outcome = run("doctor", *options, "-o", "jsonl")
    assert outcome.code == code
    assert {step for step, state in states(outcome.rows()).items() if state == "failed"} == failed
    assert all(row["hint"] for row in outcome.rows() if row["state"] == "failed")


def test_one_dead_master_of_two_is_a_warning(run: Run, mq: EmbeddedTubeMQ) -> None:
    outcome = run("doctor", "--masters", f"{DEAD},{mq.masters}", "-o", "jsonl")
    assert (outcome.code, states(outcome.rows())["masters"]) == (0, "warning")


def test_a_port_that_is_no_tubemq(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        outcome = run("doctor", "--masters", place, "--rpc-timeout-ms", 1_000)
    assert outcome.code == 6
    assert "RPC port" in outcome.out


def test_an_http_port_is_reported_as_one(run: Run, mq: EmbeddedTubeMQ) -> None:
    outcome = run("doctor", "--masters", mq.master_web, "-o", "jsonl")
    (found,) = (row for row in outcome.rows() if row["state"] == "failed")
    assert "this is an HTTP port" in found["detail"]
    assert "8715" in found["hint"]


def test_a_broker_that_is_down(run: Run) -> None:
    with EmbeddedTubeMQ(2, [TOPIC]) as mq:
        mq.broker(2).crash()
        options = ("--masters", mq.masters, "--admin", mq.master_web, "--topic", TOPIC)
        outcome = run("doctor", *options, "-o", "jsonl")
    assert outcome.code == 8
    found = states(outcome.rows())
    assert (found["brokers"], found["register"]) == ("failed", "ok")
    # It continues: the other broker is read from.
    assert [r["state"] for r in outcome.rows() if r["step"] == "read"] == ["ok", "failed"]


def test_a_password_in_an_address_is_not_repeated(run: Run) -> None:
    outcome = run("doctor", "--admin", f"http://me:t0p-secret@{DEAD}", "-o", "jsonl")
    assert "is not http://host:port" in outcome.out
    assert "t0p-secret" not in outcome.out + outcome.err


@pytest.mark.parametrize("greeting", [b"SSH-2.0-x\r\n", head(len(GOOD), "Date: now") + GOOD])
def test_a_port_that_is_no_web_server_of_a_master(run: Run, greeting: bytes) -> None:
    with web(lambda connection, _: connection.sendall(greeting)) as url:
        outcome = run("doctor", "--admin", url, "-o", "jsonl")
    assert (outcome.code, states(outcome.rows())["clock"]) == (9, "skipped")
