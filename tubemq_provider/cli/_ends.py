"""How far a topic's logs reach now, for commands whose answer is worth something without it.

A command about progress must work while a cluster is away or its connection is not here: then the
ends are left out, and a note says why. Asks brokers only; changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tubemq_client import errors
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.windows.spaces import Ends

__all__ = ["hook_of", "known_ends"]


def hook_of(args: Any, cluster: str) -> TubeMQHook:
    """The hook of ``--conn-id``. Raises `errors.ConfigError` if it is of another cluster."""
    hook = TubeMQHook(args.conn_id or TubeMQHook.default_conn_name)
    if hook.cluster != cluster:
        raise errors.ConfigError(
            f"connection {hook.tubemq_conn_id!r} is of cluster {hook.cluster!r}, the asset of "
            f"{cluster!r}: name a connection to that cluster with --conn-id",
            subject="connection",
        )
    return hook


def known_ends(args: Any, label: str) -> tuple[Mapping[Any, Ends], str]:
    """Stable ends by partition, and a note where they could not be had."""
    cluster, topic, group = label.split("/", 2)
    try:
        return hook_of(args, cluster).reachable_ends(topic, group, stable=True), ""
    except Exception as exc:  # noqa: BLE001 - whatever it is, the rest of the answer stands
        return {}, f"without ends and lag: {exc}"
