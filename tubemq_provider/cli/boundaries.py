"""``airflow tubemq offsets retire`` and ``unfix``: what only a person can say about boundaries.

Boundaries live beside the data, so these commands need the sink, and the group's name in full;
Airflow's database is not asked. Each change is shown and asked for first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tubemq_client import errors
from tubemq_provider.cli._show import changed, command, confirm
from tubemq_provider.cli._sinks import sink_of
from tubemq_provider.windows.canonical import parse_instant, rfc3339
from tubemq_provider.windows.errors import BoundaryConflict
from tubemq_provider.windows.plan import WindowScope, time_window_id
from tubemq_provider.windows.planning.book import ScopeBook
from tubemq_provider.windows.planning.overlaps import interval_of
from tubemq_provider.windows.protocols import Sink

__all__ = ["retire", "unfix"]


@command
def retire(args: Any) -> None:
    """Give brokers up: windows of time no longer wait for them. Safe while tasks run."""
    _, scope, book = _opened(args)
    before = _brokers(book.retired)
    after = _brokers({*book.retired, *map(str, args.broker)})
    print(f"{scope.topic}, group {scope.group}: {len(book.instants())} boundaries fixed")
    changed(args, {"retired": before}, {"retired": after})
    confirm(args)
    for broker in args.broker:
        book.retire(broker)


@command
def unfix(args: Any) -> None:
    """Take a boundary back that no published window touches; only while no task of the group runs.

    The next window that needs the instant asks its resolver anew.
    """
    sink, scope, book = _opened(args)
    instant = parse_instant(args.instant)
    if not book.has(instant):
        known = ", ".join(map(rfc3339, book.instants()[-5:])) or "none"
        raise errors.ConfigError(
            f"no boundary of this group is fixed at {rfc3339(instant)}; the last ones: {known}",
            subject="unfix",
        )
    intervals = (interval_of(window_id, scope.h) for window_id in sink.window_ids())
    touching = [found for found in intervals if found and found[0] <= instant <= found[1]]
    if touching:
        raise BoundaryConflict(
            f"the boundary at {rfc3339(instant)} is in use",
            [f"{time_window_id(*found, scope.h)} is published" for found in sorted(touching)],
            ["what is published stays; give later windows offsets that fit"],
        )
    changed(args, book.at(instant), None)
    confirm(args)
    book.take_back(instant)


def _brokers(names: Iterable[str]) -> list[int | str]:
    """Names of brokers in order, as documents have them: numbers where they are."""
    ordered = sorted(names, key=lambda name: (len(name), name))
    return [int(name) if name.isdecimal() else name for name in ordered]


def _opened(args: Any) -> tuple[Sink, WindowScope, ScopeBook]:
    """The sink, the scope that the group has in it, and its boundaries."""
    cluster, _, rest = args.asset.removeprefix("tubemq:").partition("/")
    topic, _, group = rest.partition("/")
    if not group:
        raise errors.ConfigError(
            f"{args.asset!r} is not <cluster>/<topic>/<group>", subject="asset"
        )
    sink = sink_of(args)
    if sink is None:
        raise errors.ConfigError("name the sink with --sink", subject="sink")
    scope = WindowScope(cluster, topic, group, sink.identity, tuple(args.filter or ()), args.epoch)
    if sink.boundaries is None:
        raise errors.ConfigError(f"{sink.identity} has no place for boundaries", subject="sink")
    return sink, scope, ScopeBook(sink.boundaries, scope)
