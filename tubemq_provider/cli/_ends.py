"""How far a topic's logs reach now, for commands whose answer is worth something without it.

A command about progress must work while a cluster is away or its connection is not here: then the
ends are left out, and a note says why. Asks brokers only; changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tubemq_client import errors
from tubemq_provider.hooks.rocketmq import RocketMQHook
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.offsets.metadata_db import Group
from tubemq_provider.windows.spaces import Ends

__all__ = ["hook_of", "known_ends"]


_HOOKS: Final[Mapping[str, type[TubeMQHook | RocketMQHook]]] = {
    "tubemq": TubeMQHook,
    "rocketmq": RocketMQHook,
}
"""By the kind of source."""


def hook_of(args: Any, group: Group) -> TubeMQHook | RocketMQHook:
    """The hook of ``--conn-id``, by default of the group's kind of source. Raises
    `errors.ConfigError` if it is of another cluster."""
    kind = _HOOKS[group.source]
    conn_id = args.conn_id or kind.default_conn_name
    cluster, hook = group.parts[0], kind(conn_id)
    if hook.cluster != cluster:
        raise errors.ConfigError(
            f"connection {conn_id!r} is of cluster {hook.cluster!r}, the asset of "
            f"{cluster!r}: name a connection to that cluster with --conn-id",
            subject="connection",
        )
    return hook


def known_ends(args: Any, group: Group) -> tuple[Mapping[Any, Ends], str]:
    """Stable ends by partition, and a note where they could not be had."""
    _, topic, name = group.parts
    try:
        return hook_of(args, group).reachable_ends(topic, name, stable=True), ""
    except Exception as exc:  # noqa: BLE001 - whatever it is, the rest of the answer stands
        return {}, f"without ends and lag: {exc}"
