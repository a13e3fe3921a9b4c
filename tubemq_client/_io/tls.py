"""TLS for both kinds of connections: contexts from PEM files, error texts, blocking sockets.

Files are read for every connection, so a renewed certificate is used with the next one; while the
files are being replaced, which is not atomic for two of them, connections fail with a retriable
error. `ssl` is imported only where TLS is used. TubeMQ speaks TLS from the first byte of a separate
port; a plain port answers a handshake with silence, so handshakes have a separate deadline. With
TLS 1.3 a server refuses a client's certificate only after the handshake: the alert arrives with the
first read.
"""

from __future__ import annotations

import errno
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client.model import address_text

if TYPE_CHECKING:
    import ssl

    from tubemq_client.model import Address, TlsSettings

__all__ = [
    "TlsSocket",
    "is_tls_error",
    "late",
    "make_context",
    "no_answer",
    "refused",
    "refused_later",
    "secure",
]


_SERVED: set[int] = set()
"""Hashes of settings whose files were valid before, in this process."""

_ATTEMPTS, _ATTEMPT_PAUSE_S = 5, 0.025
"""Number of attempts and pause at the first use: files may just be being replaced."""


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context with the trusted and the client's own certificates.

    Raises `errors.ConfigError` for files that cannot be used, not even a moment later,
    `errors.ConnectError` if they were valid before.
    """
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            context = _context(settings)
        except errors.ConfigError as error:
            if hash(settings) in _SERVED:
                raise errors.ConnectError(
                    "the files of TLS were good before and are not now: "
                    f"{'; '.join(error.problems)}"
                ) from error
            if not attempts_left:
                raise
            time.sleep(_ATTEMPT_PAUSE_S)
        else:
            _SERVED.add(hash(settings))
            return context
    raise AssertionError("the last attempt returns or raises")


def _context(settings: TlsSettings) -> ssl.SSLContext:
    import ssl

    _check_files(settings)
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:
        raise errors.ConfigError(
            f"tls.ca_file: {settings.ca_file!r} holds no certificate in PEM form: {reason(error)}"
        ) from error
    context.check_hostname = settings.check_hostname
    if settings.cert_file:
        # Without a password OpenSSL would ask the terminal for one.
        password = settings.key_password or ""
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file, password)
        except (OSError, ValueError) as error:
            raise errors.ConfigError(
                "tls.cert_file, tls.key_file and tls.key_password do not fit together: "
                f"{reason(error)}"
            ) from error
    return context


def _check_files(settings: TlsSettings) -> None:
    problems = []
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(settings, name)
        try:
            if path is not None:
                with open(path, "rb"):  # noqa: PTH123 - only whether it can be opened
                    pass
        except OSError as error:
            problems.append(f"tls.{name}: {path!r}: {error.strerror}")
    if problems:
        raise errors.ConfigError(problems)


def secure(sock: socket.socket, address: Address, settings: TlsSettings) -> TlsSocket:
    """Perform the handshake on a connected socket.

    Raises `errors.TlsError`, and then closes the socket.
    """
    name = settings.server_hostname or address[0]
    context = make_context(settings)
    wrapped = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
    try:
        wrapped.settimeout(0)
        _shake_hands(wrapped, time.monotonic() + settings.handshake_timeout_ms / 1000)
    except TimeoutError:
        wrapped.close()
        raise late(address, settings) from None
    except OSError as error:
        wrapped.close()
        raise refused(address, error) from error
    return TlsSocket(wrapped)


def _shake_hands(sock: ssl.SSLSocket, deadline: float) -> None:
    import ssl

    while True:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            events = select.POLLIN
        except ssl.SSLWantWriteError:
            events = select.POLLOUT
        else:
            return
        waiting = select.poll()
        waiting.register(sock, events)
        if not waiting.poll(max(0.0, (deadline - time.monotonic()) * 1000)):
            raise TimeoutError


_PAIR = "options tls.cert_file and tls.key_file"
_ADVICE = (
    (
        ("protocol version", "unsupported protocol", "no protocols", "version too low"),
        " (no version of TLS in common: allow 1.2 or 1.3, which this client speaks, at the server)",
    ),
    (
        ("wrong version number", "http request", "packet length too long"),
        " (is this a TLS port?)",
    ),
    (
        ("handshake failure", "no shared cipher", "insufficient security"),
        f" (no algorithm in common, or the server wants a client's certificate: {_PAIR})",
    ),
    (("alert", "certificate"), f" (the server refuses this client: {_PAIR})"),
)
"""Advice by fragments of OpenSSL's texts; the first match is used."""


