"""Pulls at an embedded broker: records, refusals, and held pulls.

Statuses and remarks are those of a genuine 5.5.0, including its odd answers while retention removes
files. Tags are compared by hash, as the genuine index does; SQL expressions are not supported and
deliver everything, as a malformed one does there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from rocketmq_client._wire.bodies import split_tags
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.properties import tag_hash
from rocketmq_client.embedded.replies import Refused, answer, int_field
from rocketmq_client.embedded.storage import Entry, QueueIndex, Storage
from rocketmq_client.model import Address

__all__ = ["Channel", "Pulls"]

_MAY_WAIT, _HAS_SUBSCRIPTION = 2, 4
_SCANNED = 800


class Channel(Protocol):
    """Connection of a client."""

    @property
    def peer(self) -> Address: ...

    def push(self, command: Command) -> None: ...


class _Found(NamedTuple):
    code: int
    remark: str
    next_offset: int
    entries: list[Entry]


class Pulls:
    """Pulls of one broker."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._max_records = 32
        self._max_bytes = 256 * 1024
        self._arrivals: dict[tuple[str, int], asyncio.Event] = {}

    def obey(self, options: Mapping[str, str]) -> None:
        """Apply the limits of a pull from the broker's options."""
        self._max_records = int(options.get("maxTransferCountOnMessageInMemory", "32"))
        self._max_bytes = int(options.get("maxTransferBytesOnMessageInMemory", "262144"))

    def wake(self, topic: str, queue_id: int) -> None:
        """Wake held pulls of the queue after a record arrived."""
        event = self._arrivals.pop((topic, queue_id), None)
        if event is not None:
            event.set()

    async def pull(self, request: Command, _channel: Channel, reset: int | None = None) -> Command:
        """Return the answer, held at the queue's end if the request allows it; `reset` is the
        offset to which an operator has moved the group."""
        flags = int_field(request, "sysFlag")
        if not flags & _HAS_SUBSCRIPTION:
            raise Refused(24, "the consumer's subscription not exist")
        key = request.fields.get("topic", ""), int_field(request, "queueId")
        result = (
            self._look(request, key) if reset is None else _Found(21, "OFFSET_RESET", reset, [])
        )
        if result.code == 19 and flags & _MAY_WAIT:
            arrived = self._arrivals.setdefault(key, asyncio.Event())
            try:
                async with asyncio.timeout(int_field(request, "suspendTimeoutMillis", 0) / 1000):
                    await arrived.wait()
            except TimeoutError:
                pass
            result = self._look(request, key)
        index = self._storage.index(*key)
        fields = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(index.reported_first),
            "maxOffset": str(index.end),
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        body = b"".join(entry.data for entry in result.entries)
        return answer(request, result.code, result.remark, fields, body)

    def _look(self, request: Command, key: tuple[str, int]) -> _Found:
        index = self._storage.index(*key)
        offset = int_field(request, "queueOffset")
        if index.end == 0:
            return _Found(19 if offset == 0 else 21, "NO_MESSAGE_IN_QUEUE", 0, [])
        if offset < index.reported_first:
            return _Found(21, "OFFSET_TOO_SMALL", index.reported_first, [])
        if offset == index.end:
            return _Found(19, "OFFSET_OVERFLOW_ONE", offset, [])
        if offset > index.end:
            return _Found(21, "OFFSET_OVERFLOW_BADLY", index.end, [])
        return self._gather(index, offset, int_field(request, "maxMsgNums"), _tags(request))

    def _gather(
        self, index: QueueIndex, offset: int, count: int, hashes: set[int] | None
    ) -> _Found:
        entries: list[Entry] = []
        size, scanned, following = 0, 0, offset
        for at, entry in index.from_offset(offset):
            full = len(entries) >= max(1, min(count, self._max_records))
            if full or scanned >= max(_SCANNED, count):
                break
            if entries and size + len(entry.data) > self._max_bytes:
                break
            following, scanned = at + 1, scanned + 1
            if hashes is None or entry.tag_hash in hashes:
                entries.append(entry)
                size += len(entry.data)
        if entries:
            return _Found(0, "FOUND", following, entries)
        if index.get(offset) is None:  # removed by retention, not reported yet
            return _Found(20, "MESSAGE_WAS_REMOVING", max(following, index.first), [])
        return _Found(20, "NO_MATCHED_MESSAGE", following, [])


def _tags(request: Command) -> set[int] | None:
    expression = request.fields.get("subscription", "*")
    if request.fields.get("expressionType", "TAG") != "TAG" or expression in {"", "*"}:
        return None
    return {tag_hash(tag) for tag in split_tags(expression)}
