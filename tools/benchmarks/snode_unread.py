"""Latency of sends through a service node next to clients that never read their socket.

`python -m tools.benchmarks.snode_unread [--unread 150] [--direct]`. The embedded broker, the node
(`rocketmq-snode serve`) and the clients that never read each run in their own process; the
producers run here, one thread each. `--unread` clients join one consumer group, write pulls for
megabytes of records and read nothing. Each run measures the producers without them first, then
next to them, and prints quantiles of a send in milliseconds, the number of sends that failed, and
the processor time of the node.
`--direct` also measures producers that use the broker without the node, at the same moment: what
they wait for is the broker and the machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocketmq_client import ClientSettings, OutgoingMessage, Producer, Queue, errors
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client.embedded import EmbeddedRocketMQ

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from rocketmq_client.model import Address

TOPIC = "orders"
READ = Queue("broker-a", TOPIC, 0)
PULL = {
    "consumerGroup": "unread",
    "topic": TOPIC,
    "queueId": "0",
    "bname": "broker-a",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
    "subscription": "*",
    "queueOffset": "0",
    "maxMsgNums": "32",
}


class Sends(NamedTuple):
    """Sends of all producers of one path: seconds each, and failures by producer."""

    seconds: list[float]
    failures: list[str]


def main() -> int:
    """Parse options, start the processes, measure, print."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmarks.snode_unread", description=__doc__
    )
    parser.add_argument("--unread", type=int, default=150, help="clients that never read")
    parser.add_argument("--pulls", type=int, default=64, help="of each of them")
    parser.add_argument("--producers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--direct", action="store_true", help="also send without the node")
    options = parser.parse_args()
    with ExitStack() as stack:
        name_server = _start_process(stack, _broker)
        node, process_id = _start_node(stack, name_server)
        paths = {"node": node} | ({"direct": name_server} if options.direct else {})
        for unread in (0, options.unread):
            before = _cpu_seconds(process_id)
            if unread:
                _start_process(stack, _unread_clients, node, unread, options.pulls)
            _print(unread, _send(paths, options))
            print(f"processor time of the node {_cpu_seconds(process_id) - before:.1f} s")
    return 0


def _send(paths: dict[str, Address], options: argparse.Namespace) -> dict[str, Sends]:
    results = {path: Sends([], []) for path in paths}
    end = time.monotonic() + options.seconds
    threads = [
        threading.Thread(target=_produce, args=(address, number, end, results[path]))
        for path, address in paths.items()
        for number in range(options.producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _produce(address: Address, number: int, end: float, sends: Sends) -> None:
    with Producer(ClientSettings((address,))) as producer:
        while (began := time.monotonic()) < end:
            try:
                producer.send(TOPIC, b"%d" % number, queue=Queue("broker-a", TOPIC, 1))
            except errors.RocketMQError as error:
                sends.failures.append(str(error))
            sends.seconds.append(time.monotonic() - began)
            time.sleep(0.05)


def _print(unread: int, results: dict[str, Sends]) -> None:
    for path, sends in results.items():
        cuts = statistics.quantiles(sends.seconds, n=100)
        row = {"p50": cuts[49], "p99": cuts[98], "max": max(sends.seconds)}
        text = "  ".join(f"{name} {value * 1000:8.1f} ms" for name, value in row.items())
        count = f"{len(sends.seconds):>6} sends  {len(sends.failures)} failed"
        print(f"{unread:>4} unread  {path:>6}  {text}  {count}", flush=True)
        for failure in sorted(set(sends.failures))[:3]:
            print(f"    {failure}")


def _start_process(stack: ExitStack, work: object, *args: object) -> Address:
    """Run `work(connection, *args)` in its own process until the end; return what it reports."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *args), daemon=True)  # type: ignore[arg-type]
    process.start()
    stack.callback(process.join)
    stack.callback(process.kill)
    address: Address = ours.recv()
    return address


def _broker(connection: Connection) -> None:
    with EmbeddedRocketMQ(topics={TOPIC: 2}) as rocketmq:
        with Producer(rocketmq.settings) as producer:
            for _ in range(20):
                messages = [OutgoingMessage(os.urandom(10_000)) for _ in range(10)]
                producer.send_batch(TOPIC, messages, queue=READ)
        connection.send(rocketmq.name_server)
        threading.Event().wait()


def _unread_clients(connection: Connection, node: Address, clients: int, count: int) -> None:
    pulls = b"".join(encode_command(Command(11, number, PULL)) for number in range(count))
    connected = []
    connection.send(node)
    for number in range(clients):
        body = {"clientID": f"c-{number}", "consumerDataSet": [{"groupName": "unread"}]}
        heartbeat = encode_command(Command(34, 99, {}, json.dumps(body).encode()))
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(5)
        with suppress(OSError):
            client.connect(node)
            client.sendall(heartbeat + pulls)
        connected.append(client)
    threading.Event().wait()


def _cpu_seconds(process_id: int) -> float:
    words = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _start_node(stack: ExitStack, name_server: Address) -> tuple[Address, int]:
    environment = os.environ | {
        "SNODE_NAME_SERVERS": f"127.0.0.1:{name_server[1]}",
        "SNODE_LISTEN": "127.0.0.1:0",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketmq_snode.command", "serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    port = int(process.stdout.readline().rpartition(":")[2])
    return ("127.0.0.1", port), process.pid


if __name__ == "__main__":
    sys.exit(main())
