"""One pull: its header, and its answer before interpretation.

A pull with the subscription in its header needs neither membership nor heartbeats
(`docs/rocketmq-protocol/exact-ranges.md`). Brokers may create the group of a pull; nothing is
committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from rocketmq_client import errors
from rocketmq_client._wire import codes
from rocketmq_client._wire.batches import MAX_INNER_RECORDS, decode_batch
from rocketmq_client._wire.bodies import Subscription
from rocketmq_client._wire.compression import COMPRESSED, decompress
from rocketmq_client._wire.records import (
    INNER_BATCH,
    MAX_UNPACKED_BYTES,
    StoredRecord,
    parse_record,
    plain_messages,
)
from rocketmq_client.model import Message, PullResult, tag_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._wire.codec import Request
    from rocketmq_client._wire.commands import Command
    from rocketmq_client.model import Address, Queue
    from tubemq_client._core.effects import Conversation

__all__ = [
    "PullAnswer",
    "by_tags",
    "message_of",
    "messages_of",
    "number",
    "pull",
    "pull_request",
    "subscription_of",
    "tags_to_keep",
]

_MAY_WAIT: Final = 2
_HAS_SUBSCRIPTION: Final = 4


class PullAnswer(NamedTuple):
    """Answer to a pull. `code` is one of 0, 19, 20, 21; `remark` is the broker's word for its
    store's state."""

    code: int
    remark: str
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes

    @classmethod
    def of(cls, answer: Command) -> PullAnswer:
        """Parse the answer. Raises `errors.ProtocolViolation` if offsets are missing."""
        return cls(
            answer.code,
            answer.remark or "",
            number(answer, "nextBeginOffset"),
            number(answer, "minOffset"),
            number(answer, "maxOffset"),
            answer.body,
        )


def number(answer: Command, name: str) -> int:
    """Return a header field as a number. Raises `errors.ProtocolViolation`."""
    text = answer.fields.get(name, "")
    try:
        return int(text)
    except ValueError:
        raise errors.ProtocolViolation(f"an answer's {name} is {text[:40]!r}") from None


def pull_request(
    cluster: Cluster,
    queue: Queue,
    group: str,
    offset: int,
    count: int,
    *,
    subscription: Subscription | None = None,
    wait_ms: int = 0,
) -> Request:
    """Build a pull of up to `count` records from `offset`. With `wait_ms` the broker may hold it
    for that time at the end of the queue (and up to 5 s longer)."""
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": str(count),
        "sysFlag": str(_HAS_SUBSCRIPTION | (_MAY_WAIT if wait_ms else 0)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subVersion": "0",
        "subscription": subscription.expression if subscription else "*",
        "expressionType": subscription.kind if subscription else "TAG",
        "bname": queue.broker,
    }
    return cluster.request(fields, wait_ms=wait_ms)


def pull(
    cluster: Cluster,
    address: Address,
    queue: Queue,
    group: str,
    offset: int,
    count: int,
    *,
    subscription: Subscription | None = None,
    wait_ms: int = 0,
) -> Conversation[PullResult]:
    """Pull once and return the result for users. Tags are compared again here: brokers compare
    hashes."""
    request = pull_request(
        cluster, queue, group, offset, count, subscription=subscription, wait_ms=wait_ms
    )
    answer = PullAnswer.of((yield from cluster.ask(address, codes.PULL_MESSAGE, request)))
    tags = tags_to_keep(subscription)
    kept_messages, rest_at = messages_of(queue, answer.body, count)
    messages = tuple(message for message in kept_messages if tags is None or message.tags in tags)
    return PullResult(
        _status(answer, offset, empty=not messages),
        messages,
        answer.next_offset if rest_at is None else rest_at,
        answer.min_offset,
        answer.max_offset,
    )


