"""Random lives of a group on real servers and real threads: members join, leave and die.

`tests/client/balance` does the same on a simulated clock, fifty times; here the servers' own leases
and balance rounds take their time, so a run lasts as long as a dead member's lease.
"""

from __future__ import annotations

import threading
import time
from random import Random
from typing import Any

import pytest

from tests.system.behaviour.conftest import PATIENT, embedded
from tests.system.behaviour.sites import GROUP, Site, bodies, new_group
from tests.system.behaviour.windows import settings_for
from tools.devkit.patience import PATIENCE
from tubemq_client import Consumer, Partition, Producer, Record, errors
from tubemq_client.embedded import Switches
from tubemq_client.model import ConsumerSettings

PARTITIONS = 12
STEPS = 5
DRAIN_S = 120.0


class Ledger:
    """Records sent, owners of partitions, confirmed batches, and errors."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        self.unsure: set[bytes] = set()
        self.owners: dict[Partition, str] = {}
        self.wrong: list[str] = []
        self.story: list[str] = []

    def note(self, what: str) -> None:
        self.story.append(f"{time.strftime('%H:%M:%S')} {what}")

    def assigned(self, name: str, partitions: list[Partition]) -> None:
        with self.lock:
            self.note(f"{name} + {len(partitions)}")
            for partition in partitions:
                if partition in self.owners:
                    self.wrong.append(f"{partition}: {self.owners[partition]} and {name}")
                self.owners[partition] = name

    def gone(self, name: str, partitions: list[Partition]) -> None:
        with self.lock:
            self.note(f"{name} - {len(partitions)}")
            for partition in partitions:
                if self.owners.get(partition) == name:
                    del self.owners[partition]

    def left(self, name: str) -> None:
        self.gone(name, [p for p, owner in list(self.owners.items()) if owner == name])

    def received(self, name: str, found: list[bytes]) -> None:
        with self.lock:
            again = self.confirmed.intersection(found)
            if again:
                self.wrong.append(f"{name} got confirmed records again: {sorted(again)}")

    @property
    def missing(self) -> set[bytes]:
        with self.lock:
            return self.sent - self.confirmed - self.unsure


class Member:
    """A consumer with a thread that receives and confirms."""

    def __init__(self, name: str, site: Site, group: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.consumer = Consumer(
            site.settings,
            group,
            {GROUP: ()},
            consumer=ConsumerSettings(consume_position="latest"),
            on_assigned=lambda partitions: ledger.assigned(name, partitions),
            on_revoked=lambda partitions: ledger.gone(name, partitions),
            on_lost=lambda partitions: ledger.gone(name, partitions),
        )
        ledger.note(f"{name} joins")
        self.consumer.__enter__()
        self.thread = threading.Thread(target=self._consume, daemon=True)
        self.thread.start()

    def leave(self) -> None:
        self.ledger.note(f"{self.name} leaves")
        self.ledger.left(self.name)  # before others can have it
        self.consumer.close()
        self.thread.join(30)

    def die(self) -> None:
        """Close the sockets without notifying a server."""
        self.ledger.note(f"{self.name} dies")
        self.consumer._consumer.closing = True
        self.consumer._driver.close()
        for bell in (self.consumer._heartbeat, self.consumer._orders, self.consumer._ready):
            bell.notify()
        self.ledger.left(self.name)
        self.thread.join(30)

    def _consume(self) -> None:
        while True:
            try:
                batch = self.consumer.receive(200)
            except errors.TubeMQError:
                return
            if batch is not None:
                self._work(batch)

    def _work(self, batch: Any) -> None:
        found = bodies(batch)
        self.ledger.received(self.name, found)
        with self.ledger.lock:
            self.ledger.unsure.update(found)
        try:
            self.consumer.confirm(batch)
        except (errors.StaleBatch, errors.ServerError):
            done: list[bytes] = []
        except (errors.NetworkError, errors.ClosedError):
            return  # the broker may have heard it
        else:
            done = found
        with self.ledger.lock:
            self.ledger.unsure.difference_update(found)
            self.ledger.confirmed.update(done)


def send(producer: Producer, ledger: Ledger, random: Random, count: int, step: int) -> None:
    partitions = producer.partitions(GROUP)
    records = [
        Record(b"%d-%d" % (step, number), partition=random.choice(partitions))
        for number in range(count)
    ]
    with ledger.lock:
        ledger.sent.update(record.body for record in records)
    for _ in producer.send_many(GROUP, records):
        pass


def act(members: list[Member], action: str, random: Random, join: Any) -> None:
    if action == "join":
        members.append(join())
    elif len(members) > 1:
        victim = members.pop(random.randrange(len(members)))
        victim.leave() if action == "leave" else victim.die()


def live_through(site: Site, seed: int) -> None:
    random, ledger, group = Random(seed), Ledger(), new_group()
    names = iter(f"m{number}" for number in range(100))

    def join() -> Member:
        return Member(next(names), site, group, ledger)

    members = [join() for _ in range(3)]
    try:
        wait(lambda: len(ledger.owners) == PARTITIONS, ledger, seed, "twelve owned partitions")
        actions = random.sample(["join", "leave", "die", "join", "leave"], STEPS)
        with Producer(site.settings) as producer:
            for step, action in enumerate(actions):
                send(producer, ledger, random, 40, step)
                time.sleep(random.random() * 2)
                act(members, action, random, join)
            send(producer, ledger, random, 40, STEPS)
        wait(lambda: not ledger.missing, ledger, seed, "every record confirmed")
    finally:
        for member in members:
            member.leave()
    assert not ledger.wrong, f"seed {seed}: {ledger.wrong}\n" + "\n".join(ledger.story)


def wait(is_so: Any, ledger: Ledger, seed: int, what: str) -> None:
    deadline = time.monotonic() + DRAIN_S * PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"seed {seed}: not {what}\n" + "\n".join(ledger.story)
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_a_group_on_the_embedded_server(seed: int) -> None:
    switches = Switches(member_timeout_ms=3_000, lease_ms=3_000, lease_scan_ms=100)
    with embedded(switches) as server:
        live_through(Site(settings_for(server.masters, **PATIENT), server.broker_ids), seed)


@pytest.mark.real
@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_group_on_the_genuine_server(genuine: Any, seed: int) -> None:
    live_through(Site(settings_for(genuine.masters, **PATIENT), [genuine.broker_id]), seed)
