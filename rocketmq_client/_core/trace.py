"""Message trace: what became of a record, as records of a topic that Java's tools read.

A line of text for each event, its fields in the order of upstream's `TraceDataEncoder`; the keys of
the record that carries it are the message ids, by which `mqadmin queryMsgTraceById` finds it.

Source: `docs/rocketmq-protocol/records.md#message-trace`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_client.model import OutgoingMessage, address_text

if TYPE_CHECKING:
    from rocketmq_client.model import Address

__all__ = ["TRACE_TOPIC", "sent"]

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

_REGION: Final = "DefaultRegion"
_FIELD, _LINE = "\x01", "\x02"
_NORMAL, _DELAYED = "0", "3"


def sent(
    group: str,
    topic: str,
    message: OutgoingMessage,
    message_id: str,
    offset_id: str,
    store_host: Address | None,
    *,
    began_ms: int,
    took_ms: int,
    delayed: bool,
) -> OutgoingMessage:
    """Return the record that says how a send ended; one without an offset id failed."""
    fields = [
        *("Pub", str(began_ms), _REGION, group, topic, message_id),
        *(message.tags or "", " ".join(message.keys)),
        address_text(store_host) if store_host else "",
        str(len(message.body)),
        str(took_ms),
        _DELAYED if delayed else _NORMAL,
        offset_id,
        "true" if offset_id else "false",
    ]
    text = _FIELD.join(map(_plain, fields)) + _LINE
    return OutgoingMessage(text.encode(), keys=(message_id, *message.keys))


def _plain(text: str) -> str:
    """Return the text without the separators."""
    return text.replace(_FIELD, " ").replace(_LINE, " ")
