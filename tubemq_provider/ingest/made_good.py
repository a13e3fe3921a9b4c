"""Windows of tables that failed to take them, made good by a later run.

Under ``on_route_failure="isolate"`` a window is done without the tables that failed. Each later run
reads such windows again, for those tables only, and publishes what is missing. A table's own marker
decides whether it has a window, so runs may do this side by side. This module must not move a
position, and must not publish in a table that has not failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from tubemq_provider.windows.errors import CountMismatch
from tubemq_provider.windows.protocols import IngestWatch

if TYPE_CHECKING:
    from tubemq_provider.sinks.routed import RoutedSink
    from tubemq_provider.windows.plan import WindowPlan
    from tubemq_provider.windows.protocols import Engine, Progress

__all__ = ["MakeGood"]

_AT_MOST: Final = 20
"""Windows that one run reads again; the next one continues."""


class Recognise(Protocol):
    """`Planner.recognise`."""

    def __call__(self, plan: WindowPlan, *, again: bool = False) -> None:
        """Raise `LogReplaced` unless the logs are those that the plan was made for."""


class MakeGood:
    """Second read of windows that tables of `sink` failed to take.

    `recognise` raises if the logs are not those of a plan any more; with ``again=True`` it asks the
    brokers.
    """

    def __init__(
        self,
        sink: RoutedSink,
        engine: Engine,
        recognise: Recognise,
        *,
        attempt: str,
        progress: Progress,
    ) -> None:
        self._sink = sink
        self._engine = engine
        self._recognise = recognise
        self._attempt = attempt
        self._progress = progress

    def run(self, failures: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
        """Publish the windows of `RoutedSink.failures` in their tables; return a warning for each
        that still fails."""
        warnings = []
        for window_id, entries in islice(failures.items(), _AT_MOST):
            marker = self._sink.marker(window_id)
            if marker is None:
                continue
            try:
                problems = self._again(marker.plan, entries)
            except Exception as error:  # noqa: BLE001 - the window of this run continues
                problems = dict.fromkeys(entries, str(error))
            warnings += [
                f"{address} still has not window {window_id}, and the next run tries again: {why}"
                for address, why in problems.items()
            ]
        self._sink.failures()  # removes the notes of those that are made good
        return warnings

    def _again(self, plan: WindowPlan, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """Read a window for its failed tables and publish it there; return why some failed
        again."""
        narrow = self._sink.narrowed(entries)
        self._recognise(plan)
        staging = narrow.begin(plan, self._attempt)
        self._progress("failed window begun")
        try:
            watch = IngestWatch(progress=self._progress)
            counts = self._engine.into(narrow).ingest(plan, staging, watch)
            self._recognise(plan, again=True)
            tables = narrow.tables_by_name(staging)
            for address, table in tables.items():
                read = 0 if table.counts is None else sum((table.counts.read or {}).values())
                if address not in entries:
                    table.fail(CountMismatch("its records were for another table; set it back"))
                elif read != entries[address]["read"]:
                    why = f"{read} of its {entries[address]['read']} records can still be read"
                    table.fail(CountMismatch(why))
            narrow.publish_tables(staging, plan, counts, self._progress)
            done = [address for address, table in tables.items() if table.failed is None]
            if done:
                self._sink.note_made_good(plan.window_id, done)
            self._progress("failed window made good")
            return {a: t.failed for a, t in tables.items() if t.failed is not None}
        finally:
            narrow.discard(staging)
