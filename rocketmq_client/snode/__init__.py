"""A service node: one address between RocketMQ's clients and its brokers, without state of its own.

Clients take it for their name server and for every broker: routes name nothing else. It relays
sends, pulls and long polls over a few shared connections, and gives each member of a group a
connection of its own to each broker, so that membership, notices, locks and expiry stay the
brokers'. What it knows is lost with it and known again a moment later: several nodes stand behind
one address or beside each other (`docs/rocketmq-snode.md`).
"""

from __future__ import annotations

from rocketmq_client.snode.server import Snode
from rocketmq_client.snode.settings import SnodeSettings

__all__ = ["Snode", "SnodeSettings"]
