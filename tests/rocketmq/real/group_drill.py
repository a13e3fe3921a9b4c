"""Drill of a group: Java and Python members share 16 queues while members join, leave and are
killed, and nodes restart; then every acknowledged record was consumed, or the drill fails.

``python -m tools.devkit.isolation -- python -m tests.rocketmq.real.group_drill --minutes 5`` starts
a genuine cluster and two nodes; ``--line 4.9.7`` chooses the servers, ``--ordered`` has Python
members only, which lock their queues, and checks the order of each queue.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from rocketmq_client import (
    Admin,
    ClientSettings,
    Consumer,
    ConsumerSettings,
    Producer,
    errors,
)
from rocketmq_client._wire.bodies import parse_address
from rocketmq_client.model import address_text
from tests.rocketmq.real.test_java_through_nodes import SOURCES
from tests.rocketmq.sites import require, site_of
from tests.snode.processes import NodeProcess

QUEUES, FEWEST, MOST, MOST_JAVA = 16, 2, 5, 2
PAUSES_S = (4.0, 10.0)
PATIENCE_S = 300.0


class Got:
    """Deliveries of all members, in the order in which they were reported."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.jumps: list[str] = []
        self._ends: dict[str, int] = {}

    def take(self, words: list[str]) -> None:
        """Count a delivery; with queue and offset, note one that skips records of its queue."""
        self.times[words[0]] += 1
        if len(words) == 3:
            queue, offset = words[1], int(words[2])
            end = self._ends.get(queue, offset)
            if offset > end:
                self.jumps.append(f"{queue}: {offset} came where {end} was next")
            self._ends[queue] = max(end, offset + 1)


class Member:
    """Process of one member, whose lines are counted."""

    def __init__(self, kind: str, way: str, command: list[str], got: Got) -> None:
        self.kind, self.way = kind, way
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(got,), daemon=True)
        self._reader.start()

    def _read(self, got: Got) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("GOT "):
                got.take(line.split()[1:])

    def end(self, *, kill: bool) -> None:
        """Kill the member, or let it leave its group."""
        if kill:
            self.process.kill()
        elif self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)


def consume(servers: str, topic: str, *, ordered: bool) -> None:
    """Be a Python member until the input ends; report each record before it is confirmed."""
    settings = ClientSettings(tuple(map(parse_address, servers.split(";"))), route_period_ms=1_000)
    first = ConsumerSettings(consume_from="first", commit_ms=500, ordered=ordered)
    with Consumer(settings, topic, {topic: ()}, consumer=first) as consumer:

        def leave() -> None:
            sys.stdin.read()
            consumer.stop()

        threading.Thread(target=leave, daemon=True).start()

        def report(batch) -> None:
            place = f"{batch.queue.key} " if ordered else ""
            for message in batch.messages:
                offset = str(message.offset) if ordered else ""
                print("GOT", message.keys[0], f"{place}{offset}")
            sys.stdout.flush()

        consumer.run(report, on_error="retry")


