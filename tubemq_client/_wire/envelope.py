"""The RPC envelope: three length-delimited messages around one business message.

A payload is ``header, header, body``, each preceded by its length as a varint; the body carries
the business message as plain bytes. Bytes after the third message are legal (one upstream client
pads with zeros) and ignored.

Both directions are here: the client's (`encode_request`, `decode_response`) and the server's, for
the embedded server and tests. The body is parsed by hand, so a fetch of 1 MiB is not copied between
the frame and the protobuf parser; headers are parsed by protobuf. A reply's `errCode` is not
interpreted: only failures of the RPC layer are raised.

Source: `docs/protocol/wire.md#envelope-envelope`.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from tubemq_client import _pb, errors
from tubemq_client._wire.framing import BLOCK_BYTES, encode_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubemq_client._wire.methods import Method

__all__ = [
    "PROTOCOL_VERSION",
    "STATUS_ERROR",
    "STATUS_FATAL",
    "STATUS_SUCCESS",
    "Request",
    "decode_request",
    "decode_response",
    "encode_exception",
    "encode_request",
    "encode_requests",
    "encode_response",
]

PROTOCOL_VERSION: Final = 3
"""Version of this client and of current servers; lower ones only change exception names."""

STATUS_SUCCESS: Final = 0
STATUS_ERROR: Final = 1
STATUS_FATAL: Final = 2

_SERIAL = struct.Struct(">i")

_STANDBY: Final = "StandbyException"

_LOW_BITS: Final = 0x7F
_TAG_METHOD: Final = 0x08  # field 1, varint; the same number in requests and replies
_TAG_TIMEOUT: Final = b"\x10"  # RequestBody field 2, varint
_TAG_REQUEST: Final = b"\x1a"  # RequestBody field 3, bytes
_TAG_DATA: Final = 0x12  # RspResponseBody field 2, bytes


class Request(NamedTuple):
    """Request as a server receives it: `body` is the undecoded business message.

    `timeout_ms` 0 means absent or zero; a real server drops such a request without an answer.
    """

    method_id: int
    service: int
    timeout_ms: int
    protocol_ver: int
    body: bytes


def _varint(value: int) -> bytes:
    if value < 1 << 14:  # nearly always
        return bytes((value & _LOW_BITS | 0x80, value >> 7)) if value >> 7 else bytes((value,))
    encoded = bytearray()
    while value > _LOW_BITS:
        encoded.append(value & _LOW_BITS | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the value of the varint at `pos`, and the position after it."""
    value = shift = 0
    # Five groups of seven bits hold every uint32, which is the largest legal length.
    for byte in data[pos : pos + 5]:
        pos += 1
        value |= (byte & _LOW_BITS) << shift
        if byte <= _LOW_BITS:
            return value, pos
        shift += 7
    raise errors.ProtocolViolation("envelope: a length is cut off or too large")


def _read_span(data: bytes, pos: int, what: str) -> tuple[int, int]:
    """Return start and end of the delimited message at `pos`."""
    size, start = _read_varint(data, pos)
    stop = start + size
    if stop > len(data):
        raise errors.ProtocolViolation(
            f"envelope: {what} announces {size} bytes, {len(data) - start} are left"
        )
    return start, stop


def _parse(cls: type[Any], data: bytes | memoryview, what: str) -> Any:
    """Parse `cls` from `data`; raise `ProtocolViolation` if invalid or incomplete."""
    try:
        message = cls.FromString(data)
    except DecodeError as error:
        raise errors.ProtocolViolation(f"{what}: {error}") from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())
        raise errors.ProtocolViolation(f"{what}: required fields are missing: {missing}")
    return message


