"""One of two genuine brokers is silent, is stopped or dies: the other's records flow on.

Members rest after every batch, so that what is counted is how long they were kept waiting, not what
the machine can do; counts are compared with those of the same members a moment before. As they rest
longer than a batch takes, one broker's records can make up for the other's: fewer in all means that
they were kept waiting.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.system.behaviour.shells import BLOCKING, LoopShell
from tests.system.behaviour.sites import eventually
from tests.system.real import topics
from tests.system.real.pipeline import wait_for
from tools.devkit.tubemq.two_brokers import TwoBrokers
from tubemq_client import ClientSettings, Partition, Record, errors

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(400)]

TOPIC = topics.PAIR_TROUBLE.name
BODY = bytes(100_000)
"""A fetch brings five or so: a member that rests is not done before the measurement is."""
RECORDS = {1: 250, 2: 100}
"""In each of the two partitions of a broker."""

PARTITIONS = 4

REST_S = 0.1
CONTROL_S = 2.5
TROUBLE_S = 5.0
MEASUREMENTS = 3
"""Upper bound of repetitions: other work on the machine only ever slows it down."""


@pytest.fixture(scope="module")
def filled(pair_of_brokers: TwoBrokers) -> ClientSettings:
    """Return client settings with the default time for a request, 10 s: no receiver may wait for
    that."""
    pair_of_brokers.restore_both()
    settings = ClientSettings(masters=pair_of_brokers.masters, heartbeat_period_ms=1_000)
    with BLOCKING.Producer(settings) as producer:
        wait_for(lambda: len(producer.publish(TOPIC)) == PARTITIONS)
        for broker, count in RECORDS.items():
            for number in range(2):
                record = Record(BODY, partition=Partition(broker, TOPIC, number))
                producer.send_all(TOPIC, [record] * count)
    return settings


@pytest.mark.parametrize("trouble", ["silent", "stopped", "killed"])
def test_the_other_brokers_records_flow_at_their_usual_rate(
    two_brokers: TwoBrokers, filled: ClientSettings, trouble: str
) -> None:
    """Both consumers of both APIs at once, each in a separate group."""
    shares: dict[str, list[float]] = {}
    while any(max(found) < 0.9 for found in shares.values()) or not shares:
        assert all(len(found) < MEASUREMENTS for found in shares.values()), shares
        two_brokers.restore_both()
        for name, share in measured(two_brokers, filled, trouble).items():
            shares.setdefault(name, []).append(share)
        print(shares)


def measured(pair: TwoBrokers, settings: ClientSettings, trouble: str) -> dict[str, float]:
    """By member: the rate of broker 1 while broker 2 is in trouble, in shares of both before."""
    with ExitStack() as stack:
        members: dict[str, Any] = {}
        for shell in (BLOCKING, stack.enter_context(LoopShell())):
            for kind in ("Consumer", "AssignedConsumer"):
                group = f"trouble_{time.monotonic_ns()}"
                made = getattr(shell, kind)(settings, group, {TOPIC: ()})
                members[f"{shell} {kind}"] = stack.enter_context(made)
        threads = stack.enter_context(ThreadPoolExecutor(len(members)))
        list(threads.map(ready, members.values()))
        before = list(threads.map(lambda member: consume(member, CONTROL_S), members.values()))
        assert all(set(counts) == {1, 2} for counts in before), before
        with TROUBLES[trouble](pair):
            after = list(threads.map(lambda member: consume(member, TROUBLE_S), members.values()))
        print(before, after)
    rates = zip(members, before, after, strict=True)
    return {name: now[1] / TROUBLE_S / (then.total() / CONTROL_S) for name, then, now in rates}


def ready(member: Any) -> None:
    if hasattr(member, "keep_share"):
        member.keep_share()
    eventually(lambda: len(member.assignment) == PARTITIONS or None)


def consume(member: Any, seconds: float) -> Counter[int]:
    """Receive and confirm for `seconds`; count batches by broker."""
    counts: Counter[int] = Counter()
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        batch = member.receive(round(left * 1_000))
        if batch is not None:
            try:
                member.confirm(batch)
            except errors.NetworkError:
                continue  # of the broker in trouble
            counts[batch.partition.broker_id] += 1
            time.sleep(REST_S)
    return counts


@contextmanager
def silent(pair: TwoBrokers) -> Iterator[None]:
    pair.second.pause()
    try:
        yield
    finally:
        pair.second.resume()


@contextmanager
def stopped(pair: TwoBrokers) -> Iterator[None]:
    """Stop the broker: it writes everything to disk, and signs off at the master."""
    pair.second.stop()
    yield


@contextmanager
def killed(pair: TwoBrokers) -> Iterator[None]:
    """Kill the broker: the master announces it until its heartbeats have been missed for a
    while."""
    pair.second.kill()
    yield


TROUBLES = {"silent": silent, "stopped": stopped, "killed": killed}
