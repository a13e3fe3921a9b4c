"""Drill of a group: Java and Python members share 16 queues while members join, leave and are
killed, and nodes restart; then every acknowledged record was consumed, or the drill fails.

``python -m tools.devkit.isolation -- python -m tests.rocketmq.real.group_drill --minutes 5`` starts
a genuine cluster and two nodes; ``--line 4.9.7`` chooses the servers, ``--ordered`` has Python
members only, which lock their queues, and checks the order of each queue. The drill moves in
rounds, each with every move once. A move is over when the brokers list exactly the members that
live; what that takes is measured. The last round ends after the given minutes.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack
from pathlib import Path

from rocketmq_client import (
    Admin,
    ClientSettings,
    Consumer,
    ConsumerSettings,
    Metadata,
    Producer,
    errors,
)
from rocketmq_client._wire.bodies import parse_address
from rocketmq_client.model import address_text
from tests.rocketmq.real.test_java_through_nodes import SOURCES
from tests.rocketmq.sites import Site, require, site_of
from tests.snode.processes import NodeProcess

QUEUES, PER_KIND = 16, 2
PAUSES_S = (1.0, 4.0)
PATIENCE_S = 300.0
SETTLE_S = 150.0
"""Longest time in which brokers list a new member, or drop one that is gone (120 s)."""

REPORT_S = 10.0
"""Longest time from a delivery to its line here. What comes again later than that after its commit
is counted as such; before, it may have been delivered before the commit."""


class Got:
    """Deliveries of all members, in the order in which they were reported."""

    def __init__(self) -> None:
        self.times: Counter[str] = Counter()
        self.jumps: list[str] = []
        self.after_commit: list[str] = []
        self._ends: dict[int, int] = {}
        self._floors: dict[int, int] = {}
        self._commits: deque[tuple[float, dict[int, int]]] = deque()
        self._lock = threading.Lock()

    def committed(self, offsets: dict[int, int]) -> None:
        """Take the group's committed offsets, as the broker has them now."""
        with self._lock:
            self._commits.append((time.monotonic(), offsets))

    def take(self, key: str, queue: int, offset: int) -> None:
        """Count a delivery; note one that skips records of its queue, or comes again long after its
        commit."""
        with self._lock:
            self.times[key] += 1
            end = self._ends.get(queue, offset)
            if offset > end:
                self.jumps.append(f"queue {queue}: {offset} came where {end} was next")
            self._ends[queue] = max(end, offset + 1)
            while self._commits and self._commits[0][0] < time.monotonic() - REPORT_S:
                self._floors = self._commits.popleft()[1]
            floor = self._floors.get(queue, 0)
            if self.times[key] > 1 and offset < floor:
                self.after_commit.append(f"queue {queue}: {offset} came, {floor} was committed")


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
            if line.startswith("GOT ") and line.endswith("\n"):
                _, key, queue, offset = line.split()
                got.take(key, int(queue), int(offset))

    def is_named(self, client_id: str) -> bool:
        """Return True for the client id that this process gave itself."""
        pid = self.process.pid
        return client_id.startswith(f"{pid}@") or f"@{pid}#" in client_id

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
            for message in batch.messages:
                print("GOT", message.keys[0], batch.queue.queue_id, message.offset)
            sys.stdout.flush()

        consumer.run(report, on_error="retry")


