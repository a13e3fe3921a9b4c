"""TLS on connections of both kinds: accepted clients, and the errors of refused ones."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.client.io.peer import Answer, Peer, echo, silence
from tests.client.io.test_connections import ask, post, wait
from tests.client.io.test_drivers import ask as ask_driver
from tests.client.io.test_drivers import say_back
from tests.kit.certificates import KEY_PASSWORD, Certificates, Pair, make_certificates
from tools.devkit.patience import PATIENCE
from tubemq_client import errors
from tubemq_client._core.effects import Conversation, Reach, Sleep
from tubemq_client._io import blocking, sockets
from tubemq_client._wire.framing import Frame, encode_frame
from tubemq_client.model import ClientSettings, TlsSettings

pytestmark = pytest.mark.timeout(30)

Connect = Callable[..., Any]
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


class TlsPeer(Peer):
    """Peer that speaks TLS, and requires a certificate signed by `clients_ca` if given."""

    def __init__(
        self,
        pair: Pair,
        answer: Answer = echo,
        clients_ca: str | None = None,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> None:
        super().__init__(answer)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.cert, pair.key)
        self._context.minimum_version = self._context.maximum_version = version
        if clients_ca:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(clients_ca)

    def _serve(self, sock: socket.socket) -> None:
        secured = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        try:
            secured.do_handshake()
        except OSError:
            _end(secured)
            return
        self._open.append(secured)
        super()._serve(secured)


def _end(refused: ssl.SSLSocket) -> None:
    """Close after the alert.

    Unread data of the client would make it a reset, which may overtake the alert; no more than one
    request is awaited.
    """
    with socket.socket(fileno=refused.detach()) as bare, suppress(OSError):
        bare.settimeout(5)
        bare.shutdown(socket.SHUT_WR)
        for _ in range(16):
            if not bare.recv(1024):
                break


def plain(certs: Certificates, **changes: Any) -> TlsSettings:
    return TlsSettings(**{"ca_file": certs.ca, **changes})


def as_client(certs: Certificates, **changes: Any) -> TlsSettings:
    own = {"cert_file": certs.client.cert, "key_file": certs.client.key}
    return plain(certs, **{**own, **changes})


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_and_replies_go_through_tls(
    connect: Connect, certs: Certificates, version: ssl.TLSVersion
) -> None:
    with TlsPeer(certs.server, version=version) as peer, ThreadPoolExecutor(8) as pool:
        connection = connect(peer.address, tls=plain(certs))
        payloads = [b"%d" % n for n in range(200)]
        assert list(pool.map(lambda payload: ask(connection, payload), payloads)) == payloads
        assert peer.visits == 1


def test_large_requests_and_replies_arrive_whole(connect: Connect, certs: Certificates) -> None:
    def twice(frame: Frame) -> Iterable[bytes]:
        return [encode_frame(frame.serial, frame.payload * 2)]

    with TlsPeer(certs.server, twice) as peer:
        connection = connect(peer.address, tls=plain(certs))
        bodies = [bytes([n]) * 3_000_000 for n in range(4)]
        assert [ask(connection, body) for body in bodies] == [body * 2 for body in bodies]


def test_decrypted_data_is_not_awaited(
    connect: Connect, certs: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receive buffer may be full in the middle of the last TLS record of a reply.

    The socket is not readable then, but the rest of the record is there.
    """
    monkeypatch.setattr(sockets, "_RECEIVE_BYTES", 25_000)
    sent = threading.Event()

    def in_records(frame: Frame) -> Iterable[bytes]:
        data = encode_frame(frame.serial, bytes(30_000 - 100))
        yield from (data[start : start + 10_000] for start in range(0, len(data), 10_000))
        sent.set()

    with TlsPeer(certs.server, in_records) as peer:
        connection = connect(peer.address, tls=plain(certs))
        serial = post(connection, b"all at once")
        assert sent.wait(5)
        assert len(wait(connection, serial)) == 30_000 - 100


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_with_a_certificate_is_accepted(
    connect: Connect, certs: Certificates, version: ssl.TLSVersion
) -> None:
    with TlsPeer(certs.server, clients_ca=certs.ca, version=version) as peer:
        assert ask(connect(peer.address, tls=as_client(certs)), b"hello") == b"hello"


