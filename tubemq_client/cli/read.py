"""`tubemq read-range`: one exact range of one partition to the terminal or a file.

The same reader that Spark tasks use, so it also shows what a window would deliver. Records go to
standard output as they arrive; none are buffered.
"""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer
from rich.progress import Progress

from tubemq_client import CorruptEntry, errors
from tubemq_client.cli.options import (
    Group,
    Masters,
    RpcTimeout,
    Topic,
    config_of,
    counted,
    note,
    status_console,
)
from tubemq_client.cli.records import Format, FormatOption, RecordWriter
from tubemq_client.config import ConsumerConfig
from tubemq_client.model import OffsetRange, Partition
from tubemq_client.sync import RangeReader

__all__ = ["read_range", "reader_of"]

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


def read_range(
    topic: Topic,
    partition: PartitionKey,
    start: Start,
    end: End,
    masters: Masters,
    group: Group = "tubemq_cli",
    stream: Streams = None,
    output: FormatOption = Format.JSONL,
    rpc_timeout_ms: RpcTimeout = 10_000,
) -> None:
    """Print every record of [START, END) of a partition, each once."""
    config = config_of(
        ConsumerConfig, masters, rpc_timeout_ms, topic=topic, group=group, filters=stream or ()
    )
    range_ = _range(topic, partition, start, end)
    with reader_of(config) as reader, _progress() as progress:
        task = progress.add_task(f"reading {range_}", total=range_.end - range_.start)
        with closing(RecordWriter(sys.stdout.buffer, output)) as writer:
            for batch in reader.read(range_):
                progress.update(task, completed=batch.start - range_.start)
                for message in batch.messages():
                    writer.write(message)
    note(f"{counted(reader.stats.records)}, {reader.stats.bytes} bytes")


def reader_of(config: ConsumerConfig) -> RangeReader:
    """Return a reader with the options of `config`; quarantined records are only reported."""
    return RangeReader(
        config.settings(),
        group=config.group,
        filters=config.filters,
        pool_size=config.pool_size,
        corrupt_records=config.corrupt_records,
        quarantine=_name_corrupt,
        gap_policy=config.gap_policy,
        deadline_ms=config.deadline_ms,
    )


def _name_corrupt(entry: CorruptEntry) -> None:
    note(f"left out: message {entry.message_id} of {entry.partition}, {len(entry.data)} bytes")


def _progress() -> Progress:
    """Return a progress bar, hidden if records go to the same terminal."""
    shown = status_console.is_terminal and not sys.stdout.isatty()
    return Progress(console=status_console, transient=True, disable=not shown)


def _range(topic: str, key: str, start: int, end: int) -> OffsetRange:
    try:
        return OffsetRange(Partition.from_key(topic, key), start, end)
    except ValueError as error:
        raise errors.ConfigError(str(error), subject="range") from None
