"""Members of a group on a simulated clock: requests take time, members join, leave and die.

Every loop of a member is a process: a generator of effects. The world performs them in the order of
simulated time, so members interleave between any two requests, and a seed decides everything. It
checks the invariants of every schedule: no partition with two owners, no confirmed record delivered
again, and, at the end, no unconfirmed record.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tubemq_client import ClientSettings, Partition, ReceivedBatch, _pb, errors
from tubemq_client._core.balance import BalancedSession
from tubemq_client._core.effects import (
    Await,
    Call,
    Deliver,
    Forget,
    Now,
    Post,
    Reach,
    Sleep,
    Ticket,
    WallClock,
)
from tubemq_client._core.master import MasterSession
from tubemq_client._wire import methods
from tubemq_client.embedded import ReadLimits, Switches, TopicSpec
from tubemq_client.model import ConsumerSettings
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 12
RPC_TIMEOUT_MS = 10_000
POLL_MS = 500
"""Period in which a member's loop may miss a notification: processes here have no notifiers."""

READS = ReadLimits(first_fetch_bytes=300, fetch_bytes=300, memory_scan=(5, 10))

Process = Generator[Any, Any, None]


@dataclass(eq=False)
class Running:
    """One process of a member (or of the world itself). `dead`: it is never resumed."""

    process: Process
    member: Member | None = None
    dead: bool = False


@dataclass(eq=False)
class Member:
    name: str
    session: BalancedSession
    running: list[Running] = field(default_factory=list)
    alive: bool = True


