"""``airflow tubemq offsets retire`` and ``unfix``: administrative changes of boundaries.

Boundaries are stored in the sink, so these commands need the sink, and the group's full name;
Airflow's database is only used for the group's current epoch. Each change is shown and confirmed
first.
"""

from __future__ import annotations

from typing import Any

from tubemq_client import errors
from tubemq_provider.cli._show import changed, command, confirm, people
from tubemq_provider.cli._sinks import sink_of
from tubemq_provider.ingest.maintenance import (
    book_of,
    broker_names,
    brokers_to_retire,
    check_untouched,
    epochs_of,
    instant_given,
)
from tubemq_provider.offsets.commit_events import RECENT
from tubemq_provider.offsets.metadata_db import groups, is_set_up
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.boundary_book import ScopeBook
from tubemq_provider.windows.protocols import Sink
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of


@command
def retire(args: Any) -> None:
    """Retire brokers: windows of time no longer wait for them. Safe while tasks run."""
    _, scope, book = _open(args)
    hint = (
        "; for a topic of another kind, name its asset with the kind before it, as 'offsets list' "
        "shows it"
    )
    gone = brokers_to_retire(args.broker, scope.source, option="--broker", hint=hint)
    before = broker_names(book.retired)
    after = broker_names([*book.retired, *gone])
    if people(args):
        epoch = f", epoch {scope.epoch!r}" if scope.epoch else ""
        print(f"{scope.topic}, group {scope.group}{epoch}: {len(book.instants())} boundaries fixed")
    changed(args, {"retired": before}, {"retired": after})
    confirm(args)
    for broker in gone:
        book.retire(broker)


@command
def unfix(args: Any) -> None:
    """Remove a boundary that no published or planned window touches, while no task of the group
    runs.

    The next window that needs the instant asks its resolver again.
    """
    sink, scope, book = _open(args)
    instant = instant_given(args.instant, "--instant")
    planned, running = _under_way(args.asset)
    if getattr(args, "ended", False) and not running:
        planned = []
    check_untouched(sink, scope, book, instant, planned, option="--ended")
    if running:
        raise errors.ConfigError(
            [f"{name} is running" for name in running]
            + ["wait until no task of the group runs: it may be about to plan with this boundary"],
            subject="unfix",
        )
    changed(args, book.at(instant), None)
    confirm(args)
    book.withdraw(instant)


def _under_way(asset: str) -> tuple[list[str], list[str]]:
    """Return the group's windows with a stored plan in Airflow, and its running tasks."""
    if not is_set_up():
        return [], []
    with groups() as every:
        group_ = next((group for group in every if asset in (group.asset, group.name)), None)
        if group_ is None:
            return [], []
        running = [f"{task.dag_id} {task.run_id} {task.task_id}" for task in group_.tasks()]
        return group_.planned(), running


def _open(args: Any) -> tuple[Sink, WindowScope, ScopeBook]:
    """Return the sink, the group's scope in it, and its boundaries."""
    named, _, rest = args.asset.partition("/")
    topic, _, group = rest.partition("/")
    source, _, cluster = named.rpartition(":")
    if not (cluster and topic and group):
        raise errors.ConfigError(
            f"{args.asset!r} is not <cluster>/<topic>/<group>, as 'offsets list' shows it",
            subject="asset",
        )
    sink = sink_of(args)
    if sink is None:
        raise errors.ConfigError("name the sink with --sink", subject="sink")
    kind = space_of(source or FIRST_SOURCE).source
    filters = tuple(args.filter or ())
    epoch = _present_epoch(args.asset) if args.epoch is None else args.epoch
    scope = WindowScope(cluster, topic, group, sink.identity, filters, epoch, kind)
    return sink, scope, book_of(sink, scope)


def _present_epoch(asset: str) -> str:
    """Return the group's epoch, the first one if Airflow does not know the group."""
    with groups() as every:
        group_ = next((group for group in every if asset in (group.asset, group.name)), None)
        if group_ is None:
            return ""
        _, cursor = group_.cursor()
        return epochs_of(cursor, group_.newest_position(), group_.events(most=RECENT)).present