def subscription_of(topic: str, tags: str | Sequence[str], sql: str | None) -> Subscription:
    """Return the subscription of a pull. Raises `errors.ConfigError` if both tags and SQL are set,
    and for invalid tags."""
    tags = tag_names(tags)
    if tags and sql is not None:
        raise errors.ConfigError("tags, sql: give one of them", subject="pull")
    if sql is not None:
        return Subscription(topic, sql, "SQL92")
    return by_tags(topic, tags)


def by_tags(topic: str, tags: Sequence[str]) -> Subscription:
    """Return the subscription to records with one of these tags, or to all. Raises
    `errors.ConfigError` for tags that a broker would trim: no record has the trimmed tag."""
    if cut := [tag for tag in tags if tag[0] <= " " or tag[-1] <= " "]:
        named = ", ".join(map(repr, cut))
        raise errors.ConfigError(
            f"{named}: a broker cuts control characters off both ends of a tag and finds nothing; "
            "read all records, and compare tags here",
            subject="tags",
        )
    return Subscription(topic, " || ".join(tags) or "*")


def tags_to_keep(subscription: Subscription | None) -> set[str] | None:
    """Return the tags to compare with those of records, None to keep all."""
    if subscription is None or subscription.kind != "TAG" or subscription.expression == "*":
        return None
    return {tag.strip() for tag in subscription.expression.split("||")}


def _status(
    answer: PullAnswer, offset: int, *, empty: bool
) -> Literal["found", "nothing", "filtered", "moved"]:
    if answer.code == codes.SUCCESS:
        return "filtered" if empty else "found"
    if answer.code == codes.PULL_OFFSET_MOVED:
        return "moved"
    if answer.code == codes.PULL_RETRY or offset < answer.max_offset:
        return "filtered"
    return "nothing"


def messages_of(queue: Queue, body: bytes, count: int) -> tuple[list[Message], int | None]:
    """Return the messages of an answer to a pull of `count` records; inner batches are expanded.

    Messages after `count`, or after `MAX_UNPACKED_BYTES` of unpacked bodies, are left out: a small
    answer must not fill the memory. The second value is then the next offset to pull, else None.
    Raises `errors.CorruptRecord` and `errors.ProtocolViolation`.
    """
    messages: list[Message] = []
    pos = unpacked = following = 0
    while pos < len(body):
        if len(messages) >= count or unpacked >= MAX_UNPACKED_BYTES:
            return messages, following
        found, pos = plain_messages(queue, body, pos, count - len(messages))
        messages += found
        if not found:
            record, pos = parse_record(body, pos)
            plain = plain_body(record, queue)
            unpacked += len(plain) if record.sys_flag & COMPRESSED else 0
            following = record.queue_offset + 1
            if record.sys_flag & INNER_BATCH:
                messages += _inner_messages(queue, record, plain)
            else:
                messages.append(message_of(queue, record, plain))
        following = messages[-1].offset + 1 if messages else following
    return messages, None


def plain_body(record: StoredRecord, queue: Queue) -> bytes:
    """Return the unpacked body of a stored record. Raises `errors.CorruptRecord`."""
    if record.is_sound:
        try:
            return decompress(record.body, record.sys_flag)
        except ValueError:
            pass
    raise errors.CorruptRecord(
        f"the record at offset {record.queue_offset} of {queue} fails its checksum or cannot be "
        "unpacked"
    )


def _inner_messages(queue: Queue, record: StoredRecord, body: bytes) -> Iterator[Message]:
    for place, element in enumerate(decode_batch(body, MAX_INNER_RECORDS)):
        inner = record._replace(
            queue_offset=record.queue_offset + place,
            flag=element.flag,
            properties=element.properties,
        )
        yield message_of(queue, inner, element.body)


def message_of(queue: Queue, record: StoredRecord, body: bytes) -> Message:
    """Convert a stored record to a message with its unpacked body."""
    return Message(
        *(queue, record.queue_offset, body, record.properties, record.store_ms, record.born_ms),
        *(record.store_host, record.born_host, record.reconsume_times, record.flag),
        *(record.sys_flag, record.physical_offset, record.prepared_offset),
    )
