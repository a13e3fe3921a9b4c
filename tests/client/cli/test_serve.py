"""`tubemq serve`: as a separate process, on loopback only, stopped by a signal, with a data
folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.client.cli.conftest import Run
from tests.kit.certificates import make_certificates
from tools.devkit.isolation import can_isolate, isolated_command
from tools.devkit.patience import PATIENCE
from tubemq_client import Metadata, Partition, Producer, errors
from tubemq_client.config import ClientConfig

LOOPBACK = "0100007F"


@contextmanager
def served(
    tmp_path: Path, *options: object, isolated: bool = False, wait_s: float = 30.0
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Yield the process and the content of its ready file."""
    ready = tmp_path / "ready.json"
    ready.unlink(missing_ok=True)
    words = ["-m", "tubemq_client.cli", "serve", "--ready-file", ready, *options]
    command = [sys.executable, *map(str, words)]
    with subprocess.Popen(
        isolated_command(command) if isolated else command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    ) as process:
        try:
            deadline = time.monotonic() + wait_s * PATIENCE
            while not ready.exists():
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < deadline, "never ready"
                time.sleep(0.05)
            yield process, json.loads(ready.read_text())
        finally:
            if process.poll() is None:
                process.kill()


def listening(pid: int) -> set[str]:
    """Local addresses (hexadecimal, as the kernel shows them) that a process listens on."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = str(descriptor.readlink()) if descriptor.is_symlink() else ""
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1])
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_on_loopback_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path, "--brokers", 2, "--topic", "demo:2:3", "-t", "plain") as (process, at):
        assert at["pid"] == process.pid
        assert at["topics"] == ["demo", "plain"]
        settings = ClientConfig.parse({"masters": at["masters"]}).settings()
        with Metadata(settings) as metadata:
            found = metadata.topic("demo")
        assert len(found.partitions) == 2 * 2 * 3
        assert {str(k): f"{n.host}:{n.port}" for k, n in found.brokers.items()} == {
            broker: node["address"] for broker, node in at["brokers"].items()
        }
        answer = httpx.get(f"{at['master_web']}/webapi.htm?method=admin_query_topic_info")
        assert answer.json()["result"] is True
        sockets = listening(process.pid)
        assert len(sockets) == 6
        assert {address.partition(":")[0] for address in sockets} == {LOOPBACK}
        process.send_signal(number)
        said = process.communicate(timeout=20 * PATIENCE)[1]
        assert process.returncode == 0
        assert at["masters"] in said
        assert at["brokers"]["2"]["address"] in said
        assert said.rstrip().endswith("stopped")


def test_data_and_ports_come_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    partition = Partition(1, "kept", 0)
    with served(tmp_path, "--topic", "kept", "--data-dir", data, "--no-http") as (process, first):
        settings = ClientConfig.parse({"masters": first["masters"]}).settings()
        with Producer(settings) as producer:
            producer.send("kept", b"remember me", partition=partition)
        process.terminate()
        assert process.wait(20) == 0
    with served(tmp_path, "--data-dir", data, "--no-http") as (process, second):
        assert second["masters"] == first["masters"]
        assert second["topics"] == ["kept"]
        with Metadata(settings) as metadata:
            assert metadata.ends("kept", "again")[partition].max_offset == 28


def test_the_active_master_is_killed_by_a_signal_and_stands_by_later(tmp_path: Path) -> None:
    with served(tmp_path, "--masters", 2, "--topic", "demo") as (process, at):
        first, second = at["masters"].split(",")
        process.send_signal(signal.SIGUSR1)
        assert process.stderr is not None
        while "stands by" not in (line := process.stderr.readline()):
            assert line, "it has ended"
        with (
            Metadata(ClientConfig.parse({"masters": first}).settings()) as metadata,
            pytest.raises(errors.StandbyMaster),
        ):
            metadata.topic("demo")
        with Metadata(ClientConfig.parse({"masters": second}).settings()) as metadata:
            assert metadata.topic("demo").subscribable


def test_it_asks_for_users_and_certificates_if_told_to(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(Path(certs.server.cert).read_text() + Path(certs.server.key).read_text())
    users = tmp_path / "users"
    users.write_text("loader:hunter2\n")
    guards = ("--users", users, "--tls-cert", both, "--tls-client-ca", certs.ca)
    with served(tmp_path, "--topic", "orders", "--no-http", *guards) as (_, at):
        options = {
            "masters": at["tls_masters"],
            "tls": {
                "ca_file": certs.ca,
                "cert_file": certs.client.cert,
                "key_file": certs.client.key,
            },
        }
        with (
            Metadata(ClientConfig.parse(options).settings()) as metadata,
            pytest.raises(errors.AuthenticationFailed),
        ):
            metadata.topic("orders")
        options["auth"] = {"username": "loader", "password": "hunter2"}
        with Metadata(ClientConfig.parse(options).settings()) as metadata:
            assert metadata.topic("orders").partitions


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tls-client-ca", "x.pem"), "--tls-client-ca without --tls-cert"),
        (("--users", "missing"), "--users missing"),
        (("--topic", "a:b"), "'a:b' is not NAME[:STORES[:PARTITIONS]]"),
        (("--topic", "abc:1:2:3"), "NAME[:STORES[:PARTITIONS]]"),
        (("--topic", "abc:0"), "stores 0 is less than 1"),
        (("--topic", "1abc"), "name '1abc'"),
        (("--brokers", "0"), "--brokers"),
        (("--yes",), "--yes has no effect"),
        (("--genuine", "--brokers", "2"), "--brokers has no effect with --genuine"),
        (("--genuine", "--port", "99", "--no-http"), "--no-http has no effect"),
    ],
)
def test_wrong_options_end_with_two(run: Run, options: tuple[str, ...], words: str) -> None:
    outcome = run("serve", *options)
    assert outcome.code == 2, outcome
    assert words in outcome.err


def test_genuine_says_what_it_exposes_and_does_not_start_without_yes(run: Run) -> None:
    outcome = run("serve", "--genuine", "--topic", "demo")
    assert outcome.code == 2
    for words in ("EVERY network interface", "without authentication", "--yes"):
        assert words in outcome.err


def test_genuine_outside_a_checkout_says_where_its_launcher_is(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tools.devkit.tubemq.genuine", None)

    outcome = run("serve", "--genuine", "--yes")

    assert outcome.code == 2
    for words in ("source tree", "in a checkout", "embedded server"):
        assert words in outcome.err


@pytest.mark.real
@pytest.mark.timeout(200)
@pytest.mark.skipif(not can_isolate(), reason="no network namespaces here")
def test_genuine_runs_until_a_signal(tmp_path: Path) -> None:
    """Runs in a network namespace; without a topic, so that nothing has to be accepted."""
    with served(
        tmp_path, "--genuine", "--yes", "--data-dir", tmp_path / "data", isolated=True, wait_s=150
    ) as (process, at):
        assert list(at["brokers"]) == ["1"]
        os.kill(at["pid"], signal.SIGTERM)
        said = process.communicate(timeout=120 * PATIENCE)[1]
        assert process.returncode == 0
        assert "EVERY network interface" in said
