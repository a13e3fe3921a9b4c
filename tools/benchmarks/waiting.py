"""CPU and requests of deferred sensors in one triggerer: ``python -m tools.benchmarks.waiting``.

Real trigger objects of sensors run in one event loop for `--seconds` after their first look, on an
embedded server in another process whose topics get no records. Connecting and the first look of
each topic are left out, and so are Airflow's database and API server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["main"]


def main() -> int:
    """Print requests a second by method, the share of a core, and the lag of the loop."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.waiting", description=__doc__)
    parser.add_argument("--sensors", type=int, default=5_000)
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--poll", type=float, default=30.0, help="poll_interval, s (30)")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--profile", type=int, default=0, metavar="FUNCTIONS")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    topics = [TopicSpec(f"t{n}", partitions=options.partitions) for n in range(options.topics)]
    server = context.Process(target=_serve, args=(there, topics), daemon=True)
    server.start()
    try:
        connection = {"conn_type": "tubemq", "host": here.recv(), "extra": {"cluster": "bench"}}
        os.environ["AIRFLOW_CONN_TUBEMQ_DEFAULT"] = json.dumps(connection)
        asyncio.run(_wait(options))
    finally:
        here.send("end")
        server.join(30)
    return 0


def _serve(channel: Connection, topics: list[TopicSpec]) -> None:
    with EmbeddedTubeMQ(topics=topics, http=False) as mq:
        channel.send(mq.masters)
        channel.recv()


async def _wait(options: Any) -> None:
    import cProfile
    import pstats

    from tubemq_client._wire.codec import TUBEMQ
    from tubemq_provider.triggers.offsets import TubeMQOffsetTrigger

    logging.getLogger().setLevel(logging.WARNING)
    requests: Counter[str] = Counter()
    encode, codec = TUBEMQ.encode, type(TUBEMQ)

    def counted(serial: int, method: Any, *others: Any) -> bytes:
        requests[method.name] += 1
        return encode(serial, method, *others)

    codec.encode = staticmethod(counted)  # type: ignore[method-assign, assignment]

    async def run(number: int) -> None:
        trigger = TubeMQOffsetTrigger(
            topic=f"t{number % options.topics}",
            group=f"g{number}",
            min_lag=1,
            positions={f"1:{n}": 0 for n in range(options.partitions)},
            poll_interval=options.poll,
            first_look_after=options.poll / 2,
        )
        async for event in trigger.run():
            raise RuntimeError(f"sensor {number} stopped waiting: {event.payload}")

    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(run(number)) for number in range(options.sensors)]
        await asyncio.sleep(2 * options.poll)
        profile = cProfile.Profile()
        requests.clear()
        began, cpu = time.monotonic(), time.process_time()
        if options.profile:
            profile.enable()
        lags_ms = []
        while time.monotonic() < began + options.seconds:
            since = time.monotonic()
            await asyncio.sleep(0.05)
            lags_ms.append(1000 * (time.monotonic() - since - 0.05))
        profile.disable()
        took, spent = time.monotonic() - began, time.process_time() - cpu
        for task in waiting:
            task.cancel()
    lags_ms.sort()
    print(
        f"{options.sensors} sensors on {options.topics} topics, poll {options.poll:.0f} s: "
        f"{sum(requests.values()) / took:.0f} requests a second "
        f"({', '.join(f'{name} {count}' for name, count in sorted(requests.items()))}), "
        f"{100 * spent / took:.1f} % of a core, loop late by {lags_ms[len(lags_ms) // 2]:.0f} ms, "
        f"p99 {lags_ms[len(lags_ms) * 99 // 100]:.0f} ms"
    )
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(options.profile)


if __name__ == "__main__":
    raise SystemExit(main())
