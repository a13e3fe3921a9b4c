"""Remoting commands: one request or answer, with its header in JSON or in binary form.

Upstream's `RemotingCommand.java`, `RocketMQSerializable.java`. Servers choose the form of an answer
(5.x answers binary requests in JSON), so the mark of each header decides. `framing` handles the
frame around a command; conversations interpret the fields.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, NamedTuple

from rocketmq_client import errors

__all__ = [
    "ANSWER",
    "BINARY",
    "CLIENT_VERSION",
    "JSON",
    "ONE_WAY",
    "Command",
    "decode_command",
    "encode_command",
]

JSON: Final = 0
BINARY: Final = 1
ANSWER: Final = 1
ONE_WAY: Final = 2

CLIENT_VERSION: Final = 401
"""Version that this client claims. With 413 or more, name servers may answer routes in a form that
is not standard JSON."""

_LANGUAGES: Final = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY"),
    *("OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"),
)
_LANGUAGE_NUMBERS: Final = {name: number for number, name in enumerate(_LANGUAGES)}
_LANGUAGE_OTHER: Final = 7

_TO_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_PREFIX = struct.Struct(">ii")
_BINARY_HEAD = struct.Struct(">hbhii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


class Command(NamedTuple):
    """A request (`code` is its number) or an answer (`code` is 0 or a refusal).

    `opaque` pairs an answer with its request. `fields` is the custom header, all text. `binary` is
    the form of its header.
    """

    code: int
    opaque: int
    fields: dict[str, str]
    body: bytes = b""
    flag: int = 0
    remark: str | None = None
    language: str = "PYTHON"
    version: int = CLIENT_VERSION
    binary: bool = False

    @property
    def is_answer(self) -> bool:
        """True for an answer to a request of this client, False for a request of the peer."""
        return bool(self.flag & ANSWER)

    @property
    def is_one_way(self) -> bool:
        """True if the sender wants no answer."""
        return bool(self.flag & ONE_WAY)


def encode_command(command: Command) -> bytes:
    """Return the whole frame: length, header mark and length, header, body."""
    header = _binary_header(command) if command.binary else _json_header(command)
    mark = (BINARY if command.binary else JSON) << 24
    if len(header) > 0xFFFFFF:
        raise ValueError(f"a header of {len(header)} bytes cannot be framed")
    prefix = _PREFIX.pack(4 + len(header) + len(command.body), mark | len(header))
    return b"".join((prefix, header, command.body))


def decode_command(frame: bytes | memoryview) -> Command:
    """Decode the command of a frame without its length. Raises `errors.ProtocolViolation`."""
    if len(frame) < 4:
        raise errors.ProtocolViolation(f"a frame of {len(frame)} bytes has no header length")
    mark = frame[0]
    stop = 4 + int.from_bytes(frame[1:4], "big")
    if stop > len(frame):
        raise errors.ProtocolViolation(
            f"a header of {stop - 4} bytes in a frame of {len(frame)} bytes"
        )
    if mark == JSON:
        return _from_json(bytes(frame[4:stop]), bytes(frame[stop:]))
    if mark == BINARY:
        return _from_binary(bytes(frame), stop)
    raise errors.ProtocolViolation(f"unknown form of header {mark}")


# ------------------------------------------------------------------------------------ JSON form


def _json_header(command: Command) -> bytes:
    header: dict[str, Any] = {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
    }
    if command.remark is not None:
        header["remark"] = command.remark
    if command.fields:
        header["extFields"] = command.fields
    header["serializeTypeCurrentRPC"] = "JSON"
    return _TO_JSON(header).encode("utf-8", "surrogatepass")


def _from_json(header: bytes, body: bytes) -> Command:
    try:
        members = json.loads(header.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise errors.ProtocolViolation(f"a header is not JSON: {error}") from error
    if not isinstance(members, dict):
        raise errors.ProtocolViolation("a header is not a JSON object")
    fields = members.get("extFields") or {}
    remark = members.get("remark")
    if not isinstance(fields, dict) or not isinstance(remark, str | None):
        raise errors.ProtocolViolation("a header's extFields or remark has a wrong type")
    return Command(
        _whole(members, "code", 16),
        _whole(members, "opaque", 32),
        {
            key: value if type(value) is str else _text(value)
            for key, value in fields.items()
            if value is not None
        },
        body,
        _whole(members, "flag", 32),
        remark,
        str(members.get("language", "OTHER")),
        _whole(members, "version", 32),
    )


def _whole(header: dict[str, Any], name: str, bits: int) -> int:
    value = header.get(name, 0)
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise errors.ProtocolViolation(f"a header's {name} is {str(value)[:40]!r}")
    return value


def _text(value: Any) -> str:
    """Return the text of a number or boolean, which servers accept as well."""
    return json.dumps(value)


# ---------------------------------------------------------------------------------- binary form


def _binary_header(command: Command) -> bytes:
    language = _LANGUAGE_NUMBERS.get(command.language, _LANGUAGE_OTHER)
    head = _BINARY_HEAD.pack(command.code, language, command.version, command.opaque, command.flag)
    remark = (command.remark or "").encode()
    pairs = b"".join(map(_binary_pair, command.fields.items()))
    return b"".join((head, _INT.pack(len(remark)), remark, _INT.pack(len(pairs)), pairs))


def _binary_pair(pair: tuple[str, str]) -> bytes:
    key, value = (text.encode("utf-8", "surrogatepass") for text in pair)
    return b"".join((_SHORT.pack(len(key)), key, _INT.pack(len(value)), value))


def _from_binary(frame: bytes, stop: int) -> Command:
    try:
        code, language, version, opaque, flag = _BINARY_HEAD.unpack_from(frame, 4)
        pos = 4 + _BINARY_HEAD.size
        remark, pos = _read_text(frame, pos, stop, _INT)
        (size,) = _INT.unpack_from(frame, pos)
    except struct.error as error:
        raise errors.ProtocolViolation(f"a binary header is cut short: {error}") from error
    pos += _INT.size
    if size < 0 or pos + size > stop:
        raise errors.ProtocolViolation(f"a binary header announces {size} bytes of fields")
    fields = _read_pairs(frame, pos, pos + size)
    name = _LANGUAGES[language] if 0 <= language < len(_LANGUAGES) else "OTHER"
    return Command(
        code, opaque, fields, frame[stop:], flag, remark or None, name, version, binary=True
    )


def _read_pairs(frame: bytes, pos: int, stop: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    while pos < stop:
        key, pos = _read_text(frame, pos, stop, _SHORT)
        fields[key], pos = _read_text(frame, pos, stop, _INT)
    return fields


def _read_text(frame: bytes, pos: int, stop: int, length: struct.Struct) -> tuple[str, int]:
    if pos + length.size > stop:
        raise errors.ProtocolViolation("a binary header is cut short")
    (size,) = length.unpack_from(frame, pos)
    start = pos + length.size
    if size < 0 or start + size > stop:
        raise errors.ProtocolViolation(f"a binary header announces a text of {size} bytes")
    try:
        return frame[start : start + size].decode(), start + size
    except UnicodeDecodeError as error:
        raise errors.ProtocolViolation(f"a binary header is not UTF-8: {error}") from error
