"""A service node: one stateless address between RocketMQ's clients and its brokers.

To clients it is the name server and every broker: its routes contain no other address. It relays
sends, pulls and long polls over a few shared connections, and opens a separate connection to each
broker for each member of a group, so that brokers keep membership, notices, locks and expiry. A
node that restarts learns its state again within moments; several nodes can run behind one address
or next to each other (`docs/rocketmq-snode.md`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketmq_snode.server import Snode
    from rocketmq_snode.settings import SnodeSettings

__all__ = ["Snode", "SnodeSettings"]

_HOME_OF = {"Snode": "server", "SnodeSettings": "settings"}
"""Module of each public name, imported when it is asked for: `rocketmq-snode --help` needs none."""


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
