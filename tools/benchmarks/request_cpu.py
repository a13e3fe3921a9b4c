"""CPU time of single requests.

Run as `python -m tools.benchmarks.request_cpu [--against CHECKOUT]`.

A single `send`, `send_async` with waiting for its receipt, and `receive` with `confirm`, in the
sync and the asyncio API, in microseconds of CPU of the client's process, all its threads together.
Records go to the simulated servers of `send_cpu` and come from an embedded server, both in other
processes. With `--against` another checkout (for example a worktree of an older commit) is measured
in turns with this one, pass by pass, each in a separate process, on this one's servers; the ratio
is that of the medians, next to the median of the ratios of each pass.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tubemq_client import AssignedConsumer, ClientSettings, Producer, Record, aio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

TOPIC = "bench"
_SHARED = Path(__file__).resolve().parents[2]
_FETCH_RECORDS = 8


def main() -> int:
    """Parse options; as a worker run measurements, else start servers and workers."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmarks.request_cpu", description=__doc__
    )
    parser.add_argument("--against", type=Path, help="another checkout, measured in turns")
    parser.add_argument("--passes", type=int, default=9, help="passes of each way (9)")
    parser.add_argument("--requests", type=int, default=2_000, help="in each pass (2000)")
    parser.add_argument("--only", default="", help="ways whose name contains this text")
    parser.add_argument("--worker", nargs=2, type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _work(*options.worker)

    from tools.benchmarks.send_cpu import _serve

    context = multiprocessing.get_context("spawn")
    (sends, there), (log, other) = multiprocessing.Pipe(), multiprocessing.Pipe()
    servers = [
        context.Process(target=_serve, args=(there,)),
        context.Process(target=_serve_log, args=(other, options.requests)),
    ]
    for server in servers:
        server.start()
    try:
        ports = (_port(sends), _port(log))
        trees = [_SHARED] + ([options.against.resolve()] if options.against else [])
        _compare([_Worker(tree, ports) for tree in trees], options)
    finally:
        for pipe in (sends, log):
            pipe.send("stop")
        for server in servers:
            server.join()
    return 0


def _port(pipe: Any) -> int:
    if not pipe.poll(60):
        raise SystemExit("a server did not start")
    return int(pipe.recv())


class _Worker:
    """A process that measures the code of one checkout."""

    def __init__(self, tree: Path, ports: tuple[int, int]) -> None:
        command = [sys.executable, __file__, "--worker", *map(str, ports)]
        self._process = subprocess.Popen(
            command,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, way: str, count: int) -> float:
        assert self._process.stdin is not None, "a pipe"
        assert self._process.stdout is not None, "a pipe"
        self._process.stdin.write(f"{way}|{count}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def _compare(workers: list[_Worker], options: Any) -> None:
    for way in (name for name in WAYS if options.only in name):
        costs: list[list[float]] = [[] for _ in workers]
        for number in range(options.passes + 1):
            turns = list(zip(workers, costs, strict=True))
            for worker, cost in turns if number % 2 else reversed(turns):
                cost_us = worker.measure(way, options.requests)
                if number:  # the first warms up
                    cost.append(cost_us)
        line = f"{way:28} {min(costs[0]):7.1f} least, {statistics.median(costs[0]):7.1f} us"
        if len(costs) > 1:
            pairs = statistics.median(a / b for a, b in zip(*costs, strict=True))
            least = min(costs[0]) / min(costs[1])
            line += f"  against {min(costs[1]):7.1f}: {least:.3f} of the least, {pairs:.3f} by pass"
        print(line, flush=True)
    for worker in workers:
        worker.close()


def _serve_log(pipe: Any, requests: int) -> None:
    """Run an embedded server with records for `requests` fetches, until something comes."""
    from tubemq_client.embedded import EmbeddedTubeMQ, ReadLimits, Switches

    size = _FETCH_RECORDS * 152
    small = ReadLimits(first_fetch_bytes=size, fetch_bytes=size)
    switches = Switches(reads=small)
    with EmbeddedTubeMQ(1, [TOPIC], http=False, switches=switches) as server:
        settings = ClientSettings(masters=(_address(server.masters),))
        with Producer(settings) as producer:
            partition = producer.partitions(TOPIC)[0]
            records = [
                Record(os.urandom(100), partition=partition)
                for _ in range((requests + 50) * _FETCH_RECORDS)
            ]
            producer.send_all(TOPIC, records)
        pipe.send(settings.masters[0][1])
        pipe.recv()


def _address(masters: str) -> tuple[str, int]:
    host, _, port = masters.split(",", maxsplit=1)[0].rpartition(":")
    return host, int(port)


# -- in the process that is measured -----------------------------------------------------------


def _work(sends: int, log: int) -> int:
    for line in sys.stdin:
        way, count = line.rstrip().split("|")
        port = log if "receive" in way else sends
        settings = ClientSettings(masters=(("127.0.0.1", port),))
        print(WAYS[way](settings, int(count)) * 1e6, flush=True)
    return 0


def _send(settings: ClientSettings, count: int) -> float:
    body = os.urandom(100)
    with Producer(settings) as producer:
        producer.send(TOPIC, body)
        began = time.process_time()
        for _ in range(count):
            producer.send(TOPIC, body)
        return (time.process_time() - began) / count


def _send_async(settings: ClientSettings, count: int) -> float:
    body = os.urandom(100)
    with Producer(settings) as producer:
        producer.send_async(TOPIC, Record(body)).result()
        began = time.process_time()
        for _ in range(count):
            producer.send_async(TOPIC, Record(body)).result()
        return (time.process_time() - began) / count


def _receive(settings: ClientSettings, count: int) -> float:
    with AssignedConsumer(settings, f"bench_{uuid.uuid4().hex[:12]}", {TOPIC: ()}) as consumer:
        consumer.assign(next(iter(consumer.partitions())), 0)
        began = 0.0
        for number in range(count + 20):
            if number == 20:
                began = time.process_time()
            batch = consumer.receive(5_000)
            assert batch is not None, "there is more to read"
            consumer.confirm(batch)
        return (time.process_time() - began) / count


async def _aio_send(settings: ClientSettings, count: int) -> float:
    body = os.urandom(100)
    async with aio.Producer(settings) as producer:
        await producer.send(TOPIC, body)
        began = time.process_time()
        for _ in range(count):
            await producer.send(TOPIC, body)
        return (time.process_time() - began) / count


async def _aio_send_async(settings: ClientSettings, count: int) -> float:
    body = os.urandom(100)
    async with aio.Producer(settings) as producer:
        await (await producer.send_async(TOPIC, Record(body)))
        began = time.process_time()
        for _ in range(count):
            await (await producer.send_async(TOPIC, Record(body)))
        return (time.process_time() - began) / count


async def _aio_receive(settings: ClientSettings, count: int) -> float:
    group = f"bench_{uuid.uuid4().hex[:12]}"
    async with aio.AssignedConsumer(settings, group, {TOPIC: ()}) as consumer:
        await consumer.assign(next(iter(await consumer.partitions())), 0)
        began = 0.0
        for number in range(count + 20):
            if number == 20:
                began = time.process_time()
            batch = await consumer.receive(5_000)
            assert batch is not None, "there is more to read"
            await consumer.confirm(batch)
        return (time.process_time() - began) / count


def _on_loop(way: Any) -> Callable[[ClientSettings, int], float]:
    return lambda settings, count: asyncio.run(way(settings, count))


WAYS: dict[str, Callable[[ClientSettings, int], float]] = {
    "send": _send,
    "send_async, one by one": _send_async,
    "receive + confirm": _receive,
    "aio send": _on_loop(_aio_send),
    "aio send_async, one by one": _on_loop(_aio_send_async),
    "aio receive + confirm": _on_loop(_aio_receive),
}


if __name__ == "__main__":
    raise SystemExit(main())