class Drill:
    """One drill on a running cluster."""

    def __init__(self, words: argparse.Namespace, site: Site) -> None:
        self.words, self.site, self.settings = words, site, site.settings
        self.topic = site.topic(QUEUES)
        self.kinds = ["python"] if words.ordered else ["python", "java"]
        self.got, self.acked, self.failed = Got(), 0, 0
        self.members: list[Member] = []
        self.nodes: list[NodeProcess] = []
        self.actions: Counter[str] = Counter()
        self.settled: dict[str, list[float]] = {}
        self.unsettled: list[str] = []
        self._ways: dict[str, deque[tuple[str, str]]] = {}
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

    def watch_commits(self) -> None:
        """Ask the broker again and again what the group has committed."""
        with Metadata(self.settings) as metadata:
            while not self._stop.wait(1):
                found = metadata.group_offsets(self.topic, self.topic).items()
                self.got.committed({queue.queue_id: offset or 0 for queue, offset in found})

    def join(self, kind: str) -> None:
        """Start a member, directly and through the nodes in turns."""
        way, servers = self._ways[kind][0]
        self._ways[kind].rotate()
        if kind == "java":
            source = str(SOURCES / "ThroughNodes.java")
            command = self.java("-Xmx192m", source, "consume", servers, self.topic, self.topic)
        else:
            module = "tests.rocketmq.real.group_drill"
            command = [sys.executable, "-m", module, "--member", servers, "--topic", self.topic]
            command += ["--ordered"] if self.words.ordered else []
        self.members.append(Member(kind, way, command, self.got))
        self.actions[f"{kind} joins ({way})"] += 1

    def java(self, heap: str, *program: str) -> list[str]:
        """Return the command of a Java program on the line's jars."""
        needs = require(self.words.line)
        home = self.site.cluster.home / "namesrv"  # type: ignore[union-attr]
        return [  # the tool of 4.9.7 prints nothing without a file of logging in its home
            *(str(needs["java"].executable), heap, "-XX:TieredStopAtLevel=1"),  # type: ignore[attr-defined]
            f"-Drocketmq.home.dir={home}",
            *("-Drocketmq.client.logRoot=/dev/null", "-cp", needs["artifacts"].classpath),  # type: ignore[attr-defined]
            *program,
        ]

    def round(self) -> None:
        """Make every move once, in an order by chance: for each kind one member leaves and one is
        killed, each replaced before or after; and a node restarts."""
        moves = [(end, kind) for kind in self.kinds for end in ("leave", "kill")]
        moves.append(("restart", "node"))
        self._chance.shuffle(moves)
        for move, kind in moves:
            time.sleep(self._chance.uniform(*PAUSES_S))
            if move == "restart":
                node = self._chance.choice(self.nodes)
                node.kill()
                time.sleep(1)
                node.start()
                self.actions["a node restarts"] += 1
                self.settle("restart of a node")
                continue
            parts = ["end", "join"]
            self._chance.shuffle(parts)
            for part in parts:
                if part == "join":
                    self.join(kind)
                    self.settle(f"join of {kind}")
                else:
                    own = [each for each in self.members if each.kind == kind]
                    member = self._chance.choice(own)
                    member.end(kill=move == "kill")
                    self.members.remove(member)
                    self.actions[f"{kind} {move}s"] += 1
                    self.settle(f"{move} of {kind} ({member.way})")

    def settle(self, move: str) -> None:
        """Wait until the brokers list exactly the living members; note how long it took."""
        began = time.monotonic()
        while not (right := self.listed_right()) and time.monotonic() - began < SETTLE_S:
            time.sleep(0.2)
        self.settled.setdefault(move, []).append(time.monotonic() - began)
        if not right:
            self.unsettled.append(move)

    def listed_right(self) -> bool:
        """Return True if the brokers list every living member, and no other."""
        with Admin(self.settings) as admin:
            names = [each.client_id for each in admin.group_members(self.topic).members]
        known = [sum(each.is_named(name) for name in names) for each in self.members]
        return len(names) == len(self.members) and all(count == 1 for count in known)

    def missing(self) -> int:
        """Return how many acknowledged records no member has reported."""
        return sum(not self.got.times[f"k{number}"] for number in range(self.acked))

    def javas_view(self, command: str) -> list[list[str]]:
        """Return the words of the lines that Java's administration tool prints about the group."""
        server = address_text(self.settings.name_servers[0])
        main = "org.apache.rocketmq.tools.command.MQAdminStartup"
        words = self.java("-Xmx192m", main, command, "-g", self.topic, "-n", server)
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
        return [line.split() for line in done.stdout.splitlines() if line.strip()]

    def run(self) -> bool:
        """Drill, then wait until nothing is missing; print the tally."""
        threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self.produce, self.watch_commits)
        ]
        nodes = ";".join(address_text(node.address) for node in self.nodes)
        direct = address_text(self.settings.name_servers[0])
        self._ways = {kind: deque([("direct", direct), ("node", nodes)]) for kind in self.kinds}
        for kind in self.kinds * PER_KIND:
            self.join(kind)
        for thread in threads:
            thread.start()
        self.settle("first joins")
        over, rounds = time.monotonic() + self.words.minutes * 60, 0
        while not rounds or time.monotonic() < over:
            self.round()
            rounds += 1
        died = sum(each.process.poll() is not None for each in self.members)
        self._stop.set()
        for thread in threads:
            thread.join()
        began = time.monotonic()
        while self.missing() and time.monotonic() - began < PATIENCE_S:
            time.sleep(1)
        took, missing = time.monotonic() - began, self.missing()
        deadline = time.monotonic() + 60
        while self.behind() and time.monotonic() < deadline:
            time.sleep(0.5)
        behind = self.behind()
        seen = self.java_counts()
        for member in self.members:
            member.end(kill=False)
        twice = sum(times - 1 for times in self.got.times.values())
        print(f"{self.words.line}, {rounds} rounds, at least {self.words.minutes} min")
        print(dict(sorted(self.actions.items())))
        print(
            f"acknowledged {self.acked}, failed sends {self.failed}, missing {missing}, "
            f"delivered again {twice}, of these long after their commit "
            f"{len(self.got.after_commit)}, the rest came {took:.1f} s after the last record"
        )
        print(*self.got.after_commit[:5], sep="\n")
        print("longest time until the brokers' list was right, in seconds:")
        for move, times in sorted(self.settled.items()):
            print(f"  {move}: {max(times):.1f}, median {sorted(times)[len(times) // 2]:.1f}")
        print(f"not right in time: {self.unsettled or 'never'}; members that died alone: {died}")
        print(
            f"Java's tool: members of {len(self.members)}, records behind: {seen or 'no answer'}; "
            f"ours: {behind} behind"
        )
        broken = self.got.jumps if self.words.ordered else []
        print(f"order broken {len(broken)} times" if self.words.ordered else "", *broken[:5])
        wrong = [missing, behind, died, seen != (len(self.members), 0)]
        return not any([*wrong, self.unsettled, self.got.after_commit, broken])

    def behind(self) -> int:
        """Return by how many records the group is behind."""
        with Admin(self.settings) as admin:
            return sum(item.diff for item in admin.progress(self.topic, self.topic))

    def java_counts(self) -> tuple[int, int] | None:
        """Return the members of the group and the records it is behind, by Java's tool, which gives
        up after seconds on a busy machine."""
        for _ in range(5):
            listed, progress = map(self.javas_view, ("consumerConnection", "consumerProgress"))
            members = sum(any("@" in word for word in words[:2]) for words in listed)
            totals = [words[-1] for words in progress if "Total:" in " ".join(words)]
            if members and totals:
                return members, int(totals[-1].rpartition(":")[2])
        print("Java's tool said", listed, progress)
        return None


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
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmq-drill-")))
        drill = Drill(words, stack.enter_context(site_of(words.line, folder)))
        for name in ("one", "two"):
            node = NodeProcess(drill.settings.name_servers[0], name)
            drill.nodes.append(stack.enter_context(node))
        return 0 if drill.run() else 1


if __name__ == "__main__":
    raise SystemExit(main())
