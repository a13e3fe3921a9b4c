"""`--config`: options from a file, checked, and obeyed in one way by all commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.client.cli.rows import TOPIC
from tubemq_client.cli.app import build_app
from tubemq_client.embedded import EmbeddedTubeMQ


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUBEMQ_CONFIG", "TUBEMQ_MASTERS", "TUBEMQ_RPC_TIMEOUT_MS"):
        monkeypatch.delenv(name, raising=False)


def test_masters_of_the_file_are_used_unless_others_are_named(
    tmp_path: Path, mq: EmbeddedTubeMQ
) -> None:
    config = tmp_path / "tubemq.toml"
    config.write_text(f'masters = ["{mq.masters}"]\ngroup = "any"\nin_flight = 3\n')
    asked = ["--config", str(config), "partitions", TOPIC, "-o", "jsonl"]
    assert CliRunner().invoke(build_app(), asked).exit_code == 0
    through = CliRunner().invoke(build_app(), asked[2:], env={"TUBEMQ_CONFIG": str(config)})
    assert through.exit_code == 0
    for others in (
        CliRunner().invoke(build_app(), [*asked, "--masters", "127.0.0.1:1"]),
        CliRunner().invoke(build_app(), asked, env={"TUBEMQ_MASTERS": "127.0.0.1:1"}),
    ):
        assert (others.exit_code, "127.0.0.1:1" in others.output) == (1, True)
    # No state is left for the next command.
    assert CliRunner().invoke(build_app(), asked[2:]).exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("partitions", TOPIC),
        ("produce", TOPIC),
        ("read-range", TOPIC, "1:0", "0", "28"),
        ("consume", TOPIC),
        ("lag", TOPIC, "--group", "any", "--admin", "127.0.0.1:1"),
        ("doctor",),
    ],
    ids=lambda words: words[0],
)
def test_every_command_reads_the_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    config = tmp_path / "tubemq.toml"
    config.write_text('masters = "127.0.0.1:1"\nrpc_timeout_ms = 1\nconnect_timeout_ms = 1\n')
    done = CliRunner().invoke(build_app(), ["--config", str(config), *words], input="")
    assert done.exit_code == 2
    assert "connect_timeout_ms" in done.output
    assert "rpc_timeout_ms" in done.output
    given = ["--config", str(config), *words, "--rpc-timeout-ms", "10000"]
    done = CliRunner().invoke(build_app(), given, input="")
    assert ("rpc_timeout_ms" in done.output, done.exit_code) == (False, 2)


def test_options_of_a_producer_and_a_consumer_are_obeyed(tmp_path: Path) -> None:
    config = tmp_path / "tubemq.toml"
    config.write_text('masters = "127.0.0.1:1"\nin_flight = 0\ngap_policy = "guess"\n')
    for words, name in ((("produce", TOPIC), "in_flight"), (("consume", TOPIC), "gap_policy")):
        done = CliRunner().invoke(build_app(), ["--config", str(config), *words], input="")
        assert (done.exit_code, name in done.output) == (2, True)


def test_the_topic_of_the_command_counts_whatever_else_is_in_the_environment(
    mq: EmbeddedTubeMQ,
) -> None:
    theirs = {"TUBEMQ_TOPICS": "some,others", "TUBEMQ_GROUP": "theirs", "TUBEMQ_FILTERS": "x"}
    done = CliRunner().invoke(
        build_app(), ["consume", TOPIC, "--masters", mq.masters, "--limit", "1"], env=theirs
    )
    assert (done.exit_code, done.output.endswith("0 records\n")) == (0, True), done.output


@pytest.mark.parametrize(
    ("text", "words"), [(None, "missing.toml"), ("master = 1\n", "master: unknown option")]
)
def test_a_file_that_is_none_ends_the_command(tmp_path: Path, text: str | None, words: str) -> None:
    config = tmp_path / "missing.toml"
    if text is not None:
        config.write_text(text)
    done = CliRunner().invoke(build_app(), ["--config", str(config), "partitions", "orders"])
    assert (done.exit_code, words in done.output) == (2, True)


@pytest.mark.parametrize(
    ("masters", "code", "words"),
    [
        ("8715", 2, "masters: give 'host:port"),
        ("[1]", 2, "masters"),
        ('[["127.0.0.1", 1], "[::1]:1"]', 1, "127.0.0.1:1"),
    ],
)
def test_masters_of_a_file_may_be_pairs_and_nothing_else(
    tmp_path: Path, masters: str, code: int, words: str
) -> None:
    config = tmp_path / "tubemq.toml"
    config.write_text(f"masters = {masters}\nfail_over_wait_ms = 0\n")
    done = CliRunner().invoke(build_app(), ["--config", str(config), "partitions", "orders"])
    assert (done.exit_code, words in done.output) == (code, True), done.output


def test_the_topic_of_a_command_overrules_those_of_the_environment(mq: EmbeddedTubeMQ) -> None:
    asked = ["consume", TOPIC, "--masters", mq.masters]
    done = CliRunner().invoke(build_app(), asked, env={"TUBEMQ_TOPICS": "orders,clicks"})
    assert done.exit_code == 0, done.output
