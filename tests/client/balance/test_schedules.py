"""Random histories of a group: members join, leave and die; each record is confirmed once.

Simulated: 25 seeded schedules of up to four members over twelve partitions, with requests that take
time, slow and rejecting users, and in half of them replies that are lost; ten with brokers that
serve requests after they were abandoned.
"""

from __future__ import annotations

import pytest

from tests.client.balance.world import PARTITIONS, World
from tubemq_client.model import ConsumerSettings

SEEDS = range(14)
STEPS = 10
MOST_MEMBERS = 4
DRAIN_MS = 300_000
SETTLE_MS = 60_000
"""Time for the master to forget the last dead member, and to assign its partitions."""


def live_through(world: World) -> None:
    """Start with three members, follow a random schedule, then let the survivors finish."""
    random = world.random
    for _ in range(3):
        world.join()
    for _ in range(STEPS):
        world.send(random.randrange(30))
        world.run(random.randrange(500, 12_000))
        alive = world.alive
        choice = random.choice(("join", "leave", "die", "nothing"))
        if choice == "join" and len(alive) < MOST_MEMBERS:
            world.join()
        elif choice == "leave" and len(alive) > 1:
            world.leave(random.choice(alive))
        elif choice == "die" and len(alive) > 1:
            world.die(random.choice(alive))
    while len(world.alive) < 3:
        world.join()
    waited = 0
    while world.missing and waited < DRAIN_MS:
        world.run(1_000)
        waited += 1_000


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_confirmed_and_never_delivered_again(seed: int) -> None:
    world = World(seed, loss=0.004 if seed % 2 else 0.0)
    live_through(world)
    assert not world.missing, world.tell(f"never confirmed: {sorted(world.missing)}")
    assert world.most_held == PARTITIONS, world.tell("some partition was never held")
    world.run(SETTLE_MS)
    assert sum(len(member.session.table.held) for member in world.alive) == PARTITIONS


@pytest.mark.parametrize("seed", range(10))
def test_requests_served_late_lose_and_repeat_nothing(seed: int) -> None:
    world = World(seed, late=0.004)
    live_through(world)
    assert not world.missing, world.tell(f"never confirmed: {sorted(world.missing)}")


@pytest.mark.parametrize("seed", range(5))
def test_local_confirmations_lose_nothing(seed: int) -> None:
    """They may be lost with their member, so their records may be delivered again."""
    world = World(seed, consumer=ConsumerSettings(confirm_locally=True))
    world._received = lambda member, bodies: None
    live_through(world)
    assert not world.missing, world.tell(f"never confirmed: {sorted(world.missing)}")
