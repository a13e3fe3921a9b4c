"""`--config`: the connection's options from a file, for clusters that ask for more than masters."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.certificates import Certificates, make_certificates
from tubemq_client.cli.app import build_app
from tubemq_client.embedded import EmbeddedTubeMQ, Security, ServerTls, Switches, TopicSpec

PASSWORD = "hunter2"


@pytest.fixture
def certs(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TUBEMQ_CONFIG", "TUBEMQ_MASTERS", "TUBEMQ_AUTH_PASSWORD"):
        monkeypatch.setenv(name, "")  # so that it is taken back whatever the command sets
        monkeypatch.delenv(name)


def test_a_guarded_cluster_is_reached_with_a_file_and_the_environment(
    tmp_path: Path, certs: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ServerTls(
        cert_file=certs.server.cert, key_file=certs.server.key, client_ca_file=certs.ca
    )
    security = Security(produce=True, consume=True, users={"loader": PASSWORD})
    switches = Switches(security=security)
    with EmbeddedTubeMQ(1, [TopicSpec("orders")], http=False, switches=switches, tls=files) as mq:
        config = tmp_path / "tubemq.toml"
        config.write_text(
            f'masters = "{mq.tls_masters}"\ngroup = "any"\n[auth]\nusername = "loader"\n[tls]\n'
            f'ca_file = "{certs.ca}"\ncert_file = "{certs.client.cert}"\n'
            f'key_file = "{certs.client.key}"\n'
        )
        command = ["--config", str(config), "partitions", "orders", "--json"]
        refused = CliRunner().invoke(build_app(), command)
        assert (refused.exit_code, "auth.password" in refused.output) == (2, True)
        monkeypatch.setenv("TUBEMQ_AUTH_PASSWORD", PASSWORD)
        done = CliRunner().invoke(build_app(), command)
        assert (done.exit_code, '"1:0"' in done.output) == (0, True)


def test_a_file_that_is_none_ends_the_command(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.toml")
    done = CliRunner().invoke(build_app(), ["--config", missing, "partitions", "orders"])
    assert (done.exit_code, "missing.toml" in done.output) == (2, True)
