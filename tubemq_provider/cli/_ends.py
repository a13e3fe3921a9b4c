"""Ends of a topic's logs, for commands that are also useful without them.

A command about progress must work while a cluster is down or its connection is missing: then the
ends are left out, with a note why. Queries brokers only; changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tubemq_client import errors
from tubemq_provider.hooks.by_kind import TopicHook, hook_class
from tubemq_provider.offsets.metadata_db import Group
from tubemq_provider.windows.spaces import Ends


def hook_of(args: Any, group: Group) -> TopicHook:
    """Return the hook of ``--conn-id``, by default of the group's kind of source.

    Raises `errors.ConfigError` if it is of another cluster, or the kind has no connections.
    """
    kind = hook_class(group.source)
    if kind is None:
        raise errors.ConfigError(
            f"no connection leads to topics of {group.source}", subject="connection"
        )
    conn_id = args.conn_id or kind.default_conn_name
    cluster = group.parts[0]
    hook: TopicHook = kind(conn_id)
    if hook.cluster != cluster:
        raise errors.ConfigError(
            f"connection {conn_id!r} is of cluster {hook.cluster!r}, the asset of "
            f"{cluster!r}: name a connection to that cluster with --conn-id",
            subject="connection",
        )
    return hook


def known_ends(args: Any, group: Group) -> tuple[Mapping[Any, Ends], str]:
    """Return stable ends by partition, and a note if they are unavailable."""
    _, topic, name = group.parts
    try:
        return hook_of(args, group).reachable_ends(topic, name, stable=True), ""
    except Exception as exc:  # noqa: BLE001 - the rest of the answer is still useful
        return {}, f"without ends and lag: {exc}"
