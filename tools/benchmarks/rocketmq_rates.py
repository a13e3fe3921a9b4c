"""Rates of members and producers of RocketMQ next to those of Java.

`python -m tools.benchmarks.rocketmq_rates [5.5.0]`

One genuine broker and a warm JVM with the published client of its line. Each pass measures a push
consumer of a new group there and a `Consumer` here, on 8 queues from the first record on, the time
beginning with the first delivery; and sends that wait for their receipts one by one. In turns
(`interleaved`): quote the column of ratios. Then an idle member of 100 queues is watched: its share
of a processor core; and how long a second member takes from its start until both have their share.
Starts itself again inside a network namespace.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rocketmq_client import (
    Admin,
    ClientSettings,
    Consumer,
    ConsumerSettings,
    OutgoingMessage,
    Producer,
    ProducerSettings,
)
from tools.benchmarks.interleaved import Rate, interleave, print_table, timed
from tools.benchmarks.snode import WarmJava
from tools.devkit.isolation import can_isolate, is_isolated, isolated_command
from tools.devkit.rocketmq.artifacts import LINES, resolve_artifacts
from tools.devkit.rocketmq.genuine import GenuineRocketMQ

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST = ConsumerSettings(consume_from="first")
_PLAIN = ProducerSettings(compress_over_bytes=None)
_TOGETHER = 32


def main() -> int:
    """Parse options, start the servers, measure, print the tables."""
    options = _options()
    if not is_isolated() and can_isolate():
        module = "tools.benchmarks.rocketmq_rates"
        again = isolated_command([sys.executable, "-m", module, *sys.argv[1:]])
        os.execvp(again[0], again)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-rates-")))
        artifacts = resolve_artifacts(options.line)
        mq = stack.enter_context(GenuineRocketMQ(options.line, directory, artifacts=artifacts))
        java = WarmJava(artifacts.classpath, f"127.0.0.1:{mq.name_server[1]}")
        stack.callback(java.close)
        for size in options.bytes:
            _measure(options, mq.settings, java, size)
        _idle(mq.settings, options.idle_s)
    return 0


def _measure(
    options: argparse.Namespace, settings: ClientSettings, java: WarmJava, size: int
) -> None:
    topic, records, sends = f"read-{size}", options.records, options.sends
    with Admin(settings) as admin:
        admin.create_topic(topic, queues=8)
        admin.create_topic("sent", queues=8)
    with Producer(settings, producer=_PLAIN) as producer:
        batch = [OutgoingMessage(bytes(size))] * _TOGETHER
        for _ in range(records // _TOGETHER):
            producer.send_batch(topic, batch)
        records -= records % _TOGETHER

        def send() -> int:
            for _ in range(sends):
                producer.send("sent", bytes(size))
            return sends

        consuming = {
            "Java push": lambda: java.run("consume", topic, records),
            "Python": lambda: _consume(settings, topic, records, size),
        }
        sending = {
            "Java": lambda: java.run("sync", "sent", sends, size),
            "Python": lambda: timed(send, size),
        }
        for kind, ways in (("consume", consuming), ("send, sync", sending)):
            rates = interleave(ways, passes=options.passes)
            title = f"RocketMQ {options.line}, {kind}, {size} B"
            print_table(title, rates, against=(next(iter(ways)),))


def _consume(settings: ClientSettings, topic: str, records: int, size: int) -> Rate:
    """Return the rate of a new member from its first batch on."""
    group = f"bench-{secrets.token_hex(6)}"
    with Consumer(settings, group, {topic: ()}, consumer=_FIRST) as consumer:
        count, began, cpu = 0, 0.0, 0.0
        while count < records:
            batch = consumer.receive()
            assert batch is not None
            if not count:
                began, cpu = time.perf_counter(), time.process_time()
            count += len(batch.messages)
            consumer.confirm(batch)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Rate(count, count * size, seconds, cpu)


def _idle(settings: ClientSettings, seconds: float) -> None:
    with Admin(settings) as admin:
        admin.create_topic("idle", queues=100)
    with Consumer(settings, "idle", {"idle": ()}) as consumer:
        _until(lambda: _share(consumer) == 100)
        time.sleep(2)
        cpu = time.process_time()
        time.sleep(seconds)
        share = (time.process_time() - cpu) / seconds
        print(f"idle member of 100 queues: {share:.2%} of a core", flush=True)
        began = time.monotonic()
        with Consumer(settings, "idle", {"idle": ()}) as other:
            _until(lambda: (_share(consumer), _share(other)) == (50, 50))
            print(f"second member: shares after {time.monotonic() - began:.2f} s", flush=True)
            began = time.monotonic()
        _until(lambda: _share(consumer) == 100)
        print(f"it leaves: its share taken after {time.monotonic() - began:.2f} s", flush=True)


def _share(consumer: Consumer) -> int:
    return sum(queue.topic == "idle" for queue in consumer.assignment)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("the members have not divided the queues")
        time.sleep(0.01)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("line", nargs="?", choices=LINES, default="5.5.0")
    parser.add_argument("--records", type=int, default=100_000, help="records of a pass")
    parser.add_argument("--sends", type=int, default=2_000, help="sends of a pass")
    parser.add_argument("--bytes", type=int, nargs="+", default=[1024, 100], help="of a body")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--idle-s", type=float, default=30.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
