"""Range reads against a model of a broker, over thousands of random histories.

The model keeps the state that a broker keeps of a group (confirmed position, batch in flight,
lease, filter) and records fetches as genuine ones do; several partitions share its log. Each
history draws a mixture of lost connections (before or after a request took effect, noticed or not),
late requests of dead connections, timeouts, refusals, empty replies, crashes that give lost offsets
to other records, leases that end while the user is busy and are taken by others, and retention.
Every batch is compared with the log itself.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from tubemq_client import _pb, errors
from tubemq_client._core.batch import DecodePolicy, MessageBatch
from tubemq_client._core.effects import Await, Call, Now, Post, Sleep, Ticket, drive
from tubemq_client._core.identity import ClientIds, ReaderPool
from tubemq_client._core.range_read import RangeRead
from tubemq_client._core.read_stats import ReadPolicy, ReadStats
from tubemq_client._wire import methods
from tubemq_client._wire.payload import checksum, encode_payload
from tubemq_client.model import BrokerNode, OffsetRange, Partition

PARTITION = Partition(1, "histories", 0)
NODE = BrokerNode(1, "broker", 8123)
LEASE_MS = 30_000


class Entry(NamedTuple):
    """Index entry: the record's partition, stream id and message id."""

    partition: int
    stream: str
    number: int


@dataclass
class Group:
    """State of a group at one partition of a broker."""

    position: int = 0
    in_flight: int = 0
    owner: str = ""
    seen_at: int = 0
    streams: frozenset[str] = frozenset()


@dataclass
class Model:
    """One store of a broker. Offsets are multiples of 28, `first` and `stable` count entries."""

    chance: random.Random
    partitions: int
    window: int
    odd: float
    entries: list[Entry] = field(default_factory=list)
    first: int = 0
    stable: int = 0
    now: int = 0
    numbers: Any = field(default_factory=itertools.count)
    groups: dict[str, Group] = field(default_factory=dict)

    def append(self, count: int) -> None:
        for _ in range(count):
            partition = self.chance.randrange(self.partitions)
            self.entries.append(Entry(partition, self.chance.choice("ab"), next(self.numbers)))

    def crash(self) -> None:
        del self.entries[self.stable :]
        self.groups = {name: Group() for name in self.groups}
        self.append(self.chance.randrange(12))

    def expire_leases(self) -> None:
        for name, group in self.groups.items():
            if group.owner and self.now - group.seen_at > LEASE_MS:
                group.owner, group.in_flight = "", 0
                if not name.endswith(".e") and self.chance.random() < 0.3:
                    group.owner, group.seen_at = "another", self.now
                    group.position = 28 * self.chance.randrange(len(self.entries))

    def serve(self, method: methods.Method, request: Any) -> Any:
        self.expire_leases()
        group = self.groups.setdefault(request.groupName, Group())
        if method is methods.REGISTER_PARTITION and request.opType == methods.OP_REGISTER:
            return self._register(group, request)
        if group.owner != request.clientId:
            code = 401 if method is methods.COMMIT_OFFSET else 412 if group.owner else 411
            return _refusal(method, code)
        if method is methods.REGISTER_PARTITION:
            if request.readStatus == 0:
                group.position += group.in_flight
            group.owner, group.in_flight = "", 0
            return _pb.RegisterResponseB2C(success=True, errCode=200, errMsg="OK!", currOffset=-1)
        if method is methods.COMMIT_OFFSET:
            self._step(group, consumed=request.lastPackConsumed)
            return _pb.CommitOffsetResponseB2C(
                success=True, errCode=200, errMsg="OK!", currOffset=group.position
            )
        return self._fetch(group, request)

    @property
    def _end(self) -> int:
        return 28 * len(self.entries)

    def _register(self, group: Group, request: Any) -> Any:
        if group.owner not in ("", request.clientId):
            return _refusal(methods.REGISTER_PARTITION, 410)
        group.owner, group.seen_at = request.clientId, self.now
        group.streams = frozenset(request.filterCondStr)
        group.position = min(max(request.currOffset, 28 * self.first), self._end)
        group.in_flight = 0
        return _pb.RegisterResponseB2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            currOffset=group.position,
            maxOffset=self._end,
        )

    def _step(self, group: Group, *, consumed: bool) -> None:
        group.position += group.in_flight if consumed else 0
        group.in_flight = 0

    def _fetch(self, group: Group, request: Any) -> Any:
        group.seen_at = self.now
        if request.lastPackConsumed:
            self._step(group, consumed=True)
        if group.position >= self._end:
            group.position = self._end
            return _refusal(methods.GET_MESSAGES, 404, "The request offset reached maxOffset!")
        group.position = max(group.position, 28 * self.first)
        if self.chance.random() < self.odd:
            return _refusal(methods.GET_MESSAGES, self.chance.choice([404, 404, 452, 500, 503, 0]))
        return self._read(group, request.partitionId)

    def _read(self, group: Group, partition: int) -> Any:
        start = group.position // 28
        scanned = self.entries[start : start + self.chance.randint(1, self.window)]
        reply = _pb.GetMessageResponseB2C(
            success=True, errCode=200, errMsg="OK!", currOffset=group.position
        )
        for entry in scanned:
            if entry.partition == partition and entry.stream in (group.streams or "ab"):
                data, flag = encode_payload(b"%d" % entry.number, stream_id=entry.stream)
                sum_ = checksum(data)
                reply.messages.add(
                    messageId=entry.number, checkSum=sum_, flag=flag, payLoadData=data
                )
        if reply.messages:
            group.in_flight = 28 * len(scanned)
            return reply
        group.position += 28 * len(scanned)
        found_nothing = _refusal(methods.GET_MESSAGES, 404, "Can't found Message by index!")
        return self.chance.choice([reply, found_nothing])


