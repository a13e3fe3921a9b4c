"""`tubemq produce`: rows of a file or of standard input become records, in order.

Rows are CSV, tab-separated values or JSON lines, also in gzip or a zip; each is sent as one JSON
object. Sent in time order with `--time-field`, the receipts give exact *boundaries* for time
windows (see `boundaries`). A record is acknowledged from the broker's memory; if this command
crashes, the records sent so far remain.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from tubemq_client import ClientSettings, Metadata, PartitionEnds, Producer, errors
from tubemq_client.cli.boundaries import BoundaryWriter, StoreEnds
from tubemq_client.cli.options import (
    Masters,
    Output,
    OutputAs,
    RpcTimeout,
    Topic,
    config_of,
    show_json,
)
from tubemq_client.cli.rows import RowSource, Selection
from tubemq_client.cli.sending import ProduceRun
from tubemq_client.config import ProducerConfig

__all__ = ["produce"]

_LOOKUP_GROUP = "tubemq_cli"

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        exists=True,
        dir_okay=False,
        help="CSV (.csv), tab-separated values (.tsv) or JSON lines; also in gzip or a zip. "
        "Default: JSON lines from standard input.",
    ),
]
StreamField = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Field whose value becomes the stream id (filterable)."),
]
TimeField = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Field with an ISO 8601 time; rows must be in its order."),
]
From = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="Skip rows before this time.")
]
To = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="Skip rows at or after this time.")
]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="Send at most this many rows.")
]
Boundaries = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False, metavar="JSON", help="File to add boundaries to (needs --time-field)."
    ),
]
BoundaryEvery = Annotated[
    str, typer.Option(metavar="PERIOD", help="Distance of boundaries: a number with m, h or d.")
]
InFlight = Annotated[
    int | None, typer.Option(help="Records sent and not yet answered (64).", show_default=False)
]
LargeRecords = Annotated[
    str | None,
    typer.Option(
        metavar="refuse|send",
        help="Records that groups may never get, for their size (refuse).",
        show_default=False,
    ),
]
Rate = Annotated[float | None, typer.Option(min=0.1, help="At most this many records per second.")]


def produce(
    topic: Topic,
    masters: Masters,
    file: File = None,
    stream_field: StreamField = None,
    time_field: TimeField = None,
    start: From = None,
    end: To = None,
    limit: Limit = None,
    boundaries: Boundaries = None,
    boundary_every: BoundaryEvery = "1d",
    in_flight: InFlight = None,
    large_records: LargeRecords = None,
    rate: Rate = None,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Send rows to a topic, each as one JSON object, and print how many were stored.

    With --boundaries, --from and --to are boundaries too, and so is every whole period between. No
    other producer should write to the topic meanwhile. Run again with the same file to continue.
    """
    if time_field is None and any(option is not None for option in (start, end, boundaries)):
        raise errors.ConfigError("--from, --to and --boundaries need --time-field")
    config = config_of(
        ProducerConfig, masters, rpc_timeout_ms, in_flight=in_flight, large_records=large_records
    )
    settings = config.settings()
    source = RowSource(file, stream_field, time_field, Selection.parse(start, end, limit))
    ends = StoreEnds()
    writer = BoundaryWriter(boundaries, topic, boundary_every, ends) if boundaries else None
    with Producer(settings, producer=config.producer_settings()) as producer:
        sending = ProduceRun(producer, topic, source, ends, writer, rate=rate)
        sending.begin(lambda: _ends_in_memory(settings, topic))
        sending.send()
    stored = {"topic": topic, "records": sending.sent, "until_offsets": ends.offsets()}
    show_json([stored], output)


def _ends_in_memory(settings: ClientSettings, topic: str) -> Iterable[PartitionEnds]:
    with Metadata(settings) as metadata:
        return metadata.ends(topic, _LOOKUP_GROUP, stable=False).values()