@dataclass
class World:
    """Simulated cluster.

    `loss` is the probability that a reply is lost or a connection breaks, `late` that a broker
    serves a request after its sender has given it up.
    """

    seed: int
    loss: float = 0.0
    late: float = 0.0
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        switches = Switches(
            reads=READS, flush_interval_ms=None, unflushed_records=1, balance_seed=self.seed
        )
        topic = TopicSpec(TOPIC, stores=2, partitions=PARTITIONS // 2)
        self.mq = MemoryTubeMQ(1, [topic], switches=switches)
        self.members: list[Member] = []
        self.sent: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        self.unsure: set[bytes] = set()
        self.redelivered = 0
        self.delivered: set[bytes] = set()
        self.most_held = self._watched = 0
        self.story: list[str] = []
        self._numbers = itertools.count(1)
        self._queue: list[tuple[int, int, Running, Any, errors.TubeMQError | None]] = []
        self._begin(Running(self._server()))

    # -- what a schedule does -------------------------------------------------------------------

    def join(self) -> Member:
        name = f"m{next(self._numbers)}"
        settings = ClientSettings(masters=(self.mq.master_address,), heartbeat_period_ms=2_000)
        session = BalancedSession(
            MasterSession(settings.masters),
            GROUP,
            f"{GROUP}_127.0.0.1-1-1-{name}",
            {TOPIC: ()},
            settings,
            self.consumer,
        )
        member = Member(name, session)
        self.members.append(member)
        self._note(f"{name} joins")
        self._begin(Running(self._live(member), member))
        return member

    def leave(self, member: Member) -> None:
        self._note(f"{member.name} leaves")
        member.alive = False
        self._begin(Running(member.session.close(), None))  # type: ignore[arg-type]
        self._stop(member)

    def die(self, member: Member) -> None:
        """Stop the member's processes wherever they are, without notice."""
        self._note(f"{member.name} dies")
        member.alive = False
        self._stop(member)

    def send(self, count: int) -> None:
        for _ in range(count):
            body = b"r%06d" % next(self._numbers)
            number = self.random.randrange(PARTITIONS)
            store, part = divmod(number, PARTITIONS // 2)
            request = _pb.SendMessageRequestP2B(
                clientId="producer",
                topicName=TOPIC,
                partitionId=store * 10_000 + part,
                data=body,
                flag=0,
                checkSum=-1,
                sentAddr=0,
            )
            address = self.mq.node().address
            traced = TracedRequest(self.mq.clock(), address, methods.SEND_MESSAGE.name, request)
            assert self.mq.reply(traced).success
            self.sent.add(body)

    def run(self, ms: int) -> None:
        """Let `ms` pass."""
        end = self.mq.clock() + ms
        while self._queue and self._queue[0][0] <= end:
            at, _, running, answer, failure = heapq.heappop(self._queue)
            self.mq.clock.advance(at - self.mq.clock())
            if not running.dead:
                self._resume(running, answer, failure)
                self._watch()
        self.mq.clock.advance(end - self.mq.clock())

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.alive]

    @property
    def missing(self) -> set[bytes]:
        return self.sent - self.confirmed - self.unsure

    # -- what must hold ---------------------------------------------------------------------------

    def _watch(self) -> None:
        count = sum(len(member.session.table.held) for member in self.alive)
        if count == self._watched:
            return  # one event changes one member
        self._watched = count
        owners: dict[Partition, str] = {}
        for member in self.alive:
            for partition in member.session.table.held:
                other = owners.setdefault(partition, member.name)
                assert other == member.name, self.tell(
                    f"{partition} is held by {other} and {member.name}"
                )
        self.most_held = max(self.most_held, len(owners))

    def _received(self, member: Member, bodies: list[bytes]) -> None:
        again = self.confirmed.intersection(bodies)
        assert not again, self.tell(f"{member.name} got confirmed records again: {sorted(again)}")
        self.redelivered += len(self.delivered.intersection(bodies))
        self.delivered.update(bodies)

    def tell(self, what: str) -> str:
        return f"seed {self.seed}: {what}\n" + "\n".join(self.story[-40:])

    def _note(self, what: str) -> None:
        self.story.append(f"{self.mq.clock() - 1_700_000_000_000:8d} {what}")

    # -- processes --------------------------------------------------------------------------------

    def _server(self) -> Process:
        for step in itertools.count():
            self.mq.elapse(0)
            if step % 6 == 0:
                self.mq.balance()
            yield Sleep(500)

    def _live(self, member: Member) -> Process:
        yield from member.session.open()
        for process in (
            self._heartbeat(member.session.master_heartbeat_if_due),
            self._heartbeat(member.session.broker_heartbeats_if_due),
            self._rebalance(member),
            self._consume(member),
            self._consume(member),
        ):
            self._begin(Running(process, member))

    def _heartbeat(self, beat: Any) -> Process:
        while True:
            wait = yield from beat()
            yield Sleep(min(wait, POLL_MS))

    def _rebalance(self, member: Member) -> Process:
        while True:
            yield from member.session.rebalance()
            yield Sleep(POLL_MS)

    def _consume(self, member: Member) -> Process:
        fetching = member.session.fetching
        while True:
            result = yield from fetching.fetch()
            if not isinstance(result, ReceivedBatch):
                yield Sleep(POLL_MS if result.wait_ms is None else min(result.wait_ms, POLL_MS))
                continue
            bodies = [message.body for message in result.messages()]
            self._received(member, bodies)
            yield Sleep(self.random.choice((0, 20, 500, 2_000, 6_000)))
            keep = self.random.random() < 0.9
            self.unsure.update(bodies if keep else ())
            try:
                yield from fetching.confirm(result, consumed=keep)
            except (errors.StaleBatch, errors.ServerError):
                self.unsure.difference_update(bodies)
            except (errors.NetworkError, errors.RemoteException):
                pass
            else:
                self.unsure.difference_update(bodies)
                self.confirmed.update(bodies if keep else ())

    # -- effects ----------------------------------------------------------------------------------

    def _begin(self, running: Running) -> None:
        if running.member is not None:
            running.member.running.append(running)
        self._at(0, running, None)

    def _stop(self, member: Member) -> None:
        for running in member.running:
            running.dead = True

    def _at(
        self, ms: int, running: Running, answer: Any, failure: errors.TubeMQError | None = None
    ) -> None:
        at = self.mq.clock() + ms
        heapq.heappush(self._queue, (at, next(self._numbers), running, answer, failure))

    def _resume(self, running: Running, answer: Any, failure: errors.TubeMQError | None) -> None:
        try:
            if failure is not None:
                effect = running.process.throw(failure)
            else:
                effect = running.process.send(answer)
        except StopIteration:
            return
        except errors.TubeMQError as error:
            self._note(f"a process of {running.member and running.member.name} ends: {error}")
            return
        self._perform(running, effect)

    def _perform(self, running: Running, effect: Any) -> None:
        if isinstance(effect, Sleep):
            self._at(effect.ms, running, None)
        elif isinstance(effect, Now | WallClock):
            self._at(0, running, self.mq.clock())
        elif isinstance(effect, Deliver):
            value = effect.value
            self._note(f"{running.member and running.member.name} {value.kind} {_short(value)}")
            self._at(self.random.choice((0, 0, 300)), running, None)
        elif isinstance(effect, Post):
            self._at(0, running, Ticket(effect.address, effect.method, self._send(effect)))
        elif isinstance(effect, Await):
            self._wait(running, effect.ticket.handle, effect.patience_ms)
        elif isinstance(effect, Call):
            self._wait(running, self._send(effect), None)
        elif isinstance(effect, Reach | Forget):
            self._at(0, running, isinstance(effect, Reach))
        else:
            raise TypeError(effect)

    def _send(self, effect: Post | Call) -> Sent:
        sent = Sent(TracedRequest(0, effect.address, effect.method.name, effect.request))
        self._begin(Running(self._travel(sent)))
        return sent

    def _wait(self, running: Running, sent: Sent, patience_ms: int | None) -> None:
        """Resume when there is an answer, or when patience ends."""
        if sent.settled:
            self._at(0, running, sent.reply, sent.failure)
            return
        sent.waiting = running
        if patience_ms is not None:
            self._begin(Running(self._lose_patience(sent, running, patience_ms)))

    def _lose_patience(self, sent: Sent, running: Running, ms: int) -> Process:
        yield Sleep(ms)
        if sent.waiting is running and not sent.settled:
            sent.waiting = None
            self._at(0, running, None)

    def _travel(self, sent: Sent) -> Process:
        """Deliver or lose the request, and then its reply."""
        yield Sleep(self._latency())
        chance = self.random.random()
        if chance < self.loss / 2:
            self._settle(sent, None, errors.ConnectionLost("cut before"))
            return
        at_broker = sent.asked.address == self.mq.node().address
        if self.late and at_broker and self.random.random() < self.late:
            self._begin(Running(self._serve_late(sent.asked)))
            yield Sleep(RPC_TIMEOUT_MS)
            self._settle(sent, None, errors.RpcTimeout("late"))
            return
        try:
            reply = self.mq.reply(sent.asked)
        except errors.TubeMQError as error:
            yield Sleep(self._latency())
            self._settle(sent, None, error)
            return
        if reply is None or chance < self.loss:
            yield Sleep(RPC_TIMEOUT_MS)
            self._settle(sent, None, errors.RpcTimeout("lost"))
        else:
            yield Sleep(self._latency())
            self._settle(sent, reply, None)

    def _settle(self, sent: Sent, reply: Any, failure: errors.TubeMQError | None) -> None:
        sent.settled, sent.reply, sent.failure = True, reply, failure
        if sent.waiting is not None:
            self._at(0, sent.waiting, reply, failure)

    def _serve_late(self, traced: TracedRequest) -> Process:
        yield Sleep(RPC_TIMEOUT_MS + self.random.choice((0, 5, 300, 2_000)))
        self.mq.reply(traced)

    def _latency(self) -> int:
        return self.random.choice((0, 1, 1, 2, 5, 40, 150))


@dataclass(eq=False)
class Sent:
    """Request in flight, and its outcome."""

    asked: TracedRequest
    settled: bool = False
    reply: Any = None
    failure: errors.TubeMQError | None = None
    waiting: Running | None = None


def _short(event: Any) -> str:
    return " ".join(partition.key for partition in event.partitions)
