"""Connection of a cluster, and ends of its logs: the page's queries to brokers, in a thread.

Assets name clusters by alias, connections have addresses; the API server searches the connections
that it can list (those of the metadata database and of its environment), or those in ``[tubemq]
page_connections``, as secrets backends cannot be listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from airflow.configuration import conf
from airflow.models.connection import Connection
from sqlalchemy import select

from tubemq_client.errors import NetworkError
from tubemq_provider.hooks.by_kind import hook_class
from tubemq_provider.offsets.metadata_db import reading
from tubemq_provider.plugins.lag import UnknownCluster, Unreachable
from tubemq_provider.windows.spaces import Ends

_ENVIRONMENT = "AIRFLOW_CONN_"


def ends_of(source: str, cluster: str, topic: str) -> Mapping[Any, Ends]:
    """Return stable ends of the partitions whose brokers answer, without disturbing a group.

    Several connections may have one alias: they are asked in turn until one is answered. Blocks.
    Raises `UnknownCluster`, `Unreachable` if several connections have failed, and errors of the
    client.
    """
    failures: dict[str, NetworkError] = {}
    for conn_id, hook in _hooks_to(source, cluster):
        try:
            ends: Mapping[Any, Ends] = hook.observed_ends(topic)
        except NetworkError as exc:
            failures[conn_id] = exc
        else:
            return ends
    if len(failures) == 1:
        raise next(iter(failures.values()))
    if failures:
        raise Unreachable(list(failures))
    raise UnknownCluster(
        f"No {source} connection with cluster alias {cluster!r} is known to the API server. "
        f"Name it in [tubemq] page_connections if a secrets backend keeps it."
    )


def _hooks_to(source: str, cluster: str) -> Iterator[tuple[str, Any]]:
    """Yield the connections with the alias `cluster`, each with its hook."""
    kind = hook_class(source)
    for conn_id in _candidates(source) if kind else ():
        hook = kind(conn_id) if kind else None
        try:
            fits = hook is not None and _is_of(hook, source) and hook.cluster == cluster
        except Exception:  # noqa: BLE001, S112 - skip invalid connections
            continue
        if fits:
            yield conn_id, hook


def _is_of(hook: Any, source: str) -> bool:
    conn_id = getattr(hook, hook.conn_name_attr)
    return bool(hook.get_connection(conn_id).conn_type == source)


def _candidates(source: str) -> Iterator[str]:
    """Yield ids of connections that may lead to a cluster of this kind."""
    named = conf.get("tubemq", "page_connections", fallback="") or ""
    chosen = [name.strip() for name in named.split(",") if name.strip()]
    yield from chosen
    if chosen:
        return
    with reading() as session:
        stored = select(Connection.conn_id).where(Connection.conn_type == source)
        yield from list(session.scalars(stored.order_by(Connection.conn_id).limit(500)))
    for name in sorted(os.environ):
        if name.startswith(_ENVIRONMENT):
            yield name.removeprefix(_ENVIRONMENT).lower()
