"""Users, visit tokens and mutual TLS against a genuine master and broker, with both APIs.

One separate cluster requires everything at once. Features that a genuine server lacks (one-way TLS,
checking passwords) are tested on the embedded one, in `tests/system/behaviour/test_security.py`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.certificates import STORE_PASSWORD, Certificates, make_certificates
from tests.system.behaviour.exchange import exchange
from tests.system.behaviour.shells import BLOCKING, LoopShell, Shell
from tests.system.real.cluster import _unavailable
from tools.devkit.isolation import can_isolate, is_isolated
from tools.devkit.tubemq.artifacts import cached_artifacts
from tools.devkit.tubemq.genuine import TopicSpec
from tools.devkit.tubemq.guarded import GuardedTubeMQ, KeyStores, guarded_cluster
from tubemq_client import ClientSettings, OffsetRange, Partition, errors
from tubemq_client._core import security
from tubemq_client._core.effects import WallClock
from tubemq_client.model import Credentials, TlsSettings

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TOPIC = "guarded"
PARTITION = Partition(1, TOPIC, 0)
USER = Credentials("loader", "hunter2")
GRACE_S = 61

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cluster(certs: Certificates) -> Iterator[GuardedTubeMQ]:
    artifacts = cached_artifacts()
    if artifacts is None:
        _unavailable("no TubeMQ jars; run: python -m tools.devkit.tubemq.artifacts")
    if not is_isolated() and can_isolate():
        _unavailable("the servers bind every interface; run inside tools.devkit.isolation")
    stores = KeyStores(certs.key_store(), certs.trust_store(), STORE_PASSWORD)
    with guarded_cluster(stores, topics=[TopicSpec(TOPIC)], artifacts=artifacts) as made:
        made.wait_accepting()
        yield made


@pytest.fixture(params=["sync", "aio"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    if request.param == "sync":
        yield BLOCKING
        return
    with LoopShell() as loop:
        yield loop


@pytest.fixture
def tls(certs: Certificates) -> TlsSettings:
    pair = certs.client
    return TlsSettings(ca_file=certs.ca, cert_file=pair.cert, key_file=pair.key)


@pytest.fixture
def encrypted(cluster: GuardedTubeMQ, tls: TlsSettings) -> ClientSettings:
    return ClientSettings((cluster.tls_address,), rpc_timeout_ms=5_000, auth=USER, tls=tls)


@pytest.fixture
def plain(cluster: GuardedTubeMQ) -> ClientSettings:
    return ClientSettings((cluster.master_address,), rpc_timeout_ms=5_000, auth=USER)


def group() -> str:
    return f"guarded_{next(_numbers)}"


def look_up(shell: Shell, settings: ClientSettings) -> Any:
    with shell.Metadata(settings) as metadata:
        return metadata.topic(TOPIC)


# -- authentication --------------------------------------------------------------------------------


def test_a_user_with_a_certificate_does_everything(
    shell: Shell, cluster: GuardedTubeMQ, encrypted: ClientSettings
) -> None:
    exchange(shell, encrypted, PARTITION, group())
    brokers = look_up(shell, encrypted).brokers
    assert brokers[1].address == cluster.broker_tls_address


def test_a_user_on_the_plain_ports_does_everything(shell: Shell, plain: ClientSettings) -> None:
    exchange(shell, plain, PARTITION, group())


# -- TLS ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stranger", [False, True])
def test_an_error_of_a_bad_certificate_names_tls(
    shell: Shell, encrypted: ClientSettings, certs: Certificates, stranger: bool
) -> None:
    pair = certs.stranger
    files = {"cert_file": pair.cert, "key_file": pair.key} if stranger else {}
    settings = replace(encrypted, tls=TlsSettings(ca_file=certs.ca, **files))
    with pytest.raises(errors.TlsError, match="cert_file"):
        look_up(shell, settings)


def test_a_server_of_another_authority_is_not_trusted(
    shell: Shell, encrypted: ClientSettings, certs: Certificates, tls: TlsSettings
) -> None:
    with pytest.raises(errors.TlsError, match="ca_file"):
        look_up(shell, replace(encrypted, tls=replace(tls, ca_file=certs.other_ca)))


def test_host_names_are_verified_unless_told_otherwise(
    shell: Shell, encrypted: ClientSettings, tls: TlsSettings
) -> None:
    wrong = replace(tls, server_hostname="elsewhere.example")
    with pytest.raises(errors.TlsError, match="server_hostname"):
        look_up(shell, replace(encrypted, tls=wrong))
    relaxed = replace(wrong, check_hostname=False)
    assert look_up(shell, replace(encrypted, tls=relaxed)).partitions


def test_tls_on_the_plain_port_ends_with_the_handshakes_deadline(
    shell: Shell, cluster: GuardedTubeMQ, encrypted: ClientSettings, tls: TlsSettings
) -> None:
    settings = replace(
        encrypted, masters=(cluster.master_address,), tls=replace(tls, handshake_timeout_ms=500)
    )
    with pytest.raises(errors.TlsError, match="is this a TLS port"):
        look_up(shell, settings)


def test_an_error_of_a_plain_client_on_the_tls_port_names_tls(
    shell: Shell, cluster: GuardedTubeMQ, plain: ClientSettings
) -> None:
    with pytest.raises(errors.ConnectionLost, match="TLS port"):
        look_up(shell, replace(plain, masters=(cluster.tls_address,)))


# -- users ----------------------------------------------------------------------------------------


def test_without_a_user_producers_and_consumers_are_refused(
    shell: Shell, plain: ClientSettings
) -> None:
    nobody = replace(plain, auth=None)
    with pytest.raises(errors.AuthenticationFailed, match=r"auth\.username"):
        look_up(shell, nobody)
    with (
        shell.Producer(nobody) as producer,
        pytest.raises(errors.AuthenticationFailed, match=r"auth\.username"),
    ):
        producer.send(TOPIC, b"x")
    brokers = look_up(shell, plain).brokers
    with (
        shell.RangeReader(nobody, group=group(), brokers=brokers) as reader,
        pytest.raises(errors.AuthenticationFailed),
    ):
        list(reader.read(OffsetRange(PARTITION, 0, 28)))


@pytest.mark.parametrize("off_by_s", [-25, 25])
def test_a_clock_that_is_off_is_named(
    shell: Shell, plain: ClientSettings, monkeypatch: pytest.MonkeyPatch, off_by_s: int
) -> None:
    def look(access: security.Access) -> Any:
        access._now = (yield WallClock()) + off_by_s * 1_000

    monkeypatch.setattr(security.Access, "read_signing_time", look)
    with pytest.raises(errors.AuthenticationFailed, match="clocks of this machine"):
        look_up(shell, plain)


# -- visit tokens ---------------------------------------------------------------------------------


@pytest.mark.soak
def test_after_the_grace_brokers_ask_for_the_masters_token(
    shell: Shell, plain: ClientSettings
) -> None:
    brokers = look_up(shell, plain).brokers
    exchange(shell, plain, PARTITION, group())
    time.sleep(GRACE_S)
    exchange(shell, plain, PARTITION, group())
    # A reader that was given its brokers has no token and fetches one.
    with shell.RangeReader(plain, group=group(), brokers=brokers) as reader:
        assert sum(len(batch) for batch in reader.read(OffsetRange(PARTITION, 0, 28))) == 1
    unreachable = replace(plain, masters=())
    with (
        shell.RangeReader(unreachable, group=group(), brokers=brokers) as reader,
        pytest.raises(errors.AuthenticationFailed, match="visit token"),
    ):
        list(reader.read(OffsetRange(PARTITION, 0, 28)))
