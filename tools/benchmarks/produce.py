"""Produce benchmarks on one genuine broker, in one run: `python -m tools.benchmarks produce`.

Rows, for 1 KiB and 100 B records with the same number of them unanswered: the published Java client
(asynchronous sends with callbacks), `send_many` of a list and of a generator, `send_async` with
callbacks, and both in the asyncio shell. Each pass measures all of them in turn (`interleaved`);
quote the share of Java.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tools.benchmarks.interleaved import Rate, interleave, timed
from tubemq_client import ClientSettings, Producer, Record, aio

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from tools.devkit.tubemq.genuine import GenuineTubeMQ

__all__ = ["JAVA", "produce_rows", "ways"]

JAVA = "Java client 1.13.0, async"
_LIST = 5_000


def produce_rows(
    server: GenuineTubeMQ, topic: str, size: int, options: argparse.Namespace
) -> dict[str, list[Rate]]:
    """Return the rates, by pass, of all ways to send `options.mib` MiB of `size` byte records."""
    settings = ClientSettings(masters=(server.master_address,))
    count, window = options.mib * 2**20 // size, options.in_flight
    body = os.urandom(size)
    turns: dict[str, Callable[[], Rate]] = {}
    with ExitStack() as stack:
        if not options.no_java:
            from tools.benchmarks.java_client import PRODUCER, JavaClient

            numbers = map(str, (size, count, window))
            java = JavaClient(server, PRODUCER, server.masters, topic, *numbers)
            turns[JAVA] = stack.enter_context(java).run
        for name, run in ways(settings, topic, body, count, window).items():
            turns[name] = partial(_timed, run, count, size)
        return interleave(turns, passes=options.passes)


def ways(
    settings: ClientSettings, topic: str, body: bytes, count: int, window: int
) -> dict[str, Callable[[], None]]:
    """Return all ways to send `count` records of the same `body`, by name."""
    return {
        "send_many, lists": lambda: _lists(settings, topic, body, count, window),
        "send_many, generator": lambda: _generator(settings, topic, body, count, window),
        "send_async, callbacks": lambda: _callbacks(settings, topic, body, count),
        "aio send_many, lists": lambda: asyncio.run(_aio(settings, topic, body, count, window)),
        "aio send_async": lambda: asyncio.run(_aio_async(settings, topic, body, count)),
    }


def _timed(run: Callable[[], None], count: int, size: int) -> Rate:
    def send() -> int:
        run()
        return count

    return timed(send, size)


def _lists(settings: ClientSettings, topic: str, body: bytes, count: int, window: int) -> None:
    with Producer(settings) as producer:
        for start in range(0, count, _LIST):
            records = [Record(body) for _ in range(min(_LIST, count - start))]
            for _ in producer.send_many(topic, records, in_flight=window):
                pass


def _generator(settings: ClientSettings, topic: str, body: bytes, count: int, window: int) -> None:
    with Producer(settings) as producer:
        records = (Record(body) for _ in range(count))
        for _ in producer.send_many(topic, records, in_flight=window):
            pass


def _callbacks(settings: ClientSettings, topic: str, body: bytes, count: int) -> None:
    failures: list[BaseException] = []
    with Producer(settings) as producer:
        for _ in range(count):
            producer.send_async(topic, Record(body)).add_done_callback(
                lambda future: failures.append(error) if (error := future.exception()) else None
            )
        producer.flush()
    if failures:
        raise failures[0]


async def _aio(settings: ClientSettings, topic: str, body: bytes, count: int, window: int) -> None:
    async with aio.Producer(settings) as producer:
        for start in range(0, count, _LIST):
            records = [Record(body) for _ in range(min(_LIST, count - start))]
            async for _ in producer.send_many(topic, records, in_flight=window):
                pass


async def _aio_async(settings: ClientSettings, topic: str, body: bytes, count: int) -> None:
    async with aio.Producer(settings) as producer:
        for start in range(0, count, _LIST):
            size = min(_LIST, count - start)
            futures = [await producer.send_async(topic, Record(body)) for _ in range(size)]
            for future in futures:
                await future