def _delimited(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return _varint(len(data)) + data


_REQUEST_FLAG: Final = _delimited(_pb.RpcConnHeader(flag=0))
_RESPONSE_FLAG: Final = _delimited(_pb.RpcConnHeader(flag=1))
_SUCCESS_PREFIX: Final = _RESPONSE_FLAG + _delimited(
    _pb.ResponseHeader(status=STATUS_SUCCESS, protocolVer=PROTOCOL_VERSION)
)
_SMALL_BODY: Final = len(_SUCCESS_PREFIX)
_SMALL_DATA: Final = _SMALL_BODY + 5


# ---------------------------------------------------------------------------- client side


def encode_request(
    serial: int, method: Method | _Call, request_message: Any, timeout_ms: int
) -> bytes:
    """Return the complete frame of a call; `request_message` is a message or its bytes.

    `timeout_ms` is the server's time limit. It must be positive (`ValueError`): a server treats
    zero or nothing as "already expired" and drops the call without an answer.
    """
    if timeout_ms <= 0:
        raise ValueError(f"timeout_ms must be positive, not {timeout_ms}")
    request: bytes = (
        request_message
        if isinstance(request_message, bytes)
        else request_message.SerializeToString()
    )
    headers, call = _request_parts(method.service, method.id, timeout_ms)
    length = _varint(len(request))
    size = _varint(len(call) + len(length) + len(request))
    return encode_frame(serial, b"".join((headers, size, call, length, request)))


def encode_requests(
    serials: Sequence[int], method: Method, requests: Sequence[Any], timeout_ms: int
) -> bytes:
    """Return the concatenated frames of several calls, each as from `encode_request`."""
    parts: list[bytes] = []
    pack_serial = _SERIAL.pack
    for serial, request in zip(serials, requests, strict=True):
        size = len(request) if isinstance(request, bytes) else BLOCK_BYTES
        if size < _SMALL_REQUEST:
            head, between = _small_request(method.service, method.id, timeout_ms, size)
            parts += (head, pack_serial(serial), between, request)
        else:
            parts.append(encode_request(serial, method, request, timeout_ms))
    return b"".join(parts)


_SMALL_REQUEST: Final = BLOCK_BYTES - 128
"""Limit below which a request fits into one block, headers included."""


@lru_cache(maxsize=2048)
def _small_request(service: int, method_id: int, timeout_ms: int, size: int) -> tuple[bytes, bytes]:
    """Return the parts of a frame before its serial number, and between that and the request.

    They are equal for all requests of `size` bytes.
    """
    template = encode_request(0, _Call(service, method_id), bytes(size), timeout_ms)
    return template[:4], template[8 : len(template) - size]


class _Call(NamedTuple):
    """Fields of a `Method` that a request needs."""

    service: int
    id: int


@lru_cache(maxsize=256)
def _request_parts(service: int, method_id: int, timeout_ms: int) -> tuple[bytes, bytes]:
    """Return the bytes before the body's size, and those between it and the request's."""
    header = _delimited(_pb.RequestHeader(serviceType=service, protocolVer=PROTOCOL_VERSION))
    call = (bytes((_TAG_METHOD,)), _varint(method_id), _TAG_TIMEOUT, _varint(timeout_ms))
    return _REQUEST_FLAG + header, b"".join((*call, _TAG_REQUEST))


def decode_response(payload: bytes, method: Method, where: str = "") -> Any:
    """Return the reply message (of class `method.response`) in a frame's payload.

    `where` names the peer in error texts. Raises `StandbyMaster` or `RemoteException` when the RPC
    layer answered with an exception, `ProtocolViolation` when the payload cannot be read or
    answers another method.
    """
    if payload.startswith(_SUCCESS_PREFIX):  # the exact bytes of current servers
        if _is_small_reply(payload, method.id):
            return _reply(method, payload[_SMALL_DATA:])
        status, stop = STATUS_SUCCESS, len(_SUCCESS_PREFIX)
    else:
        _, pos = _read_span(payload, 0, "connection header")
        start, stop = _read_span(payload, pos, "response header")
        status = _parse(_pb.ResponseHeader, payload[start:stop], "response header").status
    start, stop = _read_span(payload, stop, "response body")
    if status != STATUS_SUCCESS:
        raise _remote_exception(payload[start:stop], status, where)
    method_id, data = _response_body(payload, start, stop)
    if method_id != method.id:
        raise errors.ProtocolViolation(f"received a reply to method {method_id} for {method}")
    return _reply(method, data)


def _reply(method: Method, data: bytes | memoryview) -> Any:
    try:
        message = method.response.FromString(data)
        if message.IsInitialized():
            return message
    except DecodeError:
        pass
    return _parse(method.response, data, f"reply to {method}")  # raises with the reason


def _is_small_reply(payload: bytes, method_id: int) -> bool:
    """Return whether lengths and method take a byte each and nothing follows the message.

    The message is then at `_SMALL_DATA`. A fast path for receipts; `_response_body` reads them too.
    """
    size = len(payload) - _SMALL_BODY - 1
    return (
        4 <= size < 128
        and payload[_SMALL_BODY] == size
        and payload[_SMALL_BODY + 1] == _TAG_METHOD
        and payload[_SMALL_BODY + 2] == method_id
        and payload[_SMALL_BODY + 3] == _TAG_DATA
        and payload[_SMALL_BODY + 4] == size - 4
    )


def _response_body(payload: bytes, start: int, stop: int) -> tuple[int, bytes | memoryview]:
    """Return method and business message of the body at `payload[start:stop]`.

    Fast path: return a view into `payload` if the body is exactly the two fields in order, which
    every known server writes; otherwise protobuf parses it.
    """
    if stop - start >= 4 and payload[start] == _TAG_METHOD:
        method_id, pos = _read_varint(payload, start + 1)
        if pos < stop and payload[pos] == _TAG_DATA:
            size, pos = _read_varint(payload, pos + 1)
            if pos + size == stop:
                return method_id, memoryview(payload)[pos:stop]
    body = _parse(_pb.RspResponseBody, payload[start:stop], "response body")
    return body.method, body.data


def _remote_exception(data: bytes, status: int, where: str) -> errors.RemoteException:
    body = _parse(_pb.RspExceptionBody, data, "exception body")
    # Old protocol versions use other package names, so only the class name is compared. A server
    # that could not even read the envelope (FATAL) states nothing about its role.
    standby = status != STATUS_FATAL and _STANDBY in body.exceptionName
    cls = errors.StandbyMaster if standby else errors.RemoteException
    return cls(body.exceptionName, body.stackTrace, where=where)


# ---------------------------------------------------------------------------- server side


def decode_request(payload: bytes) -> Request:
    """Return the call in a frame's payload; raise `ProtocolViolation` for an invalid envelope.

    Absent optional fields read as 0 and an empty body; the caller checks if service and method
    match (`methods.is_legal`).
    """
    _, pos = _read_span(payload, 0, "connection header")
    start, stop = _read_span(payload, pos, "request header")
    header = _parse(_pb.RequestHeader, payload[start:stop], "request header")
    start, stop = _read_span(payload, stop, "request body")
    body = _parse(_pb.RequestBody, payload[start:stop], "request body")
    return Request(body.method, header.serviceType, body.timeout, header.protocolVer, body.request)


def encode_response(serial: int, method_id: int, response_message: Any) -> bytes:
    """Return the complete frame of a normal reply."""
    data: bytes = response_message.SerializeToString()
    lead = b"".join(
        (bytes((_TAG_METHOD,)), _varint(method_id), bytes((_TAG_DATA,)), _varint(len(data)))
    )
    size = _varint(len(lead) + len(data))
    return encode_frame(serial, b"".join((_SUCCESS_PREFIX, size, lead, data)))


def encode_exception(serial: int, name: str, detail: str, *, fatal: bool = False) -> bytes:
    """Return the complete frame of a failed call; `name` is the Java class, `detail` its message.

    `fatal` is for envelopes that could not be read; like a real server it leaves the protocol
    version out.
    """
    if fatal:
        header = _pb.ResponseHeader(status=STATUS_FATAL)
    else:
        header = _pb.ResponseHeader(status=STATUS_ERROR, protocolVer=PROTOCOL_VERSION)
    body = _pb.RspExceptionBody(exceptionName=name, stackTrace=detail)
    return encode_frame(serial, _RESPONSE_FLAG + _delimited(header) + _delimited(body))