def late(address: Address, settings: TlsSettings) -> errors.TlsError:
    return errors.TlsError(
        f"no TLS handshake with {address_text(address)} within {settings.handshake_timeout_ms} ms "
        "(option tls.handshake_timeout_ms): is this a TLS port? A plain port stays silent"
    )


def refused(address: Address, error: BaseException) -> errors.TlsError:
    """Return the error for a handshake that failed on either side."""
    return errors.TlsError(f"no TLS with {address_text(address)}: {reason(error)}{_advice(error)}")


def refused_later(name: str, error: BaseException | None) -> errors.TlsError:
    """Return the error for a connection that TLS ended after the handshake."""
    why = error or OSError("closed")
    return errors.TlsError(f"{name}: TLS ended: {reason(why)}{_advice(why)}")


def no_answer(*, secured: bool) -> str:
    """Return the hint for a peer that closed a connection without sending anything."""
    if secured:  # some servers, Python's among them, refuse a certificate without an alert
        return " (did it refuse the client's certificate? options tls.cert_file and tls.key_file)"
    return " (without a word: is this a TLS port? option tls)"


def is_tls_error(error: BaseException | None) -> bool:
    """Return whether TLS itself failed, as opposed to the connection below it."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return "SSLError" in kinds and "SSLEOFError" not in kinds


def reason(error: BaseException) -> str:
    """Return OpenSSL's text without its brackets and source lines."""
    verified = getattr(error, "verify_message", None)
    if verified:
        return f"the server's certificate is not accepted: {verified}"
    words = getattr(error, "reason", None)
    if isinstance(words, str):
        return words.replace("_", " ").lower()
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _advice(error: BaseException) -> str:
    words = reason(error)
    if getattr(error, "verify_message", None):
        if "match" in words or "valid for" in words:
            return " (options tls.server_hostname, tls.check_hostname)"
        return " (option tls.ca_file)"
    return next((advice for signs, advice in _ADVICE if any(sign in words for sign in signs)), "")


def explain(error: BaseException) -> str:
    """Return a failure of TLS in words, with the option to check."""
    return f"{reason(error)}{_advice(error)}"


class TlsSocket:
    """Non-blocking socket over TLS, with the few methods that a connection uses.

    OpenSSL's objects must not be used by two threads at once; the lock is held for one call that
    does not wait.
    """

    def __init__(self, sock: ssl.SSLSocket) -> None:
        import ssl

        self._sock = sock
        self._lock = threading.Lock()
        self._wants = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
        self._failed: OSError | None = None

    def fileno(self) -> int:
        return self._sock.fileno()

    def settimeout(self, seconds: float) -> None:
        self._sock.settimeout(seconds)

    def send(self, data: bytes | memoryview) -> int:
        """Send data and return the number of accepted bytes.

        Raises `BlockingIOError` when none can be accepted now.
        """
        with self._lock:
            try:
                return self._sock.send(data)
            except self._wants as error:
                raise BlockingIOError(errno.EAGAIN, "the peer takes no more") from error
            except ValueError as error:
                raise _closed() from error

    def recv_into(self, buffer: memoryview) -> int:
        """Read received data, 0 at the end. Raises `BlockingIOError` when nothing has arrived."""
        with self._lock:
            if self._failed is not None:
                raise self._failed
            count = 0
            while count < len(buffer):
                try:
                    more = self._sock.recv_into(buffer[count:])
                except self._wants as error:
                    if count == 0:
                        raise BlockingIOError(errno.EAGAIN, "nothing has come") from error
                    break
                except ValueError as error:
                    raise _closed() from error
                except OSError as error:
                    if count == 0:
                        raise
                    self._failed = error  # data before the error is valid
                    break
                if more == 0:
                    break
                count += more
            return count

    def pending(self) -> int:
        """Return the number of decrypted bytes: `poll` on the socket no longer reports them."""
        with self._lock:
            return self._sock.pending()

    def shutdown(self, how: int) -> None:
        """End the connection below; `SSLSocket.shutdown` lets other threads read raw bytes."""
        raw: Any = socket.socket
        raw.shutdown(self._sock, how)

    def close(self) -> None:
        self._sock.close()


def _closed() -> OSError:
    """Return the error of a plain socket that another thread has closed."""
    return OSError(errno.EBADF, "closed")
