"""`tubemq lag`: how far a group is behind, once or repeatedly, with rates and the time to catch up.

Ends come from brokers by RPC (stable unless `--latest`), positions over HTTP, so no consumer of the
group is disturbed. Rates are measured between two samples.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tubemq_client import errors
from tubemq_client.admin import AdminClient
from tubemq_client.cli.options import (
    Admin,
    JsonRows,
    Masters,
    Output,
    OutputAs,
    RpcTimeout,
    Topic,
    admin_client,
    client_settings,
    least_width,
    note,
    print_table,
    show,
    table_of,
)
from tubemq_client.model import INDEX_ENTRY_BYTES, Partition, PartitionEnds
from tubemq_client.sync import Metadata

__all__ = ["lag"]

Latest = Annotated[
    bool, typer.Option("--latest", help="The end in memory, which a broker crash can take back.")
]


_A_DAY_S = 86_400

_WIDTH_FOR_POSITIONS = 100
"""Terminal width below which `--watch` hides positions: end and lag are enough."""

_HIDDEN_FIRST = ("position", "end", "written_per_s", "read_per_s", "caught_up_in")
"""Columns that `--watch` hides one after the other on a terminal too narrow for numbers."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """Ends and positions at one moment (monotonic seconds)."""

    at: float
    ends: Mapping[Partition, PartitionEnds]
    positions: Mapping[Partition, int]

    def start(self, partition: Partition) -> int:
        return self.positions.get(partition, self.ends[partition].min_offset)

    def lag(self, partition: Partition) -> int:
        behind = self.ends[partition].max_offset - self.start(partition)
        return max(0, behind) // INDEX_ENTRY_BYTES

    def total(self) -> int:
        """Return the total lag: each store once, by the partition that is furthest behind."""
        stores: dict[tuple[int, int], int] = {}
        for partition in self.ends:
            key = partition.store_key
            stores[key] = max(stores.get(key, 0), self.lag(partition))
        return sum(stores.values())


def lag(
    topic: Topic,
    masters: Masters,
    admin: Admin,
    group: Annotated[str, typer.Option("--group", "-g", help="Group whose lag to show.")],
    latest: Latest = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    every: Annotated[
        float,
        typer.Option(
            min=0.1, max=_A_DAY_S, metavar="SECONDS", help="Time between updates of --watch."
        ),
    ] = 2.0,
    looks: Annotated[
        int | None, typer.Option(min=1, help="Stop --watch after this many updates.")
    ] = None,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Show how far the position that brokers keep for a group is behind the stable end.

    LAG counts index entries of the partition's store, an upper bound on records; without a position
    it counts from the log's start. The total takes each store once.
    """
    settings = client_settings(masters, rpc_timeout_ms)
    with (
        Metadata(settings) as metadata,
        admin_client(admin, rpc_timeout_ms) as client,
    ):
        tell_once = cache(partial(_tell_missing_positions, client, topic, group))

        def look() -> _Sample:
            ends = metadata.ends(topic, group, stable=not latest)
            sample = _Sample(time.monotonic(), ends, client.group_offsets(topic, group))
            if not sample.positions:
                tell_once()
            return sample

        if watch:
            with suppress(KeyboardInterrupt):
                _watch(look, f"lag of {group} on {topic}", every, looks, output)
            return
        sample = look()
    show(_rows(sample), output=output, title=f"lag of {group} on {topic}")
    note(f"total lag: {sample.total()}")


def _tell_missing_positions(client: AdminClient, topic: str, group: str) -> None:
    """Tell that brokers keep no position for the group on the topic, or do not know the group."""
    if any(info.name == group for info in client.groups()):
        reason = f"group {group} has no position on topic {topic}"
    else:
        reason = (
            f"group {group} is unknown: no member is online, and no broker keeps a position for "
            "it (tubemq groups list)"
        )
    note(
        f"{reason}; lag counts from the beginning of the log. Airflow and Dagster keep positions "
        "themselves: airflow tubemq offsets list"
    )


def _rows(look: _Sample) -> list[dict[str, Any]]:
    return [
        {
            "partition": partition.key,
            "position": look.positions.get(partition),
            "end": look.ends[partition].max_offset,
            "lag": look.lag(partition),
        }
        for partition in sorted(look.ends)
    ]


