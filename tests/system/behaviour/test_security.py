"""Users, visit tokens and TLS against the embedded server, with both shells.

The same against a genuine server, as far as it can be tried there, is in
`tests/system/real/test_security_on_genuine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kit.certificates import Certificates, make_certificates
from tests.system.behaviour.exchange import exchange
from tests.system.behaviour.shells import BLOCKING, Shell
from tests.system.behaviour.sites import SINGLE
from tests.system.behaviour.windows import settings_for
from tubemq_client import ClientSettings, OffsetRange, Partition, Record, errors
from tubemq_client.embedded import EmbeddedTubeMQ, Security, ServerTls, Switches, TopicSpec
from tubemq_client.model import Credentials, TlsSettings
from tubemq_client.testing.clock import ManualClock

PARTITION = Partition(1, SINGLE, 0)
USER = Credentials("loader", "hunter2")
USERS = {USER.username: USER.password}
AUTHENTICATED = Security(produce=True, consume=True, users=USERS)
TOKENS = Security(visit_tokens=True, visit_token_grace_ms=0)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def server(
    security: Security | None = None, tls: ServerTls | None = None, **options: object
) -> EmbeddedTubeMQ:
    switches = Switches(security=security or Security())
    topics = [TopicSpec(SINGLE)]
    return EmbeddedTubeMQ(1, topics, http=False, switches=switches, tls=tls, **options)  # type: ignore[arg-type]


def settings_of(mq: EmbeddedTubeMQ, auth: Credentials | None = None) -> ClientSettings:
    return replace(settings_for(mq.masters), auth=auth)


def over_tls(mq: EmbeddedTubeMQ, tls: TlsSettings) -> ClientSettings:
    assert mq.tls_masters is not None
    return replace(settings_for(mq.tls_masters), tls=tls)


# -- users ----------------------------------------------------------------------------------------


@pytest.fixture
def authenticated() -> Iterator[EmbeddedTubeMQ]:
    with server(AUTHENTICATED) as mq:
        yield mq


def test_a_user_is_let_in_everywhere(shell: Shell, authenticated: EmbeddedTubeMQ) -> None:
    exchange(shell, settings_of(authenticated, USER), PARTITION, "users")


@pytest.mark.parametrize(
    ("auth", "hint"),
    [
        (None, "set the options auth.username and auth.password"),
        (Credentials("loader", "wrong"), "check the options auth.username and auth.password"),
        (Credentials("nobody", ""), "check the options auth.username and auth.password"),
    ],
)
def test_others_are_refused_by_the_master(
    shell: Shell, authenticated: EmbeddedTubeMQ, auth: Credentials | None, hint: str
) -> None:
    settings = settings_of(authenticated, auth)
    with shell.Producer(settings) as producer, pytest.raises(errors.AuthenticationFailed) as sent:
        producer.send(SINGLE, b"x")
    assert hint in str(sent.value)
    with shell.Metadata(settings) as metadata, pytest.raises(errors.AuthenticationFailed):
        metadata.topic(SINGLE)


def test_a_clock_that_is_off_is_named(shell: Shell) -> None:
    with server(AUTHENTICATED, clock=ManualClock(1_000_000_000_000)) as mq:
        settings = settings_of(mq, USER)
        with (
            shell.Metadata(settings) as metadata,
            pytest.raises(errors.AuthenticationFailed, match="clocks of this machine"),
        ):
            metadata.topic(SINGLE)


def test_brokers_ask_for_a_signed_token_too(shell: Shell, authenticated: EmbeddedTubeMQ) -> None:
    """A reader that was given its brokers speaks to them alone."""
    with BLOCKING.Metadata(settings_of(authenticated, USER)) as metadata:
        brokers = metadata.topic(SINGLE).brokers
    with BLOCKING.Producer(settings_of(authenticated, USER)) as producer:
        producer.send(SINGLE, b"x")
    range_ = OffsetRange(PARTITION, 0, 28)
    wrong = settings_of(authenticated, Credentials("loader", "wrong"))
    with (
        shell.RangeReader(wrong, group="tokens", brokers=brokers) as reader,
        pytest.raises(errors.AuthenticationFailed),
    ):
        list(reader.read(range_))
    right = settings_of(authenticated, USER)
    with shell.RangeReader(right, group="tokens", brokers=brokers) as reader:
        assert sum(len(batch) for batch in reader.read(range_)) == 1


# -- visit tokens ---------------------------------------------------------------------------------


def test_visit_tokens_are_shown_and_renewed(shell: Shell) -> None:
    with server(TOKENS) as mq:
        settings = settings_of(mq)
        exchange(shell, settings, PARTITION, "visits")
        with shell.Metadata(settings) as metadata:
            brokers = metadata.topic(SINGLE).brokers
        range_ = OffsetRange(PARTITION, 0, 28)
        with shell.RangeReader(settings, group="visits", brokers=brokers) as reader:
            # It never contacted a master and has no token; later its token is too old.
            for _ in range(2):
                assert sum(len(batch) for batch in reader.read(range_)) == 1
                mq.rotate_visit_token(7)


# -- TLS ------------------------------------------------------------------------------------------


def test_all_records_under_way_survive_a_new_visit_token(shell: Shell) -> None:
    with server(TOKENS) as mq, shell.Producer(settings_of(mq)) as producer:
        producer.publish(SINGLE)
        mq.rotate_visit_token(7)
        records = [Record(b"%d" % n) for n in range(40)]
        assert producer.send_all(SINGLE, records, in_flight=16).stored == 40


def test_one_way_tls(shell: Shell, certs: Certificates) -> None:
    files = ServerTls(cert_file=certs.server.cert, key_file=certs.server.key)
    with server(tls=files) as mq:
        settings = over_tls(mq, TlsSettings(ca_file=certs.ca))
        exchange(shell, settings, PARTITION, "oneway")
        with shell.Metadata(settings) as metadata:
            ports = [node.port for node in metadata.topic(SINGLE).brokers.values()]
        assert [f"127.0.0.1:{port}" for port in ports] == [mq.broker(1).tls_address]
        exchange(shell, settings_of(mq), PARTITION, "plain")  # the plain ports serve as before


def test_mutual_tls_with_users(shell: Shell, certs: Certificates) -> None:
    files = ServerTls(
        cert_file=certs.server.cert, key_file=certs.server.key, client_ca_file=certs.ca
    )
    own = TlsSettings(ca_file=certs.ca, cert_file=certs.client.cert, key_file=certs.client.key)
    with server(AUTHENTICATED, files) as mq:
        exchange(shell, replace(over_tls(mq, own), auth=USER), PARTITION, "mutual")
        stranger = replace(own, cert_file=certs.stranger.cert, key_file=certs.stranger.key)
        for refused in (TlsSettings(ca_file=certs.ca), stranger):
            with (
                shell.Metadata(over_tls(mq, refused)) as metadata,
                pytest.raises(errors.NetworkError, match="cert_file"),
            ):
                metadata.topic(SINGLE)


def test_a_reader_does_not_wait_for_certificates_to_get_better(
    shell: Shell, certs: Certificates
) -> None:
    files = ServerTls(cert_file=certs.server.cert, key_file=certs.server.key)
    with server(tls=files) as mq:
        with shell.Metadata(over_tls(mq, TlsSettings(ca_file=certs.ca))) as metadata:
            brokers = metadata.topic(SINGLE).brokers
        settings = over_tls(mq, TlsSettings(ca_file=certs.other_ca))
        with (
            shell.RangeReader(settings, group="hasty", brokers=brokers) as reader,
            pytest.raises(errors.TlsError, match="ca_file"),
        ):
            list(reader.read(OffsetRange(PARTITION, 0, 28)))
