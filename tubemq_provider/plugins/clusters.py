"""Which connection leads to a cluster, and its ends: what the page asks brokers, in a thread.

Assets name clusters by alias, connections know addresses; the API server finds one by the other
among the connections that it can list (those of the metadata database and of its environment), or
those that ``[tubemq] page_connections`` names, as secrets backends cannot be listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from airflow.configuration import conf
from airflow.models.connection import Connection
from sqlalchemy import select

from tubemq_provider.hooks.by_kind import hook_class
from tubemq_provider.offsets.metadata_db import reading
from tubemq_provider.plugins.lag import UnknownCluster
from tubemq_provider.windows.spaces import Ends

__all__ = ["ends_of"]

_ENVIRONMENT = "AIRFLOW_CONN_"


def ends_of(source: str, cluster: str, topic: str) -> Mapping[Any, Ends]:
    """Stable ends of the partitions whose brokers answer, for a look from outside. Blocks. Raises
    `UnknownCluster`, and whatever a client raises."""
    found: Mapping[Any, Ends] = _hook_to(source, cluster).observed_ends(topic)
    return found


def _hook_to(source: str, cluster: str) -> Any:
    kind = hook_class(source)
    for conn_id in _candidates(source) if kind else ():
        hook = kind(conn_id) if kind else None
        try:
            if hook is not None and _is_of(hook, source) and hook.cluster == cluster:
                return hook
        except Exception:  # noqa: BLE001, S112 - a connection that is wrong is none to this cluster
            continue
    raise UnknownCluster(
        f"No {source} connection with cluster alias {cluster!r} is known to the API server. "
        f"Name it in [tubemq] page_connections if a secrets backend keeps it."
    )


def _is_of(hook: Any, source: str) -> bool:
    conn_id = getattr(hook, hook.conn_name_attr)
    return bool(hook.get_connection(conn_id).conn_type == source)


def _candidates(source: str) -> Iterator[str]:
    """Ids of connections that may lead to a cluster of this kind."""
    named = conf.get("tubemq", "page_connections", fallback="") or ""
    chosen = [name.strip() for name in named.split(",") if name.strip()]
    yield from chosen
    if chosen:
        return
    with reading() as session:
        kept = select(Connection.conn_id).where(Connection.conn_type == source)
        yield from list(session.scalars(kept.order_by(Connection.conn_id).limit(500)))
    for name in sorted(os.environ):
        if name.startswith(_ENVIRONMENT):
            yield name.removeprefix(_ENVIRONMENT).lower()