class Drill:
    """One drill on a running cluster."""

    def __init__(self, words: argparse.Namespace, settings: ClientSettings, topic: str) -> None:
        self.words, self.topic = words, topic
        self.direct = address_text(settings.name_servers[0])
        self.settings = settings
        self.got, self.acked, self.failed = Got(), 0, 0
        self.members: list[Member] = []
        self.nodes: list[NodeProcess] = []
        self.actions: Counter[str] = Counter()
        self._stop = threading.Event()
        self._chance = random.Random(words.seed)

    def produce(self) -> None:
        """Send numbered records until told to stop; only acknowledged ones are counted."""
        with Producer(self.settings) as producer:
            while not self._stop.wait(0.005):
                try:
                    producer.send(self.topic, b"x", keys=f"k{self.acked}")
                except errors.RocketMQError:
                    self.failed += 1
                else:
                    self.acked += 1

    def join(self, kind: str) -> None:
        """Start a member, directly or through one of the nodes."""
        nodes = [address_text(node.address) for node in self.nodes]
        way, servers = self._chance.choice([("direct", self.direct), ("node", ";".join(nodes))])
        if kind == "java":
            needs = require(self.words.line)
            artifacts, java = needs["artifacts"], needs["java"]
            command = [
                *(str(java.executable), "-Xmx192m", "-XX:TieredStopAtLevel=1"),  # type: ignore[attr-defined]
                *("-Drocketmq.client.logRoot=/dev/null", "-cp", artifacts.classpath),  # type: ignore[attr-defined]
                *(str(SOURCES / "ThroughNodes.java"), "consume", servers, self.topic, self.topic),
            ]
        else:
            module = "tests.rocketmq.real.group_drill"
            command = [sys.executable, "-m", module, "--member", servers, "--topic", self.topic]
            command += ["--ordered"] if self.words.ordered else []
        self.members.append(Member(kind, way, command, self.got))
        self.actions[f"{kind} joins ({way})"] += 1

    def act(self) -> None:
        """Let a member join, leave or die, or a node restart, by chance."""
        living = [each for each in self.members if each.process.poll() is None]
        self.actions["a member ended by itself"] += len(self.members) - len(living)
        self.members = living
        choices = ["node"]
        choices += ["join", "join"] if len(living) < MOST else []
        choices += ["leave", "kill"] if len(living) > FEWEST else []
        chosen = self._chance.choice(choices)
        if chosen == "node":
            node = self._chance.choice(self.nodes)
            node.kill()
            time.sleep(1)
            node.start()
            self.actions["a node restarts"] += 1
        elif chosen == "join":
            crowded = sum(each.kind == "java" for each in living) >= MOST_JAVA
            only_python = self.words.ordered or crowded
            self.join("python" if only_python else self._chance.choice(["python", "java"]))
        else:
            member = living.pop(self._chance.randrange(len(living)))
            member.end(kill=chosen == "kill")
            self.actions[f"{member.kind} {chosen}s"] += 1

    def missing(self) -> int:
        """Return how many acknowledged records no member has reported."""
        return sum(not self.got.times[f"k{number}"] for number in range(self.acked))

    def run(self) -> bool:
        """Drill, then wait until nothing is missing; print the tally."""
        sender = threading.Thread(target=self.produce, daemon=True)
        self.join("python")
        self.join("python" if self.words.ordered else "java")
        sender.start()
        over = time.monotonic() + self.words.minutes * 60
        while time.monotonic() < over:
            time.sleep(self._chance.uniform(*PAUSES_S))
            self.act()
        self._stop.set()
        sender.join()
        began = time.monotonic()
        while self.missing() and time.monotonic() - began < PATIENCE_S:
            time.sleep(1)
        took, missing = time.monotonic() - began, self.missing()
        with Admin(self.settings) as admin:
            deadline = time.monotonic() + 60
            while sum(item.diff for item in admin.progress(self.topic, self.topic)):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.5)
            behind = sum(item.diff for item in admin.progress(self.topic, self.topic))
            seen = admin.group_members(self.topic).members
        for member in self.members:
            member.end(kill=False)
        twice = sum(times - 1 for times in self.got.times.values())
        print(f"{self.words.line}, {self.words.minutes} min, {dict(self.actions)}")
        print(
            f"acknowledged {self.acked}, failed sends {self.failed}, missing {missing}, "
            f"delivered again {twice}, the rest came {took:.1f} s after the last record"
        )
        print(
            f"the brokers' view: {len(seen)} members of {len(self.members)} "
            f"({', '.join(sorted({f'{each.language} {each.version}' for each in seen}))}), "
            f"{behind} records behind; order broken {len(self.got.jumps)} times"
        )
        print(*self.got.jumps[:5], sep="\n")
        right = not missing and not behind and len(seen) == len(self.members)
        return right and not self.got.jumps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--line", choices=["4.9.7", "5.5.0"], default="5.5.0")
    parser.add_argument("--seed", type=int, default=32)
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.member:
        consume(words.member, words.topic, ordered=words.ordered)
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        site = stack.enter_context(site_of(words.line, folder))
        drill = Drill(words, site.settings, site.topic(QUEUES))
        for name in ("one", "two"):
            node = NodeProcess(site.settings.name_servers[0], name)
            drill.nodes.append(stack.enter_context(node))
        return 0 if drill.run() else 1


if __name__ == "__main__":
    raise SystemExit(main())
