"""Printing of records: JSON lines, raw bodies, hexadecimal, unpacked InLong messages.

One writer for `read-range` and `consume`. Bodies that are not UTF-8 become base64 in JSON. Nothing
here reads from a cluster.
"""

from __future__ import annotations

import base64
import json
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Any

from tubemq_client.tdmsg import parse_tdmsg
from tubemq_client.terminal import visible, visible_json

if TYPE_CHECKING:
    from tubemq_client.model import Message, Partition

__all__ = ["Format", "write_record"]


class Format(StrEnum):
    """Output format: JSON lines (base64 body if it is not UTF-8), bodies as lines (byte by byte,
    but without control characters on a terminal), bodies in hexadecimal, or the records of InLong's
    packed bodies as JSON lines."""

    JSON = "json"
    RAW = "raw"
    HEX = "hex"
    TDMSG = "tdmsg"


def write_record(
    out: IO[bytes], message: Message, output: Format, partition: Partition | None = None
) -> None:
    """Write one record. Raises `errors.UnreadableTDMsg` for a body that is not packed."""
    if output is Format.RAW:
        out.write(_shown(out, message.body) + b"\n")
    elif output is Format.HEX:
        out.write(message.body.hex().encode() + b"\n")
    elif output is Format.TDMSG:
        for number, record in enumerate(parse_tdmsg(message.body)):
            row = _position(message, partition) | {
                "record": number,
                "attributes": dict(record.attributes),
                **_value(record.body),
            }
            _line(out, row)
    else:
        row = _position(message, partition) | {
            "message_id": message.message_id,
            "stream_id": message.stream_id,
            "msg_time": message.msg_time,
            "attributes": message.attributes,
            **_value(message.body),
        }
        _line(out, row)


def _shown(out: IO[bytes], body: bytes) -> bytes:
    """Return the body as it is, for a file or a pipe; for a terminal without control characters."""
    if not out.isatty():
        return body
    return visible(body.decode("utf-8", "backslashreplace"), lines=True).encode()


def _position(message: Message, partition: Partition | None) -> dict[str, Any]:
    key = {} if partition is None else {"partition": partition.key}
    return {**key, "offset": message.offset}


def _value(body: bytes) -> dict[str, str]:
    try:
        return {"value": body.decode()}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(body).decode()}


def _line(out: IO[bytes], row: dict[str, Any]) -> None:
    out.write(visible_json(json.dumps(row, ensure_ascii=False)).encode() + b"\n")