def test_an_encrypted_key_is_opened_with_its_password(
    connect: Connect, certs: Certificates
) -> None:
    own = {"cert_file": certs.locked_client.cert, "key_file": certs.locked_client.key}
    with TlsPeer(certs.server, clients_ca=certs.ca) as peer:
        settings = plain(certs, **own, key_password=KEY_PASSWORD)
        assert ask(connect(peer.address, tls=settings), b"hello") == b"hello"
        for password in (None, "wrong"):
            with pytest.raises(errors.ConfigError, match="key_password"):
                connect(peer.address, tls=plain(certs, **own, key_password=password))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stranger", [False, True])
def test_a_refused_client_gets_a_tls_error(
    connect: Connect, certs: Certificates, version: ssl.TLSVersion, stranger: bool
) -> None:
    """With TLS 1.3 the refusal arrives after the handshake, with the first read."""
    other = certs.stranger
    settings = plain(certs, cert_file=other.cert, key_file=other.key) if stranger else plain(certs)
    with TlsPeer(certs.server, clients_ca=certs.ca, version=version) as peer:
        with pytest.raises(errors.TlsError, match="cert_file") as failure:
            ask(connect(peer.address, tls=settings), b"hello")
        assert str(peer.address[1]) in str(failure.value)
        assert not failure.value.retriable


def test_a_group_interrupted_by_tls_may_have_been_sent(certs: Certificates) -> None:
    """Only a connection that was never opened proves that nothing was sent."""

    def encode(serials: Sequence[int]) -> bytes:
        return b"".join(encode_frame(serial, bytes(4_000_000)) for serial in serials)

    with TlsPeer(certs.server, clients_ca=certs.ca) as peer:
        connection = blocking.connect(peer.address, ClientSettings((), tls=plain(certs)))
        with pytest.raises(errors.NetworkError) as caught:
            connection.post_all(encode, 8, 5.0)
        assert not isinstance(caught.value, errors.ConnectError)
        connection.close()


def test_a_server_of_another_authority_is_not_trusted(
    connect: Connect, certs: Certificates
) -> None:
    with TlsPeer(certs.stranger) as peer:
        with pytest.raises(errors.TlsError, match=r"not accepted.*tls\.ca_file"):
            connect(peer.address, tls=plain(certs))
        trusting = TlsSettings(ca_file=certs.other_ca)
        assert ask(connect(peer.address, tls=trusting), b"hello") == b"hello"


def test_a_certificate_for_another_host_is_refused_unless_allowed(
    connect: Connect, certs: Certificates
) -> None:
    with TlsPeer(certs.misnamed) as peer:
        with pytest.raises(errors.TlsError, match=r"tls\.check_hostname"):
            connect(peer.address, tls=plain(certs))
        for relaxed in ({"check_hostname": False}, {"server_hostname": "elsewhere.example"}):
            connection = connect(peer.address, tls=plain(certs, **relaxed))
            assert ask(connection, b"hello") == b"hello"


def test_a_silent_plain_port_ends_with_the_handshake_deadline(
    connect: Connect, certs: Certificates
) -> None:
    with Peer(deaf=True) as peer:
        settings = plain(certs, handshake_timeout_ms=200)
        with pytest.raises(errors.TlsError, match=r"200 ms.*is this a TLS port"):
            connect(peer.address, tls=settings, connect_timeout_ms=20_000)


def test_a_plain_client_on_a_tls_port_gets_a_hint(connect: Connect, certs: Certificates) -> None:
    with TlsPeer(certs.server) as peer:
        connection = connect(peer.address)
        with pytest.raises(errors.TubeMQError, match="TLS port") as failure:
            ask(connection, b"hello")
        assert isinstance(failure.value, errors.ConnectionLost)


