"""Records that a broker writes about its groups into its own topic, once per scan.

One record per group that has a position: the time, and for every topic where each store begins and
ends and how far the group is. Pure functions over a broker's state; `Broker.tick` decides when, and
appends the records. Nothing here may read a clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tubemq_client._wire import payload
from tubemq_client.embedded.leases import Leases
from tubemq_client.embedded.positions import Position, PositionKey, Positions
from tubemq_client.embedded.storage import Storage, Store
from tubemq_client.model import PARTITIONS_PER_STORE

__all__ = ["HISTORY_PARTITIONS", "HistoryRecord", "scan_groups"]

HISTORY_PARTITIONS = 10
"""Partitions of the history topic on every broker; one store."""

_VERSION = 3


class HistoryRecord(NamedTuple):
    """One record to append: partition, encoded bytes, and the key code that readers filter by."""

    partition_id: int
    data: bytes
    flag: int
    key_code: int


def scan_groups(
    broker_id: int, positions: Positions, leases: Leases, storage: Storage, now_ms: int
) -> Iterator[HistoryRecord]:
    """Yield a record for every group with a position, online or not."""
    groups: dict[str, list[tuple[PositionKey, Position]]] = {}
    for key, position in positions.items():
        groups.setdefault(key.group, []).append((key, position))
    minute = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d%H%M")
    for group, positions_of_group in sorted(groups.items()):
        body = _document(broker_id, group, positions_of_group, leases, storage, now_ms)
        hashed = payload.java_hash(group)
        data, flag = payload.encode_payload(
            json.dumps(body, separators=(",", ":")).encode(),
            {"$groupName$": group},
            stream_id=str(hashed),
            msg_time=minute,
        )
        yield HistoryRecord(abs(hashed) % HISTORY_PARTITIONS, data, flag, hashed)


def _document(
    broker_id: int,
    group: str,
    positions_of_group: list[tuple[PositionKey, Position]],
    leases: Leases,
    storage: Storage,
    now_ms: int,
) -> dict[str, Any]:
    online = {key: lease for key, _ in positions_of_group if (lease := leases.get(key)) is not None}
    clients = {lease.client_id: lease.seen_ms for lease in online.values()}
    numbers = {client_id: number for number, client_id in enumerate(clients)}
    topics: dict[str, dict[int, list[dict[str, int]]]] = {}
    for key, position in sorted(positions_of_group, key=lambda item: item[0]):
        store_id, part = divmod(key.partition_id, PARTITIONS_PER_STORE)
        entry = {"partId": part, "iCfm": position.confirmed, "iFlt": position.in_flight}
        if key in online:
            entry["recId"] = numbers[online[key].client_id]
        topics.setdefault(key.topic, {}).setdefault(store_id, []).append(entry)
    return {
        "dt": now_ms,
        "bId": broker_id,
        "ver": _VERSION,
        "group": group,
        "on": int(bool(online)),
        "flt": int(any(lease.filters for lease in online.values())),
        "clients": [
            {"recId": number, "cltId": client_id, "lstTm": clients[client_id]}
            for client_id, number in numbers.items()
        ],
        "records": [
            {
                "topic": topic,
                "offsets": [
                    {"storeId": store_id, **_marks(storage.get(topic, store_id)), "parts": parts}
                    for store_id, parts in stores.items()
                ],
            }
            for topic, stores in topics.items()
        ],
    }


def _marks(store: Store | None) -> dict[str, int]:
    if store is None:
        return {"iMin": 0, "iMax": 0, "dMin": 0, "dMax": 0}
    log = store.log
    return {
        "iMin": log.ends.min,
        "iMax": log.ends.memory,
        "dMin": log.min_data_offset,
        "dMax": log.data_end,
    }
