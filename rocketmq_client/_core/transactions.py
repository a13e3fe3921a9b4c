"""Transactions of a producer: half records, their ends, and the brokers' questions about open ones.

No reader sees a half record before it is committed. A broker that hears neither asks a producer of
the group (39) whose heartbeat it knows. It asks about a copy of the half, so a half that was
committed can be asked about again: its copy is then rolled back, lest the record be stored twice. A
5.x broker that is killed also forgets the ends of its last seconds, which another process may have
sent: before a commit the broker is asked whether it has the record already.

Source: `docs/rocketmq-protocol/wire.md#transactions`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_client import errors
from rocketmq_client._core.ends import require_address
from rocketmq_client._core.groups import heartbeat
from rocketmq_client._core.pulling import message_of, plain_body
from rocketmq_client._wire import codes
from rocketmq_client._wire.properties import UNIQ_KEY, find_property
from rocketmq_client._wire.records import parse_record, parse_records
from rocketmq_client.model import HalfRecord, Queue
from tubemq_client._core.effects import AwaitAny, Call, Now

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_client._core.cluster import Cluster
    from rocketmq_client._core.sending import Sending
    from rocketmq_client._wire.commands import Command
    from rocketmq_client.model import Address, Message, OutgoingMessage
    from tubemq_client._core.effects import Conversation

__all__ = ["Check", "Transactions"]

_ENDS: Final = {"commit": "8", "rollback": "12"}
_HEARTBEAT_MS: Final = 30_000
_LOOK_MS: Final = 1_000
"""Time between looks for questions: a blocking client reads an idle connection only then."""

_REMEMBERED: Final = 100_000
"""Ends of transactions that are remembered, for brokers that ask about one again."""


class Check(NamedTuple):
    """Question of a broker about an open half record."""

    message: Message
    fields: dict[str, str]


class Transactions:
    """Transactions of one producer. `wake` is called when a broker has asked."""

    def __init__(
        self,
        cluster: Cluster,
        sending: Sending,
        client_id: str,
        topics: Sequence[str],
        wake: Callable[[], object],
    ) -> None:
        if not topics:
            raise errors.ConfigError("give at least one topic", subject="topics")
        self._cluster, self._sending, self._client_id = cluster, sending, client_id
        self._topics = tuple(topics)
        self._wake = wake
        self._asked: deque[Command] = deque()
        self._ends: dict[str, str] = {}
        self._open: set[str] = set()
        self._failed: set[str] = set()
        self._ending: set[str] = set()
        self._connected = False
        self._heard: dict[Address, int] = {}
        self._brokers: dict[Address, str] = {}

    def notice(self, request: Command) -> None:
        """Take a request of a broker, in the thread that reads."""
        if request.code == codes.CHECK_TRANSACTION_STATE.code:
            self._asked.append(request)
            self._wake()

    def connected(self) -> None:
        """Note a new connection: its broker does not know this producer there."""
        self._connected = True

    def round(self) -> Conversation[int]:
        """Make this producer known to the brokers of its topics and read their questions; return
        the time until it is due again. Raises `errors.UnknownTopic`."""
        now = yield Now()
        addresses: set[Address] = set()
        for topic in self._topics:
            route = yield from self._cluster.route(topic)
            addresses.update(route.masters().values())
            self._brokers.update({address: name for name, address in route.masters().items()})
        known = {} if self._connected else self._heard
        self._connected = False
        self._heard = {each: known.get(each, 0) for each in addresses}
        for address in [each for each, due in self._heard.items() if due <= now]:
            try:
                yield from heartbeat(
                    self._cluster, [address], self._client_id, producers=[self._sending.group]
                )
                self._heard[address] = now + _HEARTBEAT_MS
            except (errors.NetworkError, errors.Busy):
                self._heard[address] = now + _LOOK_MS
        for address in list(self._heard):
            try:
                yield AwaitAny(address, (), 1)
            except errors.NetworkError:
                self._heard[address] = 0
        return int(max(1, min([*self._heard.values(), now + _LOOK_MS]) - now))

    def begin(
        self, topic: str, message: OutgoingMessage, queue: Queue | None
    ) -> Conversation[HalfRecord]:
        """Send a half record."""
        if topic not in self._topics:
            raise errors.ConfigError(
                f"topic {topic!r} is not among {', '.join(self._topics)}: its brokers could not "
                "ask this producer",
                subject="topics",
            )
        receipt = yield from self._sending.send_half(topic, message, queue)
        self._open.add(receipt.message_id)
        return HalfRecord(
            receipt.queue, receipt.message_id, receipt.offset, int(receipt.offset_id[-16:], 16)
        )

    def end(self, half: HalfRecord, decision: str) -> Conversation[None]:
        """Commit or roll back a half record. Raises `errors.ConfigError` for one that is not
        open."""
        name = half.message_id
        if name in self._open:
            self._open.discard(name)
        elif self._ends.get(name) != decision or name not in self._failed:
            raise errors.ConfigError(
                f"the transaction {name} is not open: {self._ends.get(name, 'unknown here')}",
                subject="transaction",
            )
        self._remember(name, decision)
        self._ending.add(name)
        fields = {
            "topic": half.queue.topic,
            "producerGroup": self._sending.group,
            "tranStateTableOffset": str(half.offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": _ENDS[decision],
            "fromTransactionCheck": "false",
            "msgId": name,
            "transactionId": name,
            "bname": half.queue.broker,
        }
        try:
            route = yield from self._cluster.route(half.queue.topic)
            address = require_address(route, half.queue.broker)
            yield Call(address, codes.END_TRANSACTION, self._cluster.request(fields))
        except BaseException:
            self._failed.add(name)
            self._heard.clear()  # a broker that comes back asks only those that it knows
            self._wake()
            raise
        else:
            self._failed.discard(name)
        finally:
            self._ending.discard(name)

    def next_check(self) -> Check | None:
        """Return a question, None without one."""
        while self._asked:
            request = self._asked.popleft()
            record, _ = parse_record(request.body, 0)
            broker = self._brokers.get(record.store_host, request.fields.get("bname", ""))
            queue = Queue(broker, record.topic, record.queue_id)
            return Check(message_of(queue, record, plain_body(record, queue)), request.fields)
        return None

    def known_end(self, check: Check) -> str | None:
        """Return the answer to a question whose half this producer has ended: "commit" and
        "rollback" if the broker may not know that, "rollback" of a copy if it does."""
        name = check.fields.get("transactionId", "")
        decision = self._ends.get(name)
        if decision is None or name in self._failed:
            return decision
        return "rollback"

    def answer(self, check: Check, decision: str | None) -> Conversation[None]:
        """Answer a broker's question; None leaves the half open, and the broker asks again."""
        name = check.fields.get("transactionId", "")
        if name in self._ending:
            return  # the producer is ending it now
        decision = self.known_end(check) or decision
        if decision is None:
            return
        self._open.discard(name)
        if name not in self._ends:
            self._remember(name, decision)
            self._failed.add(name)
        self._ending.add(name)
        fields = {
            "topic": check.message.queue.topic,
            "producerGroup": self._sending.group,
            "tranStateTableOffset": check.fields.get("tranStateTableOffset", ""),
            "commitLogOffset": check.fields.get("commitLogOffset", ""),
            "fromTransactionCheck": "true",
            "msgId": check.fields.get("msgId", name),
            "transactionId": name,
            "bname": check.message.queue.broker,
        }
        try:
            route = yield from self._cluster.route(check.message.queue.topic)
            address = require_address(route, check.message.queue.broker)
            if decision == "commit" and (yield from self._is_readable(check, name, address)):
                decision = "rollback"
            fields["commitOrRollback"] = _ENDS[decision]
            yield Call(address, codes.END_TRANSACTION, self._cluster.request(fields))
        except (errors.NetworkError, errors.ServerError):
            return  # it asks again
        finally:
            self._ending.discard(name)
        self._failed.discard(name)

    def _is_readable(self, check: Check, name: str, address: Address) -> Conversation[bool]:
        """Return whether the broker finds the committed record by its id. One that cannot tell gets
        the commit, as from Java's producers. Raises `errors.NetworkError`."""
        queue = check.message.queue
        query = {
            "topic": queue.topic,
            "key": name,
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": str(2**63 - 1),
            "_UNIQUE_KEY_QUERY": "true",
            "bname": queue.broker,
        }
        try:
            answer = yield from self._cluster.call(address, codes.QUERY_MESSAGE, query)
            found = parse_records(answer.body)
        except (errors.ServerError, errors.ProtocolViolation):
            return False
        key = UNIQ_KEY.encode()
        return any(
            each.topic == queue.topic and find_property(each.properties, key) == name.encode()
            for each in found
        )

    def _remember(self, name: str, decision: str) -> None:
        self._ends[name] = decision
        if len(self._ends) > _REMEMBERED:
            oldest = next(iter(self._ends))
            del self._ends[oldest]
            self._failed.discard(oldest)
