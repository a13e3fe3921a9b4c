"""Delayed records of an embedded broker; halves of transactions, which `transactions` ends.

They are stored in system topics, whose offsets their receipts have, and stored again in their topic
when they are due. Records that fall due while the broker is down are delivered when it is back. A
genuine broker rounds timers down to whole seconds; here they are kept to the millisecond.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final, NamedTuple

from rocketmq_client._wire.properties import DELAY, find_property
from rocketmq_client.embedded.pulling import Pulls
from rocketmq_client.embedded.replies import Refused
from rocketmq_client.embedded.storage import NewRecord, Storage

__all__ = ["DelayedRecord", "DelayedRecords", "held_back"]

_LEVELS_S: Final = (1, 5, 10, 30, *range(60, 601, 60), 1_200, 1_800, 3_600, 7_200)
_TIMERS: Final = (("TIMER_DELAY_SEC", 1_000), ("TIMER_DELAY_MS", 1))
_LONGEST_MS: Final = 3 * 24 * 3_600_000


class DelayedRecord(NamedTuple):
    """System topic and queue of a delayed record, and its delivery time (ms since the epoch), if
    any."""

    topic: str
    queue_id: int
    due_ms: int | None


def held_back(properties: bytes, now_ms: int) -> DelayedRecord | None:
    """Return the delay that a record's properties ask for, of a single send. Raises `Refused` as a
    genuine broker does."""
    if (_text(properties, "TRAN_MSG") or "").lower() == "true":
        return DelayedRecord("RMQ_SYS_TRANS_HALF_TOPIC", 0, None)
    level = min(_number(properties, DELAY) or 0, len(_LEVELS_S))
    if level > 0:
        return DelayedRecord(
            "SCHEDULE_TOPIC_XXXX", level - 1, now_ms + _LEVELS_S[level - 1] * 1_000
        )
    due = _due(properties, now_ms)
    if due is None or due <= now_ms:
        return None
    if due - now_ms > _LONGEST_MS:
        raise Refused(
            13,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{_LONGEST_MS}ms",
        )
    return DelayedRecord("rmq_sys_wheel_timer", 0, due)


def _due(properties: bytes, now_ms: int) -> int | None:
    for name, unit_ms in _TIMERS:
        if (delay := _number(properties, name)) is not None:
            return now_ms + delay * unit_ms
    return _number(properties, "TIMER_DELIVER_MS")


def _number(properties: bytes, name: str) -> int | None:
    text = _text(properties, name)
    try:
        return None if text is None else int(text)
    except ValueError:
        remark = f'java.lang.NumberFormatException: For input string: "{text}"'
        raise Refused(1, remark) from None


def _text(properties: bytes, name: str) -> str | None:
    value = find_property(properties, name.encode())
    return None if value is None else value.decode("utf-8", "replace")


class _Waiting(NamedTuple):
    due_ms: int
    topic: str
    queue_id: int
    record: NewRecord


class DelayedRecords:
    """Delayed records of one broker. Belongs to the server's loop."""

    def __init__(self, storage: Storage, pulls: Pulls) -> None:
        self._storage, self._pulls = storage, pulls
        self._numbers = itertools.count()
        self._waiting: dict[int, _Waiting] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def hold(
        self, topic: str, queue_id: int, record: NewRecord, held: DelayedRecord, now_ms: int
    ) -> tuple[int, int]:
        """Store a delayed record; return its offset in the system topic and its position."""
        target = f"REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02".encode()
        record = record._replace(properties=record.properties + target)
        if held.due_ms is not None:
            number = next(self._numbers)
            self._waiting[number] = _Waiting(held.due_ms, topic, queue_id, record)
            self._wait_for(number, now_ms)
        return self._storage.append(held.topic, held.queue_id, record)

    def begin(self, now_ms: int) -> None:
        """Start: deliver records that are due and schedule the others."""
        for number in self._waiting:
            self._wait_for(number, now_ms)

    def end(self) -> None:
        """Stop; nothing is delivered any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _wait_for(self, number: int, now_ms: int) -> None:
        seconds = max(0, self._waiting[number].due_ms - now_ms) / 1000
        loop = asyncio.get_running_loop()
        self._timers[number] = loop.call_later(seconds, self._deliver, number)

    def _deliver(self, number: int) -> None:
        del self._timers[number]
        due = self._waiting.pop(number)
        self._storage.append(due.topic, due.queue_id, due.record)
        self._pulls.wake(due.topic, due.queue_id)
