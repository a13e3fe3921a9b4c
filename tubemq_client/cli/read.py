"""`tubemq read-range`: one exact range of one partition to the terminal or a file.

The same reader that Spark tasks use, so it also shows what a window would deliver. Records go to
standard output as they come; nothing is kept.
"""

from __future__ import annotations

import base64
import json
import sys
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from tubemq_client import errors
from tubemq_client.cli.options import Group, Masters, RpcTimeout, Topic, note, status_console
from tubemq_client.config import ConsumerConfig
from tubemq_client.model import OffsetRange, Partition
from tubemq_client.sync import RangeReader

if TYPE_CHECKING:
    from tubemq_client.model import Message

__all__ = ["Format", "read_range"]


class Format(StrEnum):
    """How records are printed: JSON lines (base64 body if it is not UTF-8), or bodies as lines."""

    JSON = "json"
    RAW = "raw"


PartitionKey = Annotated[
    str, typer.Argument(help='Partition key, "<broker id>:<partition id>".', show_default=False)
]
Start = Annotated[
    int,
    typer.Argument(help="First index offset (inclusive), a multiple of 28.", show_default=False),
]
End = Annotated[
    int, typer.Argument(help="Index offset to stop at (exclusive).", show_default=False)
]
Streams = Annotated[
    list[str] | None,
    typer.Option("--stream", "-s", metavar="ID", help="Only records of this stream; repeatable."),
]
Output = Annotated[
    Format, typer.Option("--format", "-o", help="JSON lines with all fields, or raw bodies.")
]


def read_range(
    topic: Topic,
    partition: PartitionKey,
    start: Start,
    end: End,
    masters: Masters,
    group: Group = "tubemq_cli",
    stream: Streams = None,
    output: Output = Format.JSON,
    rpc_timeout_ms: RpcTimeout = 10_000,
) -> None:
    """Print every record of [START, END) of a partition, each once."""
    config = ConsumerConfig.parse(
        {
            "masters": masters,
            "rpc_timeout_ms": rpc_timeout_ms,
            "topic": topic,
            "group": group,
            "filters": stream or (),
        }
    )
    range_ = _range(topic, partition, start, end)
    with (
        RangeReader(config.settings(), group=group, filters=config.filters) as reader,
        _progress() as progress,
    ):
        task = progress.add_task(f"reading {range_}", total=range_.end - range_.start)
        out = sys.stdout.buffer
        for batch in reader.read(range_):
            progress.update(task, completed=batch.start - range_.start)
            for message in batch.messages():
                _write(out, message, output)
        out.flush()
    note(f"{reader.stats.records} records, {reader.stats.bytes} bytes")


def _progress() -> Progress:
    """A bar, unless records on the same terminal would tear it apart."""
    shown = status_console.is_terminal and not sys.stdout.isatty()
    return Progress(console=status_console, transient=True, disable=not shown)


def _range(topic: str, key: str, start: int, end: int) -> OffsetRange:
    try:
        return OffsetRange(Partition.from_key(topic, key), start, end)
    except ValueError as error:
        raise errors.ConfigError(str(error), subject="range") from None


def _write(out: IO[bytes], message: Message, output: Format) -> None:
    if output is Format.RAW:
        out.write(message.body + b"\n")
        return
    row: dict[str, object] = {
        "offset": message.offset,
        "message_id": message.message_id,
        "stream_id": message.stream_id,
        "msg_time": message.msg_time,
        "attributes": message.attributes,
    }
    try:
        row["value"] = message.body.decode()
    except UnicodeDecodeError:
        row["value_base64"] = base64.b64encode(message.body).decode()
    out.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
