"""Every command reaches a cluster with users and TLS, and `doctor` names the missing option.

A cluster that requires a user, over TLS with client certificates, is reached with `--config` and
the environment alone: so any option of the connection works.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.client.cli.rows import Outcome
from tests.client.cli.test_doctor import states
from tests.kit.certificates import Certificates, Pair, make_certificates
from tubemq_client.cli.app import build_app
from tubemq_client.embedded import EmbeddedTubeMQ, Security, ServerTls, Switches, TopicSpec

PASSWORD = "hunter2"
AUTHENTICATED = Security(produce=True, consume=True, users={"loader": PASSWORD})

Command = Callable[..., Outcome]


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def secured(certs: Certificates, pair: Pair | None = None, *, mutual: bool = False) -> ServerTls:
    shown = pair or certs.server
    return ServerTls(
        cert_file=shown.cert, key_file=shown.key, client_ca_file=certs.ca if mutual else None
    )


@pytest.fixture(scope="module")
def guarded(certs: Certificates) -> Iterator[EmbeddedTubeMQ]:
    """Users and client certificates."""
    switches = Switches(security=AUTHENTICATED, flush_interval_ms=50)
    tls = secured(certs, mutual=True)
    topics = [TopicSpec("orders")]
    with EmbeddedTubeMQ(1, topics, switches=switches, tls=tls) as mq:
        yield mq


@pytest.fixture
def command(tmp_path: Path, certs: Certificates) -> Command:
    """`command(masters, "ends", "orders", tls={…})` runs with a separate option file."""

    def run(masters: str | None, *words: object, tls: dict[str, str] | None, **env: str) -> Outcome:
        config = tmp_path / "tubemq.toml"
        lines = [f"masters = {json.dumps(masters)}", "rpc_timeout_ms = 5000"]
        lines += ["heartbeat_period_ms = 1000", "[auth]"]
        lines += ['username = "loader"', f'password = "{PASSWORD}"']
        if tls is not None:
            lines += ["[tls]", *(f"{name} = {json.dumps(value)}" for name, value in tls.items())]
        config.write_text("\n".join(lines))
        given = ["--config", str(config), *map(str, words)]
        text = env.pop("text", None)
        found = CliRunner().invoke(build_app(), given, input=text, env=env)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return Outcome(found.exit_code, found.stdout, found.stderr)

    return run


def test_records_go_in_and_come_out_of_a_guarded_cluster(
    command: Command, guarded: EmbeddedTubeMQ, certs: Certificates
) -> None:
    tls = {"ca_file": certs.ca, "cert_file": certs.client.cert, "key_file": certs.client.key}

    def run(*words: object, **more: str) -> Outcome:
        outcome = command(guarded.tls_masters, *words, tls=tls, **more)
        assert outcome.code == 0, outcome
        return outcome

    rows = [json.dumps({"number": n}) for n in range(5)]
    run("produce", "orders", text="\n".join(rows))
    guarded.broker(1).flush()
    for words in (
        ("read-range", "orders", "1:0", 0, 140),
        ("consume", "orders"),
        ("consume", "orders", "--follow", "--group", "following", "--limit", 5),
        ("consume", "orders", "--balanced", "--group", "sharing", "--limit", 5),
    ):
        found = run(*words).rows()
        assert [json.loads(row["value"])["number"] for row in found] == list(range(5)), words
    assert [row["latest"] for row in run("ends", "orders", "--latest", "-o", "jsonl").rows()] == [
        140
    ]
    assert run("partitions", "orders", "-o", "jsonl").rows()[0]["partition"] == "1:0"
    admin = {"TUBEMQ_ADMIN": guarded.master_web or ""}
    lag = run("lag", "orders", "--group", "following", "-o", "jsonl", **admin)
    assert [row["lag"] for row in lag.rows()] == [0]
    sound = run("doctor", "--topic", "orders", "-o", "jsonl", **admin)
    assert set(states(sound.rows()).values()) == {"ok"}


@pytest.mark.parametrize("words", [("produce", "orders"), ("read-range", "orders", "1:0", 0, 28)])
def test_the_environment_overrules_the_file(
    command: Command, guarded: EmbeddedTubeMQ, certs: Certificates, words: tuple[object, ...]
) -> None:
    tls = {"ca_file": certs.ca, "cert_file": certs.client.cert, "key_file": certs.client.key}
    wrong = {"TUBEMQ_AUTH_PASSWORD": "wrong"}
    outcome = command(guarded.tls_masters, *words, tls=tls, text="{}", **wrong)
    assert (outcome.code, "auth.password" in outcome.err) == (1, True)
    assert "wrong" not in outcome.out + outcome.err


# -- the TLS step of the doctor -------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_way(certs: Certificates) -> Iterator[EmbeddedTubeMQ]:
    with EmbeddedTubeMQ(1, [TopicSpec("orders")], http=False, tls=secured(certs)) as mq:
        yield mq


def tls_rows(outcome: Outcome) -> list[dict[str, str]]:
    return [row for row in outcome.rows() if row["step"] == "tls"]


def test_the_right_authority(
    command: Command, one_way: EmbeddedTubeMQ, certs: Certificates
) -> None:
    masters = one_way.tls_masters
    outcome = command(
        masters, "doctor", "--topic", "orders", "-o", "jsonl", tls={"ca_file": certs.ca}
    )
    assert outcome.code == 0
    broker = one_way.broker(1).tls_address
    assert [row["target"] for row in tls_rows(outcome)] == [masters, broker]


@pytest.mark.parametrize("others", ["", ",127.0.0.1:1"], ids=["alone", "beside a dead one"])
def test_another_authority(
    command: Command, one_way: EmbeddedTubeMQ, certs: Certificates, others: str
) -> None:
    masters = f"{one_way.tls_masters}{others}"
    outcome = command(masters, "doctor", "-o", "jsonl", tls={"ca_file": certs.other_ca})
    (row,) = tls_rows(outcome)
    assert (outcome.code, row["state"]) == (5, "failed")
    assert "not accepted" in row["detail"]
    assert row["hint"].endswith("in tls.ca_file")
    assert states(outcome.rows())["register"] == "skipped"


def test_a_plain_port(command: Command, one_way: EmbeddedTubeMQ, certs: Certificates) -> None:
    outcome = command(
        one_way.masters,
        "doctor",
        "-o",
        "jsonl",
        tls={"ca_file": certs.ca},
        TUBEMQ_TLS_HANDSHAKE_TIMEOUT_MS="300",
    )
    (row,) = tls_rows(outcome)
    assert (outcome.code, row["state"]) == (5, "failed")
    assert "8716" in row["hint"]


def test_a_plain_client(command: Command, one_way: EmbeddedTubeMQ) -> None:
    outcome = command(one_way.tls_masters, "doctor", "-o", "jsonl", tls=None)
    assert (outcome.code, states(outcome.rows())["tls"]) == (6, "skipped")
    (row,) = [row for row in outcome.rows() if row["step"] == "register"]
    assert "TLS port?" in row["hint"]


def test_another_host_name(command: Command, certs: Certificates) -> None:
    tls = secured(certs, certs.misnamed)
    with EmbeddedTubeMQ(1, [TopicSpec("orders")], http=False, tls=tls) as mq:
        ask = (mq.tls_masters, "doctor", "--topic", "orders", "-o", "jsonl")
        outcome = command(*ask, tls={"ca_file": certs.ca})
        (row,) = tls_rows(outcome)
        assert (outcome.code, row["state"]) == (5, "failed")
        assert "tls.server_hostname" in row["hint"]
        named = {"ca_file": certs.ca, "server_hostname": "elsewhere.example"}
        assert command(*ask, tls=named).code == 0


def test_a_client_without_the_required_certificate(
    command: Command, guarded: EmbeddedTubeMQ, certs: Certificates
) -> None:
    """With TLS 1.3 the refusal comes behind the handshake, with the first request."""
    outcome = command(guarded.tls_masters, "doctor", "-o", "jsonl", tls={"ca_file": certs.ca})
    assert outcome.code in (5, 6)
    hints = [row["hint"] for row in outcome.rows() if row["state"] == "failed"]
    assert all("tls.cert_file" in hint for hint in hints)
    assert hints


def test_a_file_of_users_that_is_no_text_is_named(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_bytes(b"loader:\xe9\n")
    outcome = run("serve", "--users", users)
    assert (outcome.code, "it is not UTF-8" in outcome.err) == (2, True)
