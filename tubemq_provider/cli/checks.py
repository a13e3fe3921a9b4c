"""``airflow tubemq lag`` and ``check``: queries of the cluster from Airflow's machine.

Connections are read as Airflow's command line reads them (environment, secrets backends, database).
Nothing here changes anything.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf

from tubemq_client import errors
from tubemq_client.terminal import visible
from tubemq_provider.cli._ends import hook_of
from tubemq_provider.cli._show import command, people, say
from tubemq_provider.cli._sinks import sink_of
from tubemq_provider.hooks.by_kind import TopicHook, hook_class
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.metadata_db import groups, has_ledger, open_group, state_backend
from tubemq_provider.windows.cursor import newer_position
from tubemq_provider.windows.lag import lag_between
from tubemq_provider.windows.planning.retention import away_of
from tubemq_provider.windows.protocols import Sink
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

if TYPE_CHECKING:
    from tubemq_provider.windows.spaces import Ends, OffsetSpace


_BACKEND = "tubemq_provider.offsets.ledger.backend.TubeMQStateBackend"


@command
def lag(args: Any) -> None:
    """Print index entries between a group's position and the stable ends: an upper bound on
    records.

    Partitions whose broker does not answer are shown as delayed, with the reason.
    """
    watch, looks = getattr(args, "watch", None), getattr(args, "looks", None)
    if watch is not None and not 0 < watch < threading.TIMEOUT_MAX:
        raise errors.ConfigError(f"{watch} is no number of seconds", subject="--watch")
    if looks is not None and (watch is None or looks < 1):
        raise errors.ConfigError("it counts looks of --watch, at least one", subject="--looks")
    if watch is not None:
        with suppress(KeyboardInterrupt):
            _watch(args)
    else:
        _show_lag(args)


def _watch(args: Any) -> None:
    """Check repeatedly, and print the rate at which the lag changes."""
    before: tuple[float, int] | None = None
    for number in itertools.count(1):
        try:
            before = _show_lag_again(args, before)
        except errors.TubeMQError as exc:
            if before is None or not exc.retriable:
                raise
            print(visible(f"{exc}; trying again", lines=True), file=sys.stderr)
        sys.stdout.flush()  # for a pipe
        if number == args.looks:
            return
        threading.Event().wait(args.watch)


def _show_lag_again(args: Any, before: tuple[float, int] | None) -> tuple[float, int]:
    """Return the time of the check, and the lag."""
    total, at = _show_lag(args), time.monotonic()
    if before is not None and people(args):
        rate = (before[1] - total) / max(at - before[0], 0.001)
        rest = f", caught up in {total / rate:.0f} s" if rate > 0 and total else ""
        print(f"{datetime.now(UTC):%H:%M:%S}  {rate:+.0f} entries/s taken{rest}")
    return at, total


def _show_lag(args: Any) -> int:
    """Print the lag once, and return it."""
    with open_group(args.asset) as group:
        _, topic, name = group.parts
        _, cursor = group.cursor()
        event = group.newest_position()
    newest = newer_position(cursor, event) or {}
    space = space_of(group.source)
    positions = {
        space.partition(topic, key): int(offset) for key, offset in newest.get("next", {}).items()
    }
    ends = hook_of(args, group).reachable_ends(topic, name, stable=True)
    delayed = away_of(ends)
    lag_ = lag_between(ends, positions, space)
    rows = _lags(ends, positions, [space.partition(topic, key) for key in delayed], space)
    document = {"asset": args.asset, "lag": lag_.total, "partitions": rows, "delayed": delayed}
    say(args, rows, document)
    if people(args):
        least = "at least " if delayed else ""
        print(f"lag: {least}{lag_.total} index entries (partitions of a store share its log)")
        for key, reason in delayed.items():
            print(visible(f"delayed: partition {key}: {reason}"))
    return lag_.total


def _lags(
    ends: Mapping[Any, Ends],
    positions: Mapping[Any, int],
    delayed: list[Any],
    space: OffsetSpace,
) -> list[Mapping[str, object]]:
    """Return a row for each partition, delayed ones last."""
    reachable = [
        (partition_, end.max_offset, lag_between({partition_: end}, positions, space).total)
        for partition_, end in sorted(ends.items())
    ]
    unreachable = [(partition_, "delayed", "unknown") for partition_ in delayed]
    return [
        {
            "partition": partition_.key,
            "position": positions.get(partition_, "none"),
            "end": end,
            "entries": entries,
        }
        for partition_, end, entries in [*reachable, *unreachable]
    ]


@command
def check(args: Any) -> int:
    """Test everything that a task needs. Status 1 if something fails."""
    source = getattr(args, "source", None)
    kind = hook_class(source or FIRST_SOURCE)
    conn_id = args.conn_id or (kind or TubeMQHook).default_conn_name
    steps: list[tuple[str, Callable[[], str]]] = [
        ("connection", lambda: _connection_text(_hook(conn_id, source))),
        ("cluster", lambda: _reached(_hook(conn_id, source))),
        ("state backend", _backend),
        ("ledger tables", _tables),
    ]
    if args.sink is not None or args.sink_conn_id is not None:
        steps.append(("sink", lambda: _sink(sink_of(args))))
    rows = [_tried(name, step) for name, step in steps]
    say(args, rows)
    return 1 if any(row["result"] == "failed" for row in rows) else 0


def _tried(name: str, step: Callable[[], str]) -> dict[str, str]:
    try:
        return {"check": name, "result": "ok", "what": step()}
    except Exception as exc:  # noqa: BLE001 - a diagnosis shows every failure
        return {"check": name, "result": "failed", "what": f"{type(exc).__name__}: {exc}"}


def _hook(conn_id: str, source: str | None) -> TopicHook:
    """Return the hook of `source`, or of the connection's type; foreign types are read as the first
    kind's."""
    of_type = source or TubeMQHook.get_connection(conn_id).conn_type or ""
    kind = hook_class(of_type) or TubeMQHook
    hook: TopicHook = kind(conn_id)
    return hook


def _connection_text(hook: TopicHook) -> str:
    return f"cluster {hook.cluster}, {hook.servers}"


def _reached(hook: TopicHook) -> str:
    reached, text = hook.test_connection()
    if not reached:
        raise errors.NetworkError(text)
    return text


def _backend() -> str:
    backend = state_backend()
    if not conf.getboolean("state_store", "clear_on_success", fallback=False):
        return backend + (" (ledger)" if backend == _BACKEND else " (offset_store='asset_state')")
    raise errors.ConfigError(
        "clear_on_success drops task plans as soon as a task succeeds; a cleared task then plans "
        "again instead of replaying its window",
        subject="[state_store]",
    )


def _tables() -> str:
    with groups() as every:
        if state_backend() != _BACKEND:
            return "not used"
        from airflow.utils.session import create_session

        with create_session() as session:
            if not has_ledger(session):
                raise errors.ConfigError(
                    "missing: add tubemq_provider.offsets.ledger.db_manager.LedgerDBManager to "
                    "[database] external_db_managers and run 'airflow db migrate'",
                    subject="ledger",
                )
        return f"present; {sum(group.cursor()[0] == 'ledger' for group in every)} groups"


def _sink(sink: Sink | None) -> str:
    if sink is None:
        return "none"
    return f"{sink.identity}: {len(list(sink.window_ids()))} windows"
