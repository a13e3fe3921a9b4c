"""Runs a conversation against a scripted broker: no socket, no waiting, no clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rocketmq_client._core.pulling import number
from rocketmq_client._wire.codec import Request
from rocketmq_client._wire.codes import Method
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.records import StoredRecord, body_crc, encode_record
from rocketmq_client.model import Queue
from tubemq_client import errors
from tubemq_client._core import effects

QUEUE = Queue("broker-a", "orders", 0)
ADDRESS = ("127.0.0.1", 10911)
HOST = ("127.0.0.1", 1)

Broker = Callable[[Method, Request], Command]


def play(conversation: Any, broker: Broker) -> list[Any]:
    """Return the values that the conversation delivers. `broker` answers a request or raises."""
    delivered: list[Any] = []
    clock = 0
    answer: Any = None
    failure: errors.TubeMQError | None = None
    while True:
        try:
            effect = conversation.send(answer) if failure is None else conversation.throw(failure)
        except StopIteration as stop:
            return delivered if stop.value is None else stop.value
        answer = failure = None
        clock += 1
        try:
            if isinstance(effect, effects.Deliver):
                delivered.append(effect.value)
            elif isinstance(effect, effects.Now | effects.WallClock):
                answer = clock
            elif isinstance(effect, effects.Sleep):
                clock += effect.ms
            else:
                answer = _reply(effect, broker)
        except errors.TubeMQError as error:
            failure = error


def _reply(effect: Any, broker: Broker) -> Any:
    if isinstance(effect, effects.Call):
        return broker(effect.method, effect.request)
    if isinstance(effect, effects.Post):
        return effects.Ticket(effect.address, effect.method, effect.request)
    if isinstance(effect, effects.Await):
        return broker(effect.ticket.method, effect.ticket.handle)
    if isinstance(effect, effects.AwaitAll):
        return [None for _ in effect.tickets]
    raise AssertionError(f"unexpected {effect!r}")


def asked(request: Request) -> tuple[int, int]:
    """Return offset and count of a pull."""
    command = Command(0, 0, request.fields)
    return number(command, "queueOffset"), number(command, "maxMsgNums")


def record(offset: int, body: bytes = b"", properties: bytes = b"", **changes: Any) -> bytes:
    body = body or b"record %d" % offset
    stored = StoredRecord(
        queue_id=0,
        flag=0,
        queue_offset=offset,
        physical_offset=offset * 100,
        sys_flag=0,
        born_ms=offset,
        born_host=HOST,
        store_ms=offset * 10,
        store_host=HOST,
        reconsume_times=0,
        prepared_offset=0,
        body=body,
        topic="orders",
        properties=properties,
        crc=body_crc(body),
    )
    return encode_record(stored._replace(**changes))


def found(offsets: Any, *, following: int = 0, ends: tuple[int, int] = (0, 1000)) -> Command:
    return pulled(0, "FOUND", following, ends, b"".join(map(record, offsets)))


def pulled(
    code: int, remark: str, following: int, ends: tuple[int, int], body: bytes = b""
) -> Command:
    fields = {
        "nextBeginOffset": str(following),
        "minOffset": str(ends[0]),
        "maxOffset": str(ends[1]),
    }
    return Command(code, 0, fields, body, 1, remark)


def runtime(**changes: str) -> Command:
    """Build a runtime info: twelve seconds after the start, with everything on disk and indexed."""
    table = {
        "commitLogMaxOffset": "0",
        "remainHowManyDataToFlush": "0 B",
        "bootTimestamp": "0",
        "runtime": "[ 0 days, 0 hours, 0 minutes, 12 seconds ]",
        "dispatchBehindBytes": "0",
        "pageCacheLockTimeMills": "0",
        **changes,
    }
    return Command(0, 0, {}, json.dumps({"table": table}).encode(), 1)
