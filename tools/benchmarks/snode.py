"""Cost of a service node for unmodified Java clients: `python -m tools.benchmarks.snode [5.5.0]`.

One genuine broker, one `rocketmq-snode serve` next to it, and two warm JVMs with the published
client of that line: one uses the name server, the other the node. Each pass measures sending
(asynchronous, one message per request), batches and a push consumer, directly and through the node,
in turns (`interleaved`). Quote the column of ratios. `--messages` is the number of messages sent
through the node at the end, with its resident memory printed after each tenth: it has to stay flat.
Starts itself again inside a network namespace, because a genuine RocketMQ 4.9 binds every
interface.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rocketmq_client import Admin
from tools.benchmarks.interleaved import Rate, interleave, print_table
from tools.devkit.isolation import can_isolate, is_isolated, isolated_command
from tools.devkit.rocketmq.artifacts import LINES, resolve_artifacts
from tools.devkit.rocketmq.genuine import GenuineRocketMQ
from tubemq_provider.engines.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WarmJava"]

PASSES = Path(__file__).with_name("java") / "SnodePasses.java"
SEND, BATCH, CONSUME = "send", "batches of 32", "consume"


class WarmJava:
    """A warm JVM that makes one pass per call."""

    def __init__(self, classpath: str, name_servers: str) -> None:
        self._process = subprocess.Popen(
            [
                *(str(find_java().executable), "-Xmx512m", "-XX:+UseSerialGC"),
                *("-Drocketmq.client.logRoot=/dev/null", "-cp", classpath),
                *(str(PASSES), name_servers),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._read_line("READY")

    def run(self, *words: object) -> Rate:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        records, size, seconds = self._read_line("PASS")
        return Rate(int(records), int(size), float(seconds))

    def _read_line(self, word: str) -> list[str]:
        """Return the rest of the next line that starts with `word`: clients print other
        warnings."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.split()[1:]
        raise RuntimeError("the Java client ended")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)


class _Node:
    """`rocketmq-snode serve` in a separate process."""

    def __init__(self, name_server: str, port: int) -> None:
        environment = os.environ | {
            "SNODE_NAME_SERVERS": name_server,
            "SNODE_LISTEN": f"127.0.0.1:{port}",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rocketmq_snode.command", "serve"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().split()[-1]

    def resident_mib(self) -> float:
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024

    def cpu_seconds(self) -> float:
        words = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def main() -> int:
    """Parse options, start the servers, measure, print the table."""
    options = _options()
    if not is_isolated() and can_isolate():
        again = isolated_command([sys.executable, "-m", "tools.benchmarks.snode", *sys.argv[1:]])
        os.execvp(again[0], again)
    with ExitStack() as stack:
        _measure(options, stack)
    return 0


def _measure(options: argparse.Namespace, stack: ExitStack) -> None:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-snode-")))
    artifacts = resolve_artifacts(options.line)
    mq = stack.enter_context(GenuineRocketMQ(options.line, directory, artifacts=artifacts))
    with Admin(mq.settings) as admin:
        admin.create_topic("sent", queues=8)
        admin.create_topic("read", queues=8)
    name_server = f"127.0.0.1:{mq.name_server[1]}"
    node = _Node(name_server, 11911)
    stack.callback(node.close)
    java = {}
    for path, address in (("direct", name_server), ("node", node.address)):
        java[path] = WarmJava(artifacts.classpath, address)
        stack.callback(java[path].close)
    java["direct"].run("batch", "read", options.records, options.bytes, 32)
    for kind in (SEND, BATCH, CONSUME):
        ways = {f"{kind}, {path}": _way(kind, java[path], node, options) for path in java}
        rates_by_way = interleave(ways, passes=options.passes)
        print_table(
            f"RocketMQ {options.line}, {options.bytes} B",
            rates_by_way,
            against=(f"{kind}, direct",),
        )
        print(f"resident memory of the node: {node.resident_mib():.1f} MiB", flush=True)
    _flow(options, java["node"], node)


def _way(kind: str, java: WarmJava, node: _Node, options: argparse.Namespace) -> Callable[[], Rate]:
    """Return a function for one pass; its processor time is the node's."""
    sent = options.records // 4
    words: dict[str, tuple[object, ...]] = {
        SEND: ("send", "sent", sent, options.bytes),
        BATCH: ("batch", "sent", options.records, options.bytes, 32),
        CONSUME: ("consume", "read", options.records),
    }

    def run() -> Rate:
        before = node.cpu_seconds()
        rate = java.run(*words[kind])
        return rate._replace(cpu_seconds=node.cpu_seconds() - before)

    return run


def _flow(options: argparse.Namespace, java: WarmJava, node: _Node) -> None:
    """Send single messages through the node; print its memory after each tenth of them."""
    done = 0
    while done < options.messages:
        step = max(1, options.messages // 10)
        java.run("send", "sent", step, options.bytes)
        done += step
        print(f"{done:>9,} messages: {node.resident_mib():.1f} MiB", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.snode", description=__doc__)
    parser.add_argument("line", nargs="?", choices=LINES, default="5.5.0")
    parser.add_argument("--records", type=int, default=200_000, help="records of a pass")
    parser.add_argument("--bytes", type=int, default=200, help="of a record's body")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--messages", type=int, default=0, help="single messages at the end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