def test_files_that_cannot_be_used_are_named_all_at_once(
    connect: Connect, certs: Certificates, tmp_path: Path
) -> None:
    with TlsPeer(certs.server) as peer:
        missing = str(tmp_path / "missing.pem")
        with pytest.raises(errors.ConfigError) as failure:
            connect(peer.address, tls=TlsSettings(ca_file=missing, cert_file=missing))
        assert [line.split(":")[0] for line in failure.value.problems] == [
            "tls.ca_file",
            "tls.cert_file",
        ]
        with pytest.raises(errors.ConfigError, match="ca_file"):
            connect(peer.address, tls=TlsSettings(ca_file=certs.client.key))
        with pytest.raises(errors.ConfigError, match="do not fit"):
            connect(
                peer.address,
                tls=plain(certs, cert_file=certs.client.cert, key_file=certs.server.key),
            )


def test_temporarily_missing_files_are_a_retriable_error(
    connect: Connect, certs: Certificates, tmp_path: Path
) -> None:
    """Renewing a certificate replaces one file after the other."""
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(Path(certs.ca).read_bytes())
    tls = TlsSettings(ca_file=str(ca_file))
    with TlsPeer(certs.server) as peer:
        assert ask(connect(peer.address, tls=tls), b"before") == b"before"
        ca_file.unlink()
        with pytest.raises(errors.ConnectError, match="were good before") as failure:
            connect(peer.address, tls=tls)
        assert failure.value.retriable
        assert "ca.pem" in str(failure.value)
        ca_file.write_bytes(Path(certs.ca).read_bytes())
        assert ask(connect(peer.address, tls=tls), b"after") == b"after"


def test_files_being_replaced_are_read_again(
    connect: Connect, certs: Certificates, tmp_path: Path
) -> None:
    """Also at the first connection, when no file was valid before."""
    key_file = tmp_path / "key.pem"
    key_file.write_bytes(Path(certs.server.key).read_bytes())
    tls = as_client(certs, key_file=str(key_file))
    with TlsPeer(certs.server) as peer:
        good = Path(certs.client.key).read_bytes()
        threading.Timer(0.03, key_file.write_bytes, [good]).start()
        assert ask(connect(peer.address, tls=tls), b"hello") == b"hello"


def test_a_background_attempt_reports_files_too(make_driver: Connect, tmp_path: Path) -> None:
    def reach(tries: int) -> Conversation[bool]:
        for _ in range(tries):
            if (yield Reach(("127.0.0.1", port))):
                return True
            yield Sleep(10)
        return False

    missing = TlsSettings(ca_file=str(tmp_path / "missing.pem"))
    with Peer() as peer:
        port = peer.address[1]
        with pytest.raises(errors.ConfigError, match="ca_file"):
            make_driver(tls=missing).run(reach(500))


def test_closing_ends_waits_and_tells_the_peer(connect: Connect, certs: Certificates) -> None:
    with TlsPeer(certs.server, silence) as peer:
        connection = connect(peer.address, tls=plain(certs))
        serial = post(connection, b"x")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(wait, connection, serial)
            connection.close()
            with pytest.raises(errors.ConnectionLost):
                waiting.result(10)
        assert peer.gone.acquire(timeout=10 * PATIENCE)


def test_an_idle_connection_closed_by_the_peer_is_replaced(
    make_driver: Callable[..., Any], certs: Certificates
) -> None:
    with TlsPeer(certs.server, say_back) as peer:
        driver = make_driver(tls=plain(certs))
        assert driver.run(ask_driver(peer.address, "one")) == "one"
        peer.hang_up()
        assert peer.gone.acquire(timeout=10 * PATIENCE)
        time.sleep(0.2)  # a blocking connection is checked after a quiet period
        assert driver.run(ask_driver(peer.address, "two")) == "two"
        assert peer.visits == 2
