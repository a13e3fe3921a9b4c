"""Half records of an embedded broker: committed, rolled back, or asked about.

Belongs to the server's loop. A broker that is down asks no producer; it continues when it is back.
Unlike a genuine broker's, a half is asked about itself, not by a copy, and for ever. Like that of
5.5.0, it forgets the ends of its last seconds when it is killed, but not the committed records.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

from rocketmq_client._wire import codes
from rocketmq_client._wire.commands import ONE_WAY, Command
from rocketmq_client._wire.properties import (
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from rocketmq_client._wire.records import encode_record, offset_id, parse_record
from rocketmq_client.embedded.groups import Groups
from rocketmq_client.embedded.pulling import Pulls
from rocketmq_client.embedded.replies import Refused, answer, int_field
from rocketmq_client.embedded.storage import NewRecord, Storage

__all__ = ["HALVES", "Halves"]

HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"
_COMMITTED, _ROLLED_BACK = 8, 12
_KIND = 0xC
_UNWRITTEN_S = 3.0
"""Time for which an end is in the memory of the process only (`transactionOpBatchInterval`)."""


class _Half(NamedTuple):
    topic: str
    queue_id: int
    offset: int
    record: NewRecord
    properties: dict[str, str]


class Halves:
    """Open half records of one broker."""

    def __init__(
        self,
        storage: Storage,
        pulls: Pulls,
        groups: Callable[[], Groups],
        pause_s: Callable[[], float],
    ) -> None:
        self._storage, self._pulls, self._groups = storage, pulls, groups
        self._pause_s = pause_s
        self._open: dict[int, _Half] = {}
        self._ended: list[tuple[float, int, _Half]] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._numbers = itertools.count(1)

    def hold(
        self, topic: str, queue_id: int, offset: int, position: int, record: NewRecord
    ) -> None:
        """Keep a half record that was stored at a position."""
        properties = decode_properties(record.properties)
        self._open[position] = _Half(topic, queue_id, offset, record, properties)
        self._wait_for(position)

    def begin(self) -> None:
        """Start asking."""
        for position in self._open:
            self._wait_for(position)

    def end(self) -> None:
        """Stop asking; forget the ends of the last seconds."""
        over = time.monotonic() - _UNWRITTEN_S
        self._open |= {position: half for at, position, half in self._ended if at > over}
        self._ended.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def finish(self, request: Command) -> Command:
        """Store a committed half in its topic, or drop it."""
        position = int_field(request, "commitLogOffset")
        half = self._open.get(position)
        fields = request.fields
        if half is None or half.offset != int_field(request, "tranStateTableOffset"):
            raise Refused(1, "Find prepared transaction message failed")
        if half.properties.get("PGROUP") != fields.get("producerGroup"):
            raise Refused(1, "The producer group wrong")
        decision = int_field(request, "commitOrRollback")
        if decision not in {_COMMITTED, _ROLLED_BACK}:
            raise Refused(1, "the transaction stays open")
        del self._open[position]
        over = time.monotonic() - _UNWRITTEN_S
        self._ended = [item for item in self._ended if item[0] > over]
        self._ended.append((time.monotonic(), position, half))
        self._timers.pop(position).cancel()
        if decision == _COMMITTED:
            properties = dict(half.properties)
            del properties["TRAN_MSG"]
            record = half.record._replace(
                properties=encode_properties(properties).encode(),
                sys_flag=half.record.sys_flag & ~_KIND | _COMMITTED,
            )
            self._storage.append(half.topic, half.queue_id, record)
            self._pulls.wake(half.topic, half.queue_id)
        return answer(request)

    def _wait_for(self, position: int) -> None:
        loop = asyncio.get_running_loop()
        self._timers[position] = loop.call_later(self._pause_s(), self._ask, position)

    def _ask(self, position: int) -> None:
        half = self._open[position]
        notify = self._groups().producer(half.properties.get("PGROUP", ""))
        entry = self._storage.at(position)
        if notify is not None and entry is not None:
            record, _ = parse_record(entry.data, 0)
            name = half.properties.get(UNIQ_KEY, "")
            fields = {
                "tranStateTableOffset": str(half.offset),
                "commitLogOffset": str(position),
                "msgId": name,
                "transactionId": name,
                "offsetMsgId": offset_id(self._storage.host, position),
            }
            body = encode_record(record._replace(topic=half.topic, queue_id=half.queue_id))
            number = next(self._numbers)
            code = codes.CHECK_TRANSACTION_STATE.code
            notify(Command(code, number, fields, body, ONE_WAY, language="JAVA"))
        self._wait_for(position)
