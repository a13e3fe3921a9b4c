"""HTTPS of the administration: trusted authorities, client certificates, proxies."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.client.admin.test_hostile_servers import GOOD, head, web
from tests.kit.certificates import KEY_PASSWORD, Certificates, make_certificates
from tubemq_client import errors
from tubemq_client._io.tls import explain

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def server(certs: Certificates, *, wants_client: bool = False, old: bool = False) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.server.cert, certs.server.key)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certs.ca)
    if old:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with web(lambda found, _: found.sendall(head(len(GOOD)) + GOOD), context) as url:
        yield url


def test_authorities_and_a_clients_certificate_are_options(
    certs: Certificates, make: Callable[..., Any]
) -> None:
    with server(certs, wants_client=True) as url:
        for pair, password in ((certs.client, None), (certs.locked_client, KEY_PASSWORD)):
            options = {"ca_file": certs.ca, "cert_file": pair.cert, "key_file": pair.key}
            assert make(url, **options, key_password=password).topics() == []
        with pytest.raises(errors.ConnectError, match=r"certificate is not accepted.*ca_file"):
            make(url).topics()
        with pytest.raises(errors.ConnectError, match=r"refuse.*option.* cert_file"):
            make(url, ca_file=certs.ca).topics()


def test_an_alert_that_comes_after_the_handshake_is_a_tls_error(
    certs: Certificates, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """httpx lets OpenSSL's error of a read through; TLS 1.3 refuses a client that late."""

    def alert(*_: object, **__: object) -> None:
        raise ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] certificate required")

    monkeypatch.setattr(httpx.Client, "send", alert)
    monkeypatch.setattr(httpx.AsyncClient, "send", alert)
    with pytest.raises(errors.ConnectError, match=r"refuse.*option.* cert_file"):
        make("https://127.0.0.1:1", ca_file=certs.ca).topics()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_version_of_tls_is_named(certs: Certificates, make: Callable[..., Any]) -> None:
    with server(certs, old=True) as url:
        with pytest.raises(errors.ConnectError, match="no version of TLS in common") as caught:
            make(url, ca_file=certs.ca).topics()
        assert "cert_file" not in str(caught.value)


def test_files_that_cannot_be_used_or_have_no_effect_are_refused(
    certs: Certificates, make: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(errors.ConfigError, match=r"ca_file.*nowhere"):
        make("https://127.0.0.1:1", ca_file=str(tmp_path / "nowhere"))
    with pytest.raises(errors.ConfigError, match="https:// addresses only"):
        make("http://127.0.0.1:1", ca_file=certs.ca)
    with pytest.raises(errors.ConfigError, match="need cert_file"):
        make("https://127.0.0.1:1", key_file=certs.client.key)


def test_proxies_of_the_environment_see_nothing_unless_asked_for(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: list[str] = []

    def proxy(found: Any, _: object) -> None:
        visited.append("proxy")
        found.sendall(head(len(GOOD)) + GOOD)

    with web(proxy) as place, web(lambda found, _: found.sendall(head(len(GOOD)) + GOOD)) as url:
        monkeypatch.setenv("http_proxy", place)
        monkeypatch.delenv("no_proxy", raising=False)
        assert make(url).topics() == []
        assert visited == []
        assert make(url, trust_env=True).topics() == []
        assert visited == ["proxy"]
        monkeypatch.setenv("http_proxy", "odd://user:s3cret@proxy")
        assert make(url).topics() == []
        with pytest.raises(errors.ConfigError, match="trust_env") as caught:
            make(url, trust_env=True)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("TLSV1_ALERT_PROTOCOL_VERSION", "no version of TLS in common"),
        ("UNSUPPORTED_PROTOCOL", "no version of TLS in common"),
        ("WRONG_VERSION_NUMBER", "is this a TLS port?"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "no algorithm in common, or the server wants"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "refuses this client"),
        ("TLSV1_ALERT_UNKNOWN_CA", "refuses this client"),
    ],
)
def test_openssl_texts_lead_to_the_right_option(reason: str, advice: str) -> None:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    assert advice in explain(error)
