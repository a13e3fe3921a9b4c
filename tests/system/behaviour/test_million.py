"""Records by the thousand, or the million, from a producer through a broker to a group, while the
network breaks: what was acknowledged arrives, what was confirmed does not come again.

A record's body begins with its number, so every copy that a broker stored is counted. A receipt
means at least one copy; a number without one is *unknown*, and may be stored or not. More copies
than one come only from sending again what was unknown: by the option `retry_unknown`, or by the
user. Long forms: `make soak ARGS="-k million -s"`; TUBEMQ_SOAK_RECORDS sets their size.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from tests.system.behaviour.bad_network import BadNetwork, servers_of
from tests.system.behaviour.shells import LoopShell, Shell
from tests.system.behaviour.sites import WIDE, Site
from tools.devkit.patience import PATIENCE
from tubemq_client import Partition, ProducerSettings, Record, SendReceipt, errors
from tubemq_client.model import ConsumerSettings

MILLION = int(os.environ.get("TUBEMQ_SOAK_RECORDS", "1000000"))
LONG_S = 3_000
MEMBERS = 2
PARTITIONS = 6
PADDING = b"." * 84
DRAIN_S = 120.0
QUIET_MS = 800

Outcome = SendReceipt | errors.TubeMQError


@dataclass
class Tally:
    """Fate of every number: copies with a receipt, copies consumed, sendings."""

    count: int
    acknowledged: bytearray = field(init=False)
    unknown: bytearray = field(init=False)
    consumed: bytearray = field(init=False)
    resent: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    unanswered: int = 0
    came_again: int = 0
    missing: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _position: dict[Partition, int] = field(default_factory=dict)
    _unsure: dict[Partition, tuple[int, list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.acknowledged = bytearray(self.count)
        self.unknown = bytearray(self.count)
        self.consumed = bytearray(self.count)

    # -- of the producer --------------------------------------------------------------------------

    def sent(self, number: int, outcome: Outcome | None) -> None:
        """Count an outcome; None: an earlier failure left it unknown."""
        with self._lock:
            if isinstance(outcome, SendReceipt):
                self.missing += not self.acknowledged[number] and not self.consumed[number]
                self.acknowledged[number] = 1
            else:
                self.unknown[number] = 1

    # -- of the group -----------------------------------------------------------------------------

    def received(self, batch: Any) -> list[int]:
        """Judge a batch by where it starts: never before what a confirmation returned."""
        with self._lock:
            if batch.start < self._position.get(batch.partition, 0):
                self.wrong.append(f"{batch} comes after a confirmation beyond it")
            start, numbers = self._unsure.pop(batch.partition, (0, []))
            if numbers and batch.start <= start:
                self.came_again += 1  # no server had received the confirmation
            else:
                self._count(numbers)
        return [int(message.body[:16]) for message in batch.messages()]

    def confirmed(self, batch: Any, numbers: list[int], position: int) -> None:
        with self._lock:
            self._position[batch.partition] = position
            self._count(numbers)

    def not_known(self, batch: Any, numbers: list[int]) -> None:
        """No answer to the confirmation: the next batch shows whether it was heard."""
        with self._lock:
            self.unanswered += 1
            self._unsure[batch.partition] = (batch.start, numbers)

    def finish(self) -> None:
        with self._lock:
            for _, numbers in self._unsure.values():
                self._count(numbers)
            self._unsure.clear()

    def _count(self, numbers: list[int]) -> None:
        for number in numbers:
            self.missing -= self.acknowledged[number] and not self.consumed[number]
            self.consumed[number] += 1

    # -- of the test ------------------------------------------------------------------------------

    @property
    def doubled(self) -> dict[int, int]:
        """Copies beyond the first one of each number."""
        return {n: copies - 1 for n, copies in enumerate(self.consumed) if copies > 1}

    def story(self, cuts: int, sent_again: int) -> str:
        open_ = [n for n in range(self.count) if self.unknown[n] and not self.acknowledged[n]]
        stored = sum(1 for n in open_ if self.consumed[n])
        return (
            f"{self.count} records, {cuts} cuts: {sum(self.acknowledged)} acknowledged, "
            f"{self.missing} of them missing; {len(open_)} unknown, {stored} of them stored; "
            f"{sum(self.doubled.values())} duplicates, {sent_again} sent again by the producer and "
            f"{len(self.resent)} by the user; {self.unanswered} confirmations without an answer, "
            f"{self.came_again} of those batches came again; {len(self.wrong)} wrong"
        )


# -- the two ends ---------------------------------------------------------------------------------


class Members:
    """A group, each member received from in a separate thread."""

    def __init__(self, shell: Shell, site: Site, group: str, tally: Tally) -> None:
        latest = ConsumerSettings(consume_position="latest", not_found_wait_ms=5)
        self._consumers = [
            shell.Consumer(site.settings, group, {WIDE: ()}, consumer=latest)
            for _ in range(MEMBERS)
        ]
        self._tally = tally
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._consume, args=(consumer,), daemon=True)
            for consumer in self._consumers
        ]

    def __enter__(self) -> Self:
        for consumer in self._consumers:
            consumer.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(30)
        for consumer in self._consumers:
            consumer.__exit__(None, None, None)

    @property
    def held(self) -> int:
        return sum(len(consumer.assignment) for consumer in self._consumers)

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait until nothing more comes, and raise what a member failed with."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if self._failures:
            raise self._failures[0]

    def _consume(self, consumer: Any) -> None:
        try:
            while True:
                batch = consumer.receive(QUIET_MS)
                if batch is None and self._stop.is_set():
                    return
                if batch is not None:
                    self._work(consumer, batch)
        except BaseException as error:  # noqa: BLE001 - raised by `end`
            self._failures.append(error)

    def _work(self, consumer: Any, batch: Any) -> None:
        numbers = self._tally.received(batch)
        try:
            position = consumer.confirm(batch)
        except (errors.StaleBatch, errors.ServerError):
            return  # it comes again
        except errors.NetworkError:
            self._tally.not_known(batch, numbers)
        else:
            self._tally.confirmed(batch, numbers, position)


def send(shell: Shell, producer: Any, way: str, records: list[Record]) -> list[Outcome]:
    """Return the outcomes of the first records; for those missing at the end they are unknown."""
    if isinstance(shell, LoopShell):
        task = _gather if way == "async" else _stream
        return shell.wait(task(producer._client, records))  # type: ignore[no-any-return]
    if way == "async":
        futures = [producer.send_async(WIDE, record) for record in records]
        return [future.exception() or future.result() for future in futures]
    found: list[Outcome] = []
    try:
        found.extend(producer.send_many(WIDE, records))
    except errors.NetworkError as error:
        found.append(error)
    return found


async def _gather(producer: Any, records: list[Record]) -> list[Any]:
    futures = [await producer.send_async(WIDE, record) for record in records]
    found: list[Any] = []
    for future in futures:
        try:
            found.append(await future)
        except errors.NetworkError as error:
            found.append(error)
    return found


async def _stream(producer: Any, records: list[Record]) -> list[Any]:
    found: list[Any] = []
    try:
        async for receipt in producer.send_many(WIDE, records):
            found.append(receipt)  # noqa: PERF401 - those before a failure are wanted
    except errors.NetworkError as error:
        found.append(error)
    return found


def produce(
    shell: Shell, producer: Any, tally: Tally, chunk: int, *, resend: bool, deadline: float
) -> None:
    """Send every number once, alternating both ways, and unknown ones again if requested."""

    def go(way: str, numbers: Iterable[int]) -> list[int]:
        numbers = list(numbers)
        outcomes = send(shell, producer, way, [Record(b"%016d" % n + PADDING) for n in numbers])
        outcomes += [None] * (len(numbers) - len(outcomes))  # type: ignore[list-item]
        for number, outcome in zip(numbers, outcomes, strict=True):
            tally.sent(number, outcome)
        return [n for n, o in zip(numbers, outcomes, strict=True) if not isinstance(o, SendReceipt)]

    for start in range(0, tally.count, chunk):
        assert time.monotonic() < deadline, f"only {start} of {tally.count} sent"
        way = ("many", "async")[start // chunk % 2]
        again = go(way, range(start, min(start + chunk, tally.count)))
        for _ in range(20):
            if not (again and resend):
                break
            tally.resent.update(again)
            again = go("async", again)


def wait(is_so: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds * PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"not {what}"
        time.sleep(0.05)


def exchange(
    shell: Shell,
    site: Site,
    group: str,
    network: BadNetwork,
    *,
    count: int,
    choice: str,
    limit_s: float,
) -> Tally:
    """Send, consume, and hold every promise; returns the tally."""
    tally = Tally(count)
    options = ProducerSettings(retry_unknown=choice == "retry_unknown")
    partitions = PARTITIONS * len(site.brokers)
    deadline = time.monotonic() + limit_s * PATIENCE
    with (
        network,
        shell.Producer(site.settings, producer=options) as producer,
        Members(shell, site, group, tally) as members,
    ):
        wait(lambda: members.held == partitions, 90, f"{partitions} partitions held")
        producer.publish(WIDE)
        members.begin()
        network.begin()
        chunk = max(50, count // 1_000)
        produce(shell, producer, tally, chunk, resend=choice == "resend", deadline=deadline)
        network.calm()
        try:
            wait(lambda: not tally.missing, DRAIN_S, "every acknowledged record consumed")
        finally:
            members.end()
            tally.finish()
            story = tally.story(network.cuts, producer.stats.sent_again)
            print(f"\n{shell} {choice}: {story}")
    judge(tally, choice, producer.stats.sent_again, story)
    assert network.cuts > 2, story
    return tally


def judge(tally: Tally, choice: str, sent_again: int, story: str) -> None:
    assert tally.wrong == [], story
    assert tally.missing == 0, story
    doubled = tally.doubled
    if choice == "retry_unknown":
        assert sum(doubled.values()) <= sent_again, story
    else:
        assert doubled.keys() <= tally.resent, story
    for number in range(tally.count):
        assert tally.acknowledged[number] or tally.unknown[number], f"{number} was forgotten"


# -- tests ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("site", ["embedded"], indirect=True)
@pytest.mark.parametrize("choice", ["once", "resend", "retry_unknown"])
def test_thousands_of_records_survive_a_network_that_breaks(
    shell: Shell, site: Site, group: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = BadNetwork(monkeypatch, servers_of(site.settings, WIDE), every_s=0.2)
    exchange(shell, site, group, network, count=3_500, choice=choice, limit_s=60)


@pytest.mark.soak
@pytest.mark.timeout(LONG_S + 400)
@pytest.mark.parametrize(
    ("shell", "choice", "site"),
    [
        ("sync", "once", "embedded"),
        ("aio", "retry_unknown", "embedded"),
        pytest.param("sync", "retry_unknown", "genuine", marks=pytest.mark.real),
        pytest.param("aio", "resend", "genuine", marks=pytest.mark.real),
    ],
    indirect=["shell", "site"],
)
def test_a_million_records_survive_a_network_that_breaks(
    shell: Shell, site: Site, group: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = BadNetwork(monkeypatch, servers_of(site.settings, WIDE), every_s=3.0)
    exchange(shell, site, group, network, count=MILLION, choice=choice, limit_s=LONG_S)
