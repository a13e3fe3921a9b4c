"""A service node: one stateless address between RocketMQ's clients and its brokers.

To clients it is the name server and every broker: its routes contain no other address. It relays
sends, pulls and long polls over a few shared connections, and opens a separate connection to each
broker for each member of a group, so that brokers keep membership, notices, locks and expiry. A
node that restarts learns its state again within moments; several nodes can run behind one address
or next to each other (`docs/rocketmq-snode.md`).
"""

from __future__ import annotations

from rocketmq_snode.server import Snode
from rocketmq_snode.settings import SnodeSettings

__all__ = ["Snode", "SnodeSettings"]
