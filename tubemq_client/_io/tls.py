"""TLS for both kinds of connections: contexts from PEM files, errors in words, blocking sockets.

Files are read for every connection, so a renewed certificate is used with the next one; while they
are being replaced, which takes two of them more than one moment, connections fail for now. `ssl` is
imported only where TLS is used. TubeMQ speaks TLS from the first byte of a port of its own; a plain
port answers a handshake with silence, so handshakes have a deadline of their own. With TLS 1.3 a
server refuses a client's certificate only after the handshake: the alert comes with the first read.
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
"""Hashes of settings whose files could be used before, in this process."""

_LOOKS, _LOOK_AGAIN_S = 5, 0.025
"""The first time, files may be met while they are being replaced."""


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """What to trust and to show. Raises `errors.ConfigError` for files that cannot be used, not
    even a moment later, `errors.ConnectError` if they could be before."""
    for looks_left in reversed(range(_LOOKS)):
        try:
            context = _context(settings)
        except errors.ConfigError as error:
            if hash(settings) in _SERVED:
                raise errors.ConnectError(
                    "the files of TLS were good before and are not now: "
                    f"{'; '.join(error.problems)}"
                ) from error
            if not looks_left:
                raise
            time.sleep(_LOOK_AGAIN_S)
        else:
            _SERVED.add(hash(settings))
            return context
    raise AssertionError("the last look returns or raises")


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
    """Shake hands on a connected socket. Raises `errors.TlsError`, and closes it then."""
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
            wanted = select.POLLIN
        except ssl.SSLWantWriteError:
            wanted = select.POLLOUT
        else:
            return
        waiting = select.poll()
        waiting.register(sock, wanted)
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
"""By what OpenSSL's words contain, the first that fits."""


def late(address: Address, settings: TlsSettings) -> errors.TlsError:
    return errors.TlsError(
        f"no TLS handshake with {address_text(address)} within {settings.handshake_timeout_ms} ms "
        "(option tls.handshake_timeout_ms): is this a TLS port? A plain port stays silent"
    )


def refused(address: Address, error: BaseException) -> errors.TlsError:
    """A handshake that failed, on either side."""
    return errors.TlsError(f"no TLS with {address_text(address)}: {reason(error)}{_advice(error)}")


def refused_later(name: str, error: BaseException | None) -> errors.TlsError:
    """A connection that TLS ended after the handshake."""
    why = error or OSError("closed")
    return errors.TlsError(f"{name}: TLS ended: {reason(why)}{_advice(why)}")


def no_answer(*, secured: bool) -> str:
    """What to add when a peer closes a connection on which it never said anything."""
    if secured:  # some servers, Python's among them, refuse a certificate without an alert
        return " (did it refuse the client's certificate? options tls.cert_file and tls.key_file)"
    return " (without a word: is this a TLS port? option tls)"


def is_tls_error(error: BaseException | None) -> bool:
    """Whether TLS itself failed, as opposed to the connection below it."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return "SSLError" in kinds and "SSLEOFError" not in kinds


def reason(error: BaseException) -> str:
    """OpenSSL's words without its brackets and source lines."""
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
    """A failure of TLS in words, with the option to look at."""
    return f"{reason(error)}{_advice(error)}"


class TlsSocket:
    """A socket over TLS with the few methods that a connection uses, never blocking.

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
        """How much was taken. Raises `BlockingIOError` when nothing can be taken now."""
        with self._lock:
            try:
                return self._sock.send(data)
            except self._wants as error:
                raise BlockingIOError(errno.EAGAIN, "the peer takes no more") from error
            except ValueError as error:
                raise _closed() from error

    def recv_into(self, buffer: memoryview) -> int:
        """Take what has come, 0 at the end. Raises `BlockingIOError` when nothing has."""
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
                    self._failed = error  # what came before it counts
                    break
                if more == 0:
                    break
                count += more
            return count

    def pending(self) -> int:
        """Bytes that are decrypted already: the socket itself does not tell of them any more."""
        with self._lock:
            return self._sock.pending()

    def shutdown(self, how: int) -> None:
        """End the connection below; `SSLSocket.shutdown` lets other threads read raw bytes."""
        raw: Any = socket.socket
        raw.shutdown(self._sock, how)

    def close(self) -> None:
        self._sock.close()


def _closed() -> OSError:
    """What a plain socket says when another thread has closed it."""
    return OSError(errno.EBADF, "closed")
