"""A TCP listener that speaks TubeMQ's RPC: frames in, one handler call each, frames out.

It knows frames and envelopes, not the meaning of methods: a `Service` gets a parsed request and
returns a reply message. Everything runs on the event loop's thread, so handlers need no locks and
must not block. Like real servers, it neither answers nor closes a stream that loses framing; it
only ignores it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from tubemq_client._wire import envelope, methods
from tubemq_client._wire.framing import Frame, FrameDecoder
from tubemq_client.embedded.checks import INVOCATION_FAILURE, RpcFault
from tubemq_client.errors import ProtocolViolation

__all__ = ["RpcListener", "Service", "answer"]

_log = logging.getLogger(__name__)

_UNREADABLE = "IPC server unable to read call parameters:"
_UNHANDLED = "IPC server handle request error :"
_JAVA_EXCEPTION = "java.lang.Exception"
_BAD_MESSAGE = "com.google.protobuf.InvalidProtocolBufferException"

# Small replies to pipelined calls share a system call; a big one is written at once.
_WRITE_BYTES = 64 * 1024

_SERVICES = (
    methods.MASTER_SERVICE,
    methods.BROKER_READ_SERVICE,
    methods.BROKER_WRITE_SERVICE,
)

_PACKAGE = "org.apache.inlong.tubemq."
_FORMER_PACKAGES = {1: "com.tencent.tubemq.", 2: "com.apache.tubemq."}


class Service(Protocol):
    """Handlers behind a listener. `handle` returns None for a call to be left unanswered."""

    handlers: dict[int, Any]

    def handle(self, method_id: int, request: Any) -> Any | None: ...


def answer(frame: Frame, service: Service) -> bytes | None:
    """Return the reply frame to a request frame; None if a real server would stay silent."""
    try:
        request = envelope.decode_request(frame.payload)
    except ProtocolViolation as error:
        detail = f"{_UNREADABLE} {error}"
        return envelope.encode_exception(frame.serial, _BAD_MESSAGE, detail, fatal=True)
    if request.timeout_ms <= 0:
        return None
    try:
        reply = _dispatch(request, service)
    except RpcFault as fault:
        name = fault.name
        former = _FORMER_PACKAGES.get(request.protocol_ver)
        if former and name.startswith(_PACKAGE):
            name = former + name.removeprefix(_PACKAGE)
        return envelope.encode_exception(frame.serial, name, fault.detail, fatal=fault.fatal)
    except Exception:  # noqa: BLE001 - a handler's bug must cost one call, not the server
        _log.exception("method %d failed", request.method_id)
        return envelope.encode_exception(frame.serial, INVOCATION_FAILURE, "")
    if reply is None:
        return None
    return envelope.encode_response(frame.serial, request.method_id, reply)


def _dispatch(request: envelope.Request, service: Service) -> Any | None:
    """Return the handler's reply, after the checks of a real server in its order."""
    method_id = request.method_id
    method = methods.BY_ID.get(method_id)
    if method is None:
        detail = f"{_UNHANDLED}Unsupported method ID :{method_id}"
        raise RpcFault(_JAVA_EXCEPTION, detail, fatal=True)
    message = method.request()
    try:
        message.MergeFromString(request.body)
    except DecodeError as error:
        raise RpcFault(_BAD_MESSAGE, f"{_UNHANDLED}{error}", fatal=True) from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        detail = f"{_UNHANDLED}Message missing required fields: {missing}"
        raise RpcFault(_BAD_MESSAGE, detail, fatal=True)
    _check_service(request, service)
    return service.handle(method_id, message)


def _check_service(request: envelope.Request, service: Service) -> None:
    kind = request.service
    if kind not in _SERVICES:
        raise RpcFault(_JAVA_EXCEPTION, "Service Type is invalid!")
    if not methods.is_legal(kind, request.method_id):
        raise RpcFault(
            _JAVA_EXCEPTION, f"Unsupported method {request.method_id}in service type {kind}!"
        )
    if request.method_id not in service.handlers:
        raise RpcFault(_JAVA_EXCEPTION, f"No service {kind} found on the server")


class RpcListener:
    """Listens on one loopback address for one service."""

    def __init__(self, service: Service, name: str) -> None:
        self._service = service
        self._name = name
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def start(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections on a bound socket, which the listener now owns; with `tls` only TLS
        ones."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connected, sock=sock, ssl=tls)

    @property
    def connections(self) -> int:
        """Number of clients connected now."""
        return len(self._connections)

    async def stop(self) -> None:
        """Refuse new connections and drop the open ones at once."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        await self._server.wait_closed()
        self._server = None

    def _connected(self) -> _Connection:
        return _Connection(self._service, self._name, self._connections)


class _Connection(asyncio.Protocol):
    """One client. Requests are answered in order; reading pauses while the client does not read."""

    def __init__(self, service: Service, name: str, registry: set[_Connection]) -> None:
        self._service = service
        self._name = name
        self._registry = registry
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._full = False
        self._lost_framing = False

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "the listener is a stream server"
        self._transport = transport
        self._registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        self._registry.discard(self)

    def pause_writing(self) -> None:
        self._full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        self._answer_waiting()
        if not self._full and self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._lost_framing:
            return
        try:
            self._decoder.receive_data(data)
        except ProtocolViolation as error:
            self._lose_framing(error)
        else:
            self._answer_waiting()

    def _answer_waiting(self) -> None:
        if self._transport is None or self._lost_framing:
            return
        batch = bytearray()
        try:
            while not self._full and (frame := self._decoder.next_frame()) is not None:
                batch += answer(frame, self._service) or b""
                if len(batch) >= _WRITE_BYTES:
                    self._transport.write(batch)
                    batch = bytearray()
        except ProtocolViolation as error:
            self._lose_framing(error)
        if batch:
            self._transport.write(batch)

    def _lose_framing(self, error: ProtocolViolation) -> None:
        # A real server logs and keeps the connection; the client can only time out. The decoder is
        # dropped with its buffer, so a client that keeps sending costs no memory.
        _log.warning("%s: a client lost framing: %s", self._name, error)
        self._lost_framing = True
        self._decoder = FrameDecoder()
