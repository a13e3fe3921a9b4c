"""Commands that only look: partitions of a topic, how far logs reach, lag, names of groups.

Look-ups register for a moment under `<group>.e` and leave no position behind that a consumer uses.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tubemq_client.cli.options import (
    AsJson,
    Group,
    Masters,
    RpcTimeout,
    Topic,
    client_settings,
    note,
    show,
)
from tubemq_client.config import ConsumerConfig
from tubemq_client.model import INDEX_ENTRY_BYTES
from tubemq_client.sync import Metadata

__all__ = ["ends", "groups", "lag", "partitions"]

Latest = Annotated[
    bool, typer.Option("--latest", help="The end in memory, which a broker crash can take back.")
]
Admin = Annotated[
    str,
    typer.Option("--admin", envvar="TUBEMQ_ADMIN", metavar="URL", help="HTTP address of a master."),
]


def partitions(
    topic: Topic, masters: Masters, rpc_timeout_ms: RpcTimeout = 10_000, as_json: AsJson = False
) -> None:
    """List the partitions of a topic, their broker, and whether they can be subscribed now."""
    with Metadata(client_settings(masters, rpc_timeout_ms)) as metadata:
        found = metadata.topic(topic)
    rows = [
        {
            "partition": partition.key,
            "store": partition.store_id,
            "broker": str(found.brokers[partition.broker_id]),
            "subscribable": ready,
        }
        for partition, ready in sorted(found.partitions.items())
    ]
    show(rows, as_json=as_json, title=f"partitions of {topic}")


def ends(
    topic: Topic,
    masters: Masters,
    group: Group = "tubemq_cli",
    latest: Latest = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    as_json: AsJson = False,
) -> None:
    """Show how far the log of every partition reaches, up to its stable (fsynced) end.

    Partitions of a store share its log, so they show equal offsets; ENTRIES counts records of all
    of them.
    """
    with Metadata(client_settings(masters, rpc_timeout_ms)) as metadata:
        found = metadata.ends(topic, group, stable=not latest)
    kind = "latest" if latest else "stable"
    rows = [
        {
            "partition": partition.key,
            "min": end.min_offset,
            kind: end.max_offset,
            "entries": (end.max_offset - end.min_offset) // INDEX_ENTRY_BYTES,
        }
        for partition, end in sorted(found.items())
    ]
    show(rows, as_json=as_json, title=f"{kind} ends of {topic}")


def lag(
    topic: Topic,
    masters: Masters,
    admin: Admin,
    group: Annotated[str, typer.Option("--group", "-g", help="Group whose lag is meant.")],
    latest: Latest = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    as_json: AsJson = False,
) -> None:
    """Show how far the position that brokers keep for a group is behind the stable end.

    LAG counts index entries of the partition's store, an upper bound on records; without a position
    it counts from the log's start. The total takes each store once.
    """
    from tubemq_client.admin import AdminClient

    with Metadata(client_settings(masters, rpc_timeout_ms)) as metadata:
        found = metadata.ends(topic, group, stable=not latest)
    with AdminClient([admin], timeout_ms=rpc_timeout_ms) as client:
        positions = client.group_offsets(topic, group)
    rows = []
    stores: dict[tuple[int, int], int] = {}
    for partition, end in sorted(found.items()):
        position = positions.get(partition)
        start = end.min_offset if position is None else position
        entries = max(0, end.max_offset - start) // INDEX_ENTRY_BYTES
        key = partition.store_key
        stores[key] = max(stores.get(key, 0), entries)
        row = {"partition": partition.key, "position": position, "end": end.max_offset}
        rows.append({**row, "lag": entries})
    show(rows, as_json=as_json, title=f"lag of {group} on {topic}")
    note(f"total lag: {sum(stores.values())}")


def groups(
    group: Annotated[str, typer.Argument(help="Consumer group of a window.", show_default=False)],
    pool_size: Annotated[
        int, typer.Option(min=1, max=100, help="Reader groups, and as many probe groups.")
    ] = 32,
    as_json: AsJson = False,
) -> None:
    """List every group name that readers of GROUP use, for clusters that authorise groups."""
    from tubemq_client._core.identity import ReaderPool, end_lookup_group

    # The topic plays no part; the model is asked because it knows what a group may be called.
    ConsumerConfig.parse({"masters": "localhost", "topic": "any_topic", "group": group})
    pool = ReaderPool(group, pool_size)
    names = [
        *(("reads ranges", pool.reader(slot)) for slot in range(pool_size)),
        *(("probes where ranges end", pool.probe(slot)) for slot in range(pool_size)),
        ("looks up ends", end_lookup_group(group)),
    ]
    rows = [{"group": name, "use": use} for use, name in names]
    show(rows, as_json=as_json, title=f"groups of {group}")
