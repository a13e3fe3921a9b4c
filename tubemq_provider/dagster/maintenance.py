"""Job for administrative changes to a group: retire a broker, remove a boundary, start an epoch.

Launched by hand, with its configuration filled in; each run makes one change and logs the state
before and after. Stop the asset's runs first, except for `retire`, which is safe while they run.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from os import PathLike
from typing import Any

import dagster as dg
from pydantic import Field

from tubemq_client.errors import ConfigError
from tubemq_provider.dagster.observe import stored_positions
from tubemq_provider.dagster.resource import SourceResource
from tubemq_provider.ingest.maintenance import (
    beginning,
    book_of,
    broker_names,
    brokers_to_retire,
    check_untouched,
    epoch_document,
    epochs_of,
    instant_given,
)
from tubemq_provider.offsets.file import FileOffsetStore
from tubemq_provider.offsets.file_claims import FileClaimStore, claims_lead
from tubemq_provider.offsets.position_reset import moved, named_offsets, standing
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.windows.lag import with_ends
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.protocols import OffsetStore, Sink
from tubemq_provider.windows.run.epochs import recent_events, stored_epoch
from tubemq_provider.windows.spaces import filters_of, space_of

_TASK = "upkeep"


class _Change(dg.Config):
    """Configuration of one change; the other fields stay at their defaults."""

    retire: list[int] = Field(
        default_factory=list, description="brokers that will not come back: windows do not wait"
    )
    retire_names: list[str] = Field(
        default_factory=list, description="the same where brokers have names, not numbers"
    )
    ended: bool = Field(
        default=False,
        description="for unfix: the runs that planned windows which touch the instant, without "
        "publishing them, have ended",
    )
    unfix: str | None = Field(
        None, description="instant of a boundary that no published window touches: remove it"
    )
    show: bool = Field(default=False, description="change nothing, and show the progress")
    offsets: str | None = Field(
        None, description='next offset of every partition, as JSON: {"1:0": 2800, "1:1": 0}'
    )
    epoch: str | None = Field(
        None, description="name of an epoch to start, after the topic was recreated"
    )
    begin: str = Field(
        "earliest",
        description="where the epoch begins: earliest, stable, or offsets of every partition as "
        "JSON, as errors write them behind --begin",
    )
    seen: str | None = Field(
        None, description="last window that the failed run read, from its error"
    )


def build_tubemq_upkeep_job(
    name: str,
    *,
    topic: str,
    group: str,
    sink: str | PathLike[str] | Sink,
    filters: str | Sequence[str] = (),
    claims: bool = False,
    epoch: str | None = None,
    resource_key: str = "tubemq",
    **sink_options: Any,
) -> dg.JobDefinition:
    """Return a job that changes the stored state of `group`.

    `topic`, `group`, `sink`, `filters`, `claims` and `epoch` (None: the asset names none) are those
    of its asset, `sink_options` are passed to `sink_for`.

    Configure one of ``show``, ``offsets`` (the position, set by hand), ``retire`` (ids of brokers;
    ``retire_names`` where brokers have names), ``unfix`` (an instant, RFC 3339) and ``epoch`` (a
    name, with ``begin`` and ``seen``) of its op
    ``change``. Raises the errors of Airflow's commands, and `ConfigError` if the asset's progress
    is stored with the other value of `claims`.
    """
    opened_sink = sink_for(sink, **sink_options)

    @dg.op(required_resource_keys={resource_key}, name="change")
    def change(context: dg.OpExecutionContext, config: _Change) -> None:
        resource: SourceResource = getattr(context.resources, resource_key)
        if config.show and not _asked(config):
            rows, metadata = _progress(resource, topic, group)
            context.log.info(rows)
            context.add_output_metadata(metadata)
            return
        if resource.offset_store is None:
            store: OffsetStore = _store(resource.directory(topic, group), claims=claims)
        else:
            store = resource.progress(topic, group, task=_TASK)
        scope = WindowScope(
            resource.cluster,
            topic,
            group,
            opened_sink.identity,
            filters_of(filters),
            stored_epoch(store) if epoch is None else epoch,
            resource.source(topic, group).space.source,
        )
        context.log.info(_changed(config, store, scope, opened_sink))

    @dg.job(name=name)
    def upkeep() -> None:
        change()

    return upkeep


def _asked(config: _Change) -> list[str]:
    """Return the changes that are asked for."""
    changes = {
        "retire": [*config.retire, *config.retire_names],
        "unfix": config.unfix,
        "epoch": config.epoch,
        "offsets": config.offsets,
    }
    return [name for name, value in changes.items() if value]


def _store(directory: str | PathLike[str], *, claims: bool) -> FileOffsetStore:
    """Return the store with the asset's progress.

    Raises `ConfigError` if another document is ahead of it: a change of one that no run reads would
    have no effect.
    """
    if claims_lead(directory) in (None, claims):
        if claims:
            return FileClaimStore(directory, task=_TASK, over=lambda _: False)
        return FileOffsetStore(directory, task=_TASK)
    has, says = ("claims.json", "True") if not claims else ("cursor.json", "False")
    raise ConfigError(
        f"the progress of the group is in {has} of {directory}: build the upkeep job with "
        f"claims={says}, as the asset has it (after a change of the asset, let it run once first)",
        subject="claims",
    )


def _changed(config: _Change, store: OffsetStore, scope: WindowScope, sink: Sink) -> str:
    """Make the change, and return a text with the state before and after."""
    gone: Sequence[int | str] = (*config.retire, *config.retire_names)
    if len(_asked(config)) != 1 or config.show:
        raise ConfigError("give one of show, offsets, retire, unfix and epoch", subject="upkeep")
    if config.offsets:
        return _moved(config.offsets, store, scope)
    if config.epoch:
        before = store.load_cursor()
        epochs = epochs_of(before, store.newest_position(), recent_events(store))
        names = (scope.cluster, scope.topic, scope.group)
        after = epoch_document(
            names,
            config.epoch,
            beginning(config.begin),
            epochs,
            before=before,
            by="dagster",
            source=scope.source,
            seen=config.seen,
        )
        store.store_cursor(after)
        return f"epoch {epochs[0]!r} has ended, {config.epoch!r} begins at {config.begin}"
    book = book_of(sink, scope)
    if config.unfix:
        instant = instant_given(config.unfix, "unfix")
        planned = () if config.ended else _planned(store)
        check_untouched(sink, scope, book, instant, planned, option="ended=True")
        offsets = book.at(instant)
        book.withdraw(instant)
        return f"the boundary at {config.unfix} was {offsets}, and is not fixed any more"
    retired = broker_names(book.retired)
    gone = brokers_to_retire(gone, scope.source, option="retire_names")
    for broker in gone:
        book.retire(broker)
    about = f"epoch {scope.epoch!r}, {len(book.instants())} boundaries fixed"
    return f"{about}: retired were {retired}, are {broker_names([*retired, *gone])}"


def _progress(resource: SourceResource, topic: str, group: str) -> tuple[str, dict[str, Any]]:
    """Return position, stable end and lag of each partition, as text and as metadata."""
    space = resource.source(topic, group).space
    position = stored_positions(resource, topic, group)
    rows = with_ends(position, resource.reachable_ends(topic, group, stable=True), space)
    lag = sum(lag for row in rows if isinstance(lag := row.get("lag"), int))
    text = "\n".join(", ".join(f"{name} {value}" for name, value in row.items()) for row in rows)
    return text, {"lag": lag, "partitions": dg.MetadataValue.json(rows)}


def _planned(store: OffsetStore) -> list[str]:
    """Return ids of windows with a stored plan. Raises `ConfigError` if the store cannot list
    them."""
    if isinstance(store, FileOffsetStore):
        return store.planned()
    raise ConfigError(
        "the offset store cannot list planned windows: see to it that no run which planned a "
        "window is still to publish it, and set ended=True",
        subject="unfix",
    )


def _moved(offsets: str, store: OffsetStore, scope: WindowScope) -> str:
    """Set the position, and return a text with the one before and after."""
    event = store.newest_position()
    space = space_of(scope.source)
    cursor = standing(store.load_cursor(), event, scope.asset, space)
    before = cursor.get("next", {})
    given = named_offsets(beginning(offsets), before, space, subject="offsets")
    store.store_cursor(moved(cursor, event, given, by="dagster", now=datetime.now(UTC)))
    return f"the position was {before}, is {given}"