def _watch(
    look: Callable[[], _Sample], title: str, every: float, looks: int | None, output: Output
) -> None:
    console = Console(highlight=False)
    pairs = _looks(look, every, looks)
    if output is not Output.TABLE:
        with closing(JsonRows(output)) as writer:
            for before, now in pairs:
                writer.add({"total_lag": now.total(), **_summary(before, now)})
        return
    if not console.is_terminal:
        for before, now in pairs:
            print_table(console, _moving(before, now), title)
            note(_sentence(before, now))
        return
    with Live(console=console, auto_refresh=False) as live:
        for before, now in pairs:
            # The total is on top, because a terminal cuts off at the bottom.
            heading = f"{title}\n{_sentence(before, now)}"
            live.update(_fitting(_moving(before, now), heading, console.width), refresh=True)


def _fitting(rows: list[dict[str, Any]], heading: str, width: int) -> Table:
    """Return the table with as many columns as fit; columns that the lag implies are hidden
    first."""
    for count in range(0 if width >= _WIDTH_FOR_POSITIONS else 1, len(_HIDDEN_FIRST) + 1):
        hidden = _HIDDEN_FIRST[:count]
        shown = [{n: v for n, v in row.items() if n not in hidden} for row in rows]
        table = table_of(shown, heading)
        if least_width(table) <= width:
            break
    return table


def _looks(
    look: Callable[[], _Sample], every: float, looks: int | None
) -> Iterator[tuple[_Sample | None, _Sample]]:
    before: _Sample | None = None
    pause, count = threading.Event(), 0
    while looks is None or count < looks:
        if before is not None:
            pause.wait(every)
        count += 1
        try:
            now = look()
        except errors.TubeMQError as error:
            if before is None or not error.retriable:
                raise
            note(f"{error}; retrying")
            continue
        yield before, now
        before = now


def _moving(before: _Sample | None, now: _Sample) -> list[dict[str, Any]]:
    rows = _rows(now)
    for row, partition in zip(rows, sorted(now.ends), strict=True):
        written = read = None
        if before is not None and partition in before.ends:
            seconds = now.at - before.at
            grown = now.ends[partition].max_offset - before.ends[partition].max_offset
            written = _rate(grown, seconds)
            read = _rate(now.start(partition) - before.start(partition), seconds)
        row |= {
            "written_per_s": written,
            "read_per_s": read,
            "caught_up_in": _eta(row["lag"], written, read),
        }
    return rows


def _rate(offsets: int, seconds: float) -> float:
    return round(offsets / INDEX_ENTRY_BYTES / seconds, 1) if seconds > 0 else 0.0


def _eta(lag: int, written: float | None, read: float | None) -> str | None:
    """Return the time to catch up at the present rates; None: unknown or never."""
    if lag == 0:
        return "now"
    if written is None or read is None or read <= written:
        return None
    seconds = int(lag / (read - written))
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}:{minutes:02}:{seconds % 60:02}"


def _summary(before: _Sample | None, now: _Sample) -> dict[str, Any]:
    if before is None:
        return {"written_per_s": None, "read_per_s": None, "caught_up_in": None}
    seconds = now.at - before.at
    written = _rate(_store_growth(before, now), seconds)
    closed = _rate((before.total() - now.total()) * INDEX_ENTRY_BYTES, seconds)
    read = round(closed + written, 1)
    return {
        "written_per_s": written,
        "read_per_s": read,
        "caught_up_in": _eta(now.total(), written, read),
    }


def _store_growth(before: _Sample, now: _Sample) -> int:
    stores = {
        p.store_key: end.max_offset - before.ends[p].max_offset
        for p, end in now.ends.items()
        if p in before.ends
    }
    return sum(stores.values())


def _sentence(before: _Sample | None, now: _Sample) -> str:
    summary = _summary(before, now)
    if before is None:
        return f"total lag: {now.total()}"
    eta = summary["caught_up_in"] or "never at these rates"
    return (
        f"total lag: {now.total()}, written {summary['written_per_s']}/s, "
        f"read {summary['read_per_s']}/s, caught up: {eta}"
    )