def _refusal(method: methods.Method, code: int, text: str = "no") -> Any:
    if method.id == methods.GET_MESSAGES.id:
        return _pb.GetMessageResponseB2C(success=False, errCode=code, errMsg=text, currOffset=-1)
    return method.response(success=False, errCode=code, errMsg=text)


@dataclass(eq=False)
class Line:
    """Connection: requests not served yet, with their serials, and replies that have arrived."""

    waiting: list[tuple[int, methods.Method, Any]] = field(default_factory=list)
    came: dict[int, Any] = field(default_factory=dict)
    broken: bool = False


@dataclass
class History:
    """Driver of one read through one random history, which compares deliveries with the log."""

    seed: int
    silent: bool = False
    hasty: bool = False
    retention: bool = False

    def __post_init__(self) -> None:
        chance = self.chance = random.Random(self.seed)
        self.trouble = chance.choice([0.0, 0.02, 0.05, 0.15])
        odd = chance.choice([0.0, 0.0, 0.05, 0.2])
        self.model = Model(chance, chance.choice([1, 1, 2, 4]), chance.choice([3, 8, 20]), odd)
        self.model.append(chance.randint(1, 160))
        self.model.stable = len(self.model.entries)
        one, other = sorted(chance.randint(0, self.model.stable) for _ in range(2))
        if chance.random() < 0.3:
            other = self.model.stable
        elif chance.random() < 0.1:
            other = min(one + 1, self.model.stable)
        self.range = OffsetRange(PARTITION, 28 * one, 28 * other)
        self.model.append(chance.randrange(40))
        self.streams = frozenset(chance.choice(["", "", "a"]))
        self.stop_after = chance.randrange(6) if chance.random() < 0.1 else 1_000_000
        self.troubles_left = 12
        self.line = Line()
        self.old_lines: list[Line] = []
        self.delivered: list[int] = []
        self.reached = self.range.start
        self.stats = ReadStats()
        self.fetches = 0
        self.serials = itertools.count()
        self.effects_left = 20_000

    def run(self) -> None:
        read = RangeRead(
            self.range,
            NODE,
            pool=ReaderPool("group", 3),
            ids=ClientIds("127.0.0.1", 1, 1, itertools.count()),
            decode=DecodePolicy(filters=self.streams),
            policy=ReadPolicy("skip" if self.retention else "fail", deadline_ms=3_600_000),
            stats=self.stats,
        )
        finished = self._drive(read.conversation())
        self._drive(read.release())
        end = self.range.end if finished else self.reached
        self._compare(self.delivered, self.range.start, end, final=finished)
        assert self.stats.records == len(self.delivered)
        assert self.stats.fetches == self.fetches

    def _compare(self, numbers: list[int], start: int, end: int, *, final: bool) -> None:
        """Compare with the records of `[start, end)`.

        Only records that retention has removed may be missing, and the gaps must report them in the
        end.
        """
        expected = {
            entry.number: 28 * n
            for n, entry in enumerate(self.model.entries[: end // 28])
            if 28 * n >= start and entry.partition == 0 and entry.stream in (self.streams or "ab")
        }
        assert numbers == [number for number in expected if number in set(numbers)]
        for offset in (expected[number] for number in expected.keys() - set(numbers)):
            assert offset < 28 * self.model.first
            if final:
                assert any(gap.start <= offset < gap.end for gap in self.stats.gaps)

    def _drive(self, conversation: Any) -> bool:
        """Return whether the read reached its end; otherwise the user stopped."""
        for batch in drive(conversation, self._perform):
            self._take(batch)
            self.stop_after -= 1
            if self.stop_after < 0:
                conversation.close()
                return False
        return True

    def _take(self, batch: MessageBatch) -> None:
        numbers = [message.message_id for message in batch.messages()]
        assert batch.end is not None
        assert self.reached <= batch.start < batch.end <= self.range.end
        self._compare(numbers, batch.start, batch.end, final=False)
        if batch.exact:
            held = self.model.entries[batch.start // 28 : batch.end // 28]
            assert numbers == [entry.number for entry in held]
        self.delivered += numbers
        self.reached = batch.end
        self._meddle(0.5 if self.trouble else 0)
        if self.trouble and self.chance.random() < 0.1:
            self.model.now += 40_000  # the user is busy
        for _ in range(self.chance.randrange(3)):
            self._serve_next(self.line)

    def _perform(self, effect: Any) -> Any:
        self.effects_left -= 1
        assert self.effects_left >= 0, "the conversation does not end"
        match effect:
            case Now():
                return self.model.now
            case Sleep(ms):
                self.model.now += ms
                self._meddle(self.trouble)
            case Post(address, method, request):
                return self._post(address, method, request)
            case Await(ticket):
                return self._wait(ticket)
            case Call(address, method, request):
                return self._wait(self._post(address, method, request))
        return None

    def _post(self, address: Any, method: methods.Method, request: Any) -> Ticket:
        probing = ".p" in request.groupName  # a short period with more faults
        self._meddle(0.3 if self.trouble and probing else self.trouble)
        self.fetches += method.id == methods.GET_MESSAGES.id and ".r" in request.groupName
        if self.line.broken:
            self.line = Line()
        serial = next(self.serials)
        self.line.waiting.append((serial, method, request))
        return Ticket(address, method, (self.line, serial))

    def _wait(self, ticket: Ticket) -> Any:
        line, serial = ticket.handle
        if not (self.silent and serial in line.came):
            self._meddle(self.trouble)
        if self._in_trouble(self.trouble / 3) and not line.broken:
            line.waiting = [other for other in line.waiting if other[0] != serial]
            line.came.pop(serial, None)
            raise errors.RpcTimeout("no answer")  # it was dropped, or is never answered
        while serial not in line.came:
            if line.broken:
                raise errors.ConnectionLost("cut")
            self._serve_next(line)
        reply = line.came.pop(serial)
        return ticket.method.response.FromString(reply.SerializeToString())

    def _serve_next(self, line: Line) -> None:
        if line.waiting:
            fetches = [method.id == methods.GET_MESSAGES.id for _, method, _ in line.waiting[:2]]
            late = self.hasty and fetches == [True, True] and self.chance.random() < 0.3
            serial, method, request = line.waiting.pop(1 if late else 0)
            line.came[serial] = self.model.serve(method, request)

    def _in_trouble(self, share: float) -> bool:
        if self.troubles_left and self.chance.random() < share:
            self.troubles_left -= 1
            return True
        return False

    def _meddle(self, share: float) -> None:
        if self.old_lines and self.chance.random() < 0.3:
            self._serve_next(self.chance.choice(self.old_lines))
        if self.chance.random() < 0.1:
            self.model.append(self.chance.randrange(4))
        if not self._in_trouble(share):
            return
        kind = self.chance.choice(["cut", "cut", "crash", "flush", "expire"])
        if kind == "flush":
            self.model.stable = len(self.model.entries)
            if self.retention:
                self.model.first = self.chance.randint(self.model.first, self.model.stable)
        elif kind == "expire":
            self.model.now += LEASE_MS + 1
        else:
            self._cut(crash=kind == "crash")

    def _cut(self, *, crash: bool) -> None:
        for _ in range(self.chance.randrange(3)):
            self._serve_next(self.line)
        self.line.broken = True
        if not (self.silent and self.chance.random() < 0.8):
            self.line.came.clear()
        if crash:
            self.model.crash()
            self.old_lines.clear()
            self.line.waiting.clear()
        else:
            self.old_lines.append(self.line)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("hasty", [False, True])
@pytest.mark.parametrize("retention", [False, True])
def test_every_history_delivers_each_record_of_the_range_once(
    silent: bool, hasty: bool, retention: bool
) -> None:
    for seed in range(600):
        try:
            History(seed, silent, hasty, retention).run()
        except BaseException as error:
            error.add_note(f"{seed=} {silent=} {hasty=} {retention=}")
            raise
