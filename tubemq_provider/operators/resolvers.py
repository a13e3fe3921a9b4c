"""From checked arguments to the resolver of a time window, with what it reads through.

Resolvers are free of connections; here they get them from the hook. Nothing is opened until a
boundary has to be resolved: a window that is written already, or whose boundaries are fixed, costs
no look-up of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from tubemq_client.sync import RangeReader
from tubemq_provider.sources.tubemq.history import (
    HISTORY_GROUP,
    HISTORY_TOPIC,
    HistoryResolver,
)
from tubemq_provider.sources.tubemq.message_time import MessageTimeResolver
from tubemq_provider.windows.time.boundaries import Boundaries
from tubemq_provider.windows.time.timeline import TimelineResolver

if TYPE_CHECKING:
    from tubemq_client import Message, OffsetRange, Partition, PartitionEnds
    from tubemq_provider.hooks.tubemq import TubeMQHook
    from tubemq_provider.operators.arguments import IngestArguments
    from tubemq_provider.windows.planning.instants import TimeResolver
    from tubemq_provider.windows.probing import ReadRange
    from tubemq_provider.windows.protocols import Document

__all__ = ["ResolverMaker"]


class ResolverMaker:
    """Makes the resolver that `arguments` name. `stack` closes the reader that it may open."""

    def __init__(
        self,
        arguments: IngestArguments,
        hook: TubeMQHook,
        stack: ExitStack,
        timeline: Callable[[], Document | None],
    ) -> None:
        self._arguments = arguments
        self._hook = hook
        self._stack = stack
        self._timeline = timeline

    def make(self) -> TimeResolver:
        """The resolver. Raises `errors.ConfigError` for boundaries that cannot be read."""
        arguments = self._arguments
        topic, late = arguments.topic, arguments.late_allowance or timedelta(0)
        if arguments.by == "timeline":
            return TimelineResolver(topic, self._timeline, self._partitions, late)
        if arguments.by == "history":
            group = arguments.history_group or f"{arguments.group}.e"
            read = self.reader(HISTORY_GROUP, pool_size=1)
            return HistoryResolver(topic, group, read, self._history_ends, self._partitions, late)
        if arguments.by == "message_time":
            return MessageTimeResolver(
                topic,
                self.reader(arguments.group, pool_size=32),
                self._ends,
                lambda: datetime.now(UTC),
                late_allowance=late,
                zone=ZoneInfo(arguments.message_zone or "UTC"),
            )
        return Boundaries.load(arguments.boundaries or {}, topic)

    def _partitions(self) -> list[Partition]:
        return sorted(self._hook.topic(self._arguments.topic, self._arguments.group).partitions)

    def _ends(self) -> Mapping[Partition, PartitionEnds]:
        return self._hook.reachable_ends(self._arguments.topic, self._arguments.group, stable=True)

    def _history_ends(self) -> Mapping[Partition, PartitionEnds]:
        """Ends in memory: what a crash takes from the history was only ever evidence."""
        if self._arguments.history_group is None:
            # A look-up makes its group known to the brokers, so that the next scan records it.
            self._ends()
        with self._hook.get_conn() as client:
            return client.reachable_ends(HISTORY_TOPIC, HISTORY_GROUP, stable=False)

    def reader(self, group: str, *, pool_size: int, filters: tuple[str, ...] = ()) -> ReadRange:
        """Reads single ranges, under the group's pool; opened with the first one."""
        opened: list[RangeReader] = []

        def read(range_: OffsetRange) -> Iterator[Message]:
            if not opened:
                # Corrupt records are judged where the window is read, not where it is measured.
                reader = RangeReader(
                    self._hook.get_settings(),
                    group=group,
                    filters=filters,
                    pool_size=pool_size,
                    corrupt_records="drop",
                )
                opened.append(self._stack.enter_context(reader))
            for batch in opened[0].read(range_):
                yield from batch.messages()

        return read
