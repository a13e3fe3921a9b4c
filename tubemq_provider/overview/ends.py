"""Lag by partition: positions and the ends of logs, side by side.

Pure arithmetic; the caller has asked the brokers, or could not and passes no ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tubemq_provider.windows.lag import lag_between
from tubemq_provider.windows.spaces import Ends, OffsetSpace


def with_ends(
    position: Mapping[str, int], ends: Mapping[Any, Ends], space: OffsetSpace
) -> list[dict[str, object]]:
    """Return a row for each partition that a group has or the topic offers; `lag` in entries."""
    by_key = {partition.key: (partition, end) for partition, end in ends.items()}
    rows: list[dict[str, object]] = []
    for key in space.ordered({*position, *by_key}):
        row: dict[str, object] = {"partition": key, "next": position.get(key, "none")}
        if key in by_key:
            partition, end = by_key[key]
            lag = lag_between({partition: end}, {partition: position.get(key)}, space).total
            row |= {"end": end.max_offset, "lag": lag}
        elif ends:
            row |= {"end": "unknown", "lag": "unknown"}
        rows.append(row)
    return rows
