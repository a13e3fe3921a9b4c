"""InLong's packed message bodies ("TDMsg", "InLongMsg"): several records in one TubeMQ body.

The InLong data proxy packs records by attribute string, optionally compressed, into versions 0 to 4
of one container. Here are a parser that checks the whole message before it returns a record, an
iteration in wire order, and builders. Pure functions of bytes and values: no I/O, no clock, and
nothing of TubeMQ's own protocol; the meaning of a record's body is the caller's business.

Compressed bodies need pyarrow (extra `arrow`), which is imported for the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client._lazy import lazy_names
from tubemq_client.tdmsg._attributes import format_attributes, parse_attributes
from tubemq_client.tdmsg._parsing import is_tdmsg, parse_tdmsg
from tubemq_client.tdmsg._values import (
    DEFAULT_MAX_BYTES,
    TDMsg,
    TDMsgGroup,
    TDMsgPacket,
    TDMsgRecord,
)

if TYPE_CHECKING:
    from tubemq_client.tdmsg._building import TDMsgBuilder
    from tubemq_client.tdmsg._packet_building import TDMsgPacketBuilder

__all__ = [
    "DEFAULT_MAX_BYTES",
    "TDMsg",
    "TDMsgBuilder",
    "TDMsgGroup",
    "TDMsgPacket",
    "TDMsgPacketBuilder",
    "TDMsgRecord",
    "format_attributes",
    "is_tdmsg",
    "parse_attributes",
    "parse_tdmsg",
]

# Readers need no builder; Spark's executors get none.
__getattr__ = lazy_names(
    __name__,
    {"._building": ("TDMsgBuilder",), "._packet_building": ("TDMsgPacketBuilder",)},
)
