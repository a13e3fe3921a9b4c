"""Read-only commands over RPC: partitions of a topic, ends of its logs.

Look-ups register briefly under `<group>.e` and leave no position behind that a consumer uses.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tubemq_client.cli.options import (
    Group,
    Masters,
    Output,
    OutputAs,
    RpcTimeout,
    Topic,
    client_settings,
    show,
)
from tubemq_client.model import INDEX_ENTRY_BYTES
from tubemq_client.sync import Metadata

__all__ = ["ends", "partitions"]

Latest = Annotated[
    bool, typer.Option("--latest", help="The end in memory, which a broker crash can take back.")
]


def partitions(
    topic: Topic,
    masters: Masters,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """List the partitions of a topic, their broker, and whether they can be subscribed now."""
    with Metadata(client_settings(masters, rpc_timeout_ms)) as metadata:
        topic_metadata = metadata.topic(topic)
    rows = [
        {
            "partition": partition.key,
            "store": partition.store_id,
            "broker": str(topic_metadata.brokers[partition.broker_id]),
            "subscribable": ready,
        }
        for partition, ready in sorted(topic_metadata.partitions.items())
    ]
    show(rows, output=output, title=f"partitions of {topic}")


def ends(
    topic: Topic,
    masters: Masters,
    group: Group = "tubemq_cli",
    latest: Latest = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Show how far the log of every partition reaches, up to its stable (fsynced) end.

    Partitions of a store share its log, so they show equal offsets; ENTRIES counts records of all
    of them.
    """
    with Metadata(client_settings(masters, rpc_timeout_ms)) as metadata:
        bounds = metadata.ends(topic, group, stable=not latest)
    kind = "latest" if latest else "stable"
    rows = [
        {
            "partition": partition.key,
            "min": end.min_offset,
            kind: end.max_offset,
            "entries": (end.max_offset - end.min_offset) // INDEX_ENTRY_BYTES,
        }
        for partition, end in sorted(bounds.items())
    ]
    show(rows, output=output, title=f"{kind} ends of {topic}")
