"""Printing of records: a table, JSON, raw bodies, hexadecimal, unpacked InLong messages.

One writer for `read-range` and `consume`. Bodies that are not UTF-8 become base64 in JSON. Nothing
here reads from a cluster.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tubemq_client.cli.options import JsonRows, Output, print_table
from tubemq_client.tdmsg import parse_tdmsg
from tubemq_client.terminal import visible, visible_json

if TYPE_CHECKING:
    from tubemq_client.model import Message, Partition

__all__ = ["Format", "FormatOption", "RecordWriter", "write_record"]

_TABLE_RECORDS = 500
"""Records that a table holds at most; more follow in the next table."""


class Format(StrEnum):
    """Output format: a table, a JSON array, JSON lines (base64 body if it is not UTF-8), bodies as
    lines (byte by byte, but without control characters on a terminal), bodies in hexadecimal, or
    the records of InLong's packed bodies as JSON lines."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    RAW = "raw"
    HEX = "hex"
    TDMSG = "tdmsg"


FormatOption = Annotated[
    Format,
    typer.Option(
        "--output",
        "-o",
        help="table, json (one array), jsonl (an object per line), bodies as they are (raw) or in "
        "hex, or InLong's packed bodies unpacked (tdmsg).",
    ),
]


class RecordWriter:
    """Writer of records in any format; `close` prints what is left."""

    def __init__(self, out: IO[bytes], output: Format) -> None:
        self._out = out
        self._output = output
        self._table: list[dict[str, Any]] = []
        self._array = JsonRows(Output.JSON, out)

    def write(self, message: Message, partition: Partition | None = None) -> None:
        """Write one record. Raises `errors.UnreadableTDMsg` for a body that is not packed."""
        if self._output is Format.TABLE:
            self._table.append(_cells(message, partition))
            if len(self._table) >= _TABLE_RECORDS:
                self.flush()
        elif self._output is Format.JSON:
            self._array.add(_row(message, partition))
        else:
            write_record(self._out, message, self._output, partition)

    def flush(self) -> None:
        """Print everything that was written; call it at the end of a batch."""
        if self._table:
            rows, self._table = self._table, []
            print_table(Console(highlight=False), rows, "")
        self._out.flush()

    def close(self) -> None:
        """Print the last table, or end the array."""
        with suppress(BrokenPipeError):
            self.flush()
            if self._output is Format.JSON:
                self._array.close()


def write_record(
    out: IO[bytes], message: Message, output: Format, partition: Partition | None = None
) -> None:
    """Write one record on separate lines, as `raw`, `hex`, `tdmsg` or else as JSON. Raises
    `errors.UnreadableTDMsg` for a body that is not packed."""
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
        _line(out, _row(message, partition))


def _row(message: Message, partition: Partition | None) -> dict[str, Any]:
    return _position(message, partition) | {
        "message_id": message.message_id,
        "stream_id": message.stream_id,
        "msg_time": message.msg_time,
        "attributes": message.attributes,
        **_value(message.body),
    }


def _cells(message: Message, partition: Partition | None) -> dict[str, Any]:
    """Return a table's row; a body that is not UTF-8 is shown with `\\x` escapes."""
    return _position(message, partition) | {
        "stream": message.stream_id,
        "time": message.msg_time,
        "value": message.body.decode("utf-8", "backslashreplace"),
    }


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
