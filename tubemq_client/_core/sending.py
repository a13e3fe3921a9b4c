"""Conversations of a producer: encode records, post them in groups, take receipts, send again.

RPC 13 at brokers, along the routes of `routes`. Brokers acknowledge records from memory; a crash
may lose them. Code that runs for every record is written for speed: run
`python -m tools.benchmarks.send_cpu` before and after a change.

Sources: `docs/protocol/wire.md#record-bytes-payload`, `docs/protocol/errors.md` (what a code means
for a record).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.effects import Await, AwaitAll, Deliver, Now, Post, PostAll, Sleep
from tubemq_client._core.routes import RouteSession
from tubemq_client._core.send_batch import (
    InFlightRecord,
    Record,
    SendBatch,
    chunks,
    outcome_unknown,
    with_bytes,
)
from tubemq_client._wire import methods
from tubemq_client._wire.payload import encode_payload
from tubemq_client._wire.sending import SendTemplate
from tubemq_client.model import Partition, SendReceipt

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation

__all__ = ["InFlightRecord", "ProducerSession", "Record"]

_GROUPS = 4
"""Number of groups in which replies to a window of records are awaited, so that some records are
always in flight."""

_UNKNOWN_RETRIES = 3

_UNKNOWN = (errors.NetworkError, errors.RemoteException, errors.ProtocolViolation)
"""Failures instead of a reply: the record may or may not be stored."""

_READABLE_BEYOND_LIMIT = 10 * 1024 - 52
"""Bytes by which a record may exceed the cluster's limit and still be read from memory. It must not
take more than the limit and 10 KiB, with 52 bytes of overhead (`MsgMemStore.getMessages`,
`ClusterConfigHolder`; measured in tests/system/real/test_large_records.py)."""

_NOT_STORED = (errors.Overflow, errors.ServiceUnavailable, errors.Forbidden)
"""Refusals that prove that the broker did not store the record."""


@dataclass(slots=True)
class ProducerSession(RouteSession):
    """Session that sends records along the routes of one producer."""

    def send_one(self, topic: str, record: Record, sent_address: int) -> Conversation[SendReceipt]:
        """Send one record and wait for its receipt."""
        flight = self.encode(topic, record, sent_address, (yield Now()))
        yield from self._post_kept(flight)
        return (yield from self.finish(flight))

    def send_all(
        self, topic: str, records: Iterable[Record], sent_address: int, in_flight: int
    ) -> Conversation[None]:
        """Send every record with up to `in_flight` unanswered; delivers lists of receipts in order.

        A list or tuple is written in groups. Records of other iterables are taken one by one,
        because the next may take long to arrive, and the driver may delay each for some
        milliseconds to write it with others. Raises the first failure in the order of records.
        """
        yield from self._window(topic, records, sent_address, in_flight, keep=False)

    def send_each(
        self, topic: str, records: Iterable[Record], sent_address: int, in_flight: int
    ) -> Conversation[None]:
        """Send every record like `send_all`, but continue after failures.

        Delivers lists of pairs: a receipt or an error for each record, and the size of its body.
        """
        yield from self._window(topic, records, sent_address, in_flight, keep=True)

    def complete(self, batch: SendBatch) -> Conversation[None]:
        """Deliver a receipt or an error for each record in flight, like `send_each`."""
        yield from self._finish_batches([batch], keep=True)

    def send_together(self, flights: Sequence[InFlightRecord]) -> Conversation[None]:
        """Send records together and deliver their outcomes."""
        yield from self.complete((yield from self.post_all(SendBatch(flights))))

    def _window(
        self,
        topic: str,
        records: Iterable[Record],
        sent_address: int,
        in_flight: int,
        *,
        keep: bool,
    ) -> Conversation[None]:
        waiting: deque[SendBatch] = deque()
        unanswered, group = 0, max(1, in_flight // _GROUPS)
        singly = not isinstance(records, list | tuple)
        for chunk in _chunks(records, group):
            now = yield Now()
            batch = SendBatch([self._encoded(topic, record, sent_address, now) for record in chunk])
            yield from self._post_soon(batch) if singly else self._post_together(batch)
            waiting.append(batch)
            unanswered += len(chunk)
            if unanswered > in_flight - len(chunk):
                finishing = _take_batches(waiting, group)
                unanswered -= sum(len(batch.flights) for batch in finishing)
                yield from self._finish_batches(finishing, keep=keep)
        while waiting:
            yield from self._finish_batches(_take_batches(waiting, group), keep=keep)

    def _finish_batches(self, batches: Sequence[SendBatch], *, keep: bool) -> Conversation[None]:
        """Take the replies of all these batches, then deliver the outcome of each record.

        A record that must be sent again does not delay the receipts before it.
        """
        yield from self._gather(batches)
        ready: list[Any] = []
        for flight in chain.from_iterable(batch.flights for batch in batches):
            outcome: SendReceipt | errors.TubeMQError | None = flight.receipt
            if outcome is None:
                if ready:
                    yield Deliver(ready)
                    ready = []
                try:
                    outcome = yield from self.finish(flight)
                except errors.TubeMQError as error:
                    if not keep:
                        raise
                    outcome = error
            ready.append((outcome, len(flight.record.body)) if keep else outcome)
        yield Deliver(ready)

    def _gather(self, batches: Sequence[SendBatch]) -> Conversation[None]:
        posted = [each for batch in batches for each in batch.posted]
        replies = yield AwaitAll([ticket for ticket, _ in posted])
        now = yield Now()
        flights = chain.from_iterable(group for _, group in posted)
        for flight, reply in zip(flights, replies, strict=True):
            flight.reply, flight.ticket = reply, None
            flight.receipt = self._receipt(flight, reply, now)

    def encode(self, topic: str, record: Record, sent_address: int, now: int) -> InFlightRecord:
        """Return the record's bytes with its destination; sends nothing.

        Raises `errors.ConfigError` for a record that no broker would take, `errors.UnknownTopic`
        for a topic without routes.
        """
        if record.body.__class__ is not bytes:
            record = with_bytes(record)
        if not record.body:
            raise errors.ConfigError("body is empty", subject="record")
        try:
            data, flag = encode_payload(
                record.body, record.attributes, stream_id=record.stream_id, msg_time=record.msg_time
            )
        except ValueError as error:
            raise errors.ConfigError(str(error).split("; "), subject="record") from None
        partition = self._choose(topic, record, now)
        limit = self.limits.get(topic) or self.default_limit
        if len(data) > min(limit, self.default_limit):
            _check_record_size(
                topic, len(data), limit, self.default_limit, self.settings.large_records
            )
        return InFlightRecord(topic, record, sent_address, partition, data, flag, now)

    def finish(self, flight: InFlightRecord) -> Conversation[SendReceipt]:
        """Return the receipt of a record in flight.

        A record that was certainly not stored (a refusal for overflow or by a broker that cannot
        write, a connection that broke too early) is sent again, to another broker if its partition
        is free. An unknown outcome (no answer, connection lost) is raised, because sending again
        could store the record twice; `retry_unknown` sends it again nevertheless.
        """
        try:
            if flight.failure is not None:
                raise flight.failure
            while True:
                failure = yield from self._outcome(flight)
                if isinstance(failure, SendReceipt):
                    return failure
                yield from self._resend(flight, failure)
        except errors.TubeMQError as error:
            self.stats.failure(error)
            raise

    def _encoded(self, topic: str, record: Record, sent_address: int, now: int) -> InFlightRecord:
        """Encode a record like `encode`, but keep its failure until `finish` raises it in order."""
        if not isinstance(record, Record):
            kind, record = type(record).__name__, Record(b"")
            problem = f"it is of type {kind}, not a Record; write Record(body)"
            failure = errors.ConfigError(problem, subject="record")
            no_partition = Partition(-1, topic, -1)
            return InFlightRecord(
                topic, record, sent_address, no_partition, b"", 0, now, failure=failure
            )
        try:
            return self.encode(topic, record, sent_address, now)
        except errors.TubeMQError as error:
            if record.body.__class__ is not bytes:
                record = record._replace(body=b"")
            no_partition = Partition(-1, topic, -1)
            return InFlightRecord(
                topic, record, sent_address, no_partition, b"", 0, now, failure=error
            )

    def post_all(self, batch: SendBatch) -> Conversation[SendBatch]:
        """Send records, those of one broker together; return the batch.

        Failures are kept in the records, and `finish` raises them.
        """
        try:
            yield from self._post_together(batch)
        except Exception as error:  # noqa: BLE001 - records already posted have not failed
            return batch.failed(error)
        return batch

    def _post_soon(self, batch: SendBatch) -> Conversation[None]:
        """Send a single record; the driver may delay it to write it with the next ones."""
        (flight,) = batch.flights
        if flight.failure is None:
            yield from self._post_group(flight.partition.broker_id, batch.flights, batch, soon=True)

    def _post_together(self, batch: SendBatch) -> Conversation[None]:
        by_broker: dict[int, list[InFlightRecord]] = {}
        for flight in batch.flights:
            if flight.failure is None:
                by_broker.setdefault(flight.partition.broker_id, []).append(flight)
        for broker_id, broker_flights in by_broker.items():
            for group in chunks(broker_flights):
                if len(group) > 1:
                    yield from self._post_group(broker_id, group, batch)
                else:
                    yield from self._post_singly(group, batch)

    def _post_group(
        self,
        broker_id: int,
        group: Sequence[InFlightRecord],
        batch: SendBatch,
        *,
        soon: bool = False,
    ) -> Conversation[None]:
        requests = self._requests(group)
        try:
            address = self._address(broker_id)
            ticket = yield PostAll(address, methods.SEND_MESSAGE, requests, soon)
        except errors.ConnectError:  # then one by one, each to another broker if needed
            yield from self._post_singly(group, batch)
        except _UNKNOWN as error:
            for flight in group:
                flight.reply = error  # it may have arrived: treated like a missing answer
        except errors.TubeMQError as error:
            for flight in group:
                flight.failure = outcome_unknown(error, flight.partition)
        else:
            batch.posted.append((ticket, group))

    def _post_singly(self, group: Sequence[InFlightRecord], batch: SendBatch) -> Conversation[None]:
        for flight in group:
            yield from self._post_kept(flight)
            if flight.ticket is not None:
                batch.posted.append((flight.ticket, (flight,)))

    def _post_kept(self, flight: InFlightRecord) -> Conversation[None]:
        try:
            yield from self._post(flight)
        except errors.TubeMQError as error:
            flight.failure = error

    def _post(self, flight: InFlightRecord) -> Conversation[None]:
        """Send a record.

        A failure here means that it was not sent, so another broker may take it.
        """
        while True:
            try:
                (request,) = self._requests((flight,))
                address = self._address(flight.partition.broker_id)
                flight.ticket = yield Post(address, methods.SEND_MESSAGE, request)
            except errors.NetworkError as error:
                now = yield Now()
                self.breaker.unreachable(flight.partition, now, len(self.brokers))
                self.breaker.failed(flight.partition, now)
                self._reroute(flight, now, error)
            else:
                return

    def _outcome(self, flight: InFlightRecord) -> Conversation[SendReceipt | errors.TubeMQError]:
        """Return the receipt, or a failure after which the record may be sent again."""
        try:
            reply, flight.reply = flight.reply, None
            if reply is None:
                assert flight.ticket is not None, "the record was posted"
                reply = yield Await(flight.ticket)
            elif isinstance(reply, errors.TubeMQError):
                raise reply
        except _UNKNOWN as error:
            self.breaker.failed(flight.partition, (yield Now()))
            if self.settings.retry_unknown and flight.again < _UNKNOWN_RETRIES:
                return error
            raise outcome_unknown(error, flight.partition) from error
        receipt = self._receipt(flight, reply, (yield Now()))
        if receipt is not None:
            return receipt
        where = f"send to partition {flight.partition}"
        if reply.errCode == errors.SUCCESS:
            text = f"{where}: the message id {reply.errMsg!r} is no number"
            raise outcome_unknown(errors.ProtocolViolation(text), flight.partition)
        failure = errors.for_code(reply.errCode, reply.errMsg, where=where)
        if not isinstance(failure, _NOT_STORED):
            access, sent_token = self.master.access, flight.visit_token
            if not (yield from access.may_succeed_now(reply, self.client_id, sent_token)):
                raise failure
        return failure

    def _receipt(self, flight: InFlightRecord, reply: Any, now: int) -> SendReceipt | None:
        """Return the receipt in a reply, or None if the reply has none."""
        if isinstance(reply, errors.TubeMQError) or reply.errCode != errors.SUCCESS:
            return None
        partition = flight.partition
        try:
            message_id = reply.messageId or int(reply.errMsg or 0)
        except ValueError:
            return None
        self.breaker.stored(partition)
        self.stats.receipt(len(flight.data), now - flight.since)
        return SendReceipt(partition, reply.appendOffset, message_id, reply.appendTime)

    def _resend(self, flight: InFlightRecord, failure: errors.TubeMQError) -> Conversation[None]:
        """Send a record again after `failure`; raise it when no broker or no retry is left."""
        flight.again += 1
        now = yield Now()
        if isinstance(failure, errors.ServiceUnavailable):
            self.breaker.unavailable(flight.partition, now)
            self._reroute(flight, now, failure)
        elif isinstance(failure, errors.Forbidden):
            self.breaker.failed(flight.partition, now)
            self._reroute(flight, now, failure)
        elif isinstance(failure, errors.Overflow):
            full = self.breaker.is_full(flight.partition, now)
            retries = self.settings.overflow_retries
            if flight.again > (min(1, retries) if full else retries):
                raise failure
            yield Sleep(0 if full else self.settings.overflow_pause_ms)
            if flight.free:
                flight.partition = self._choose(flight.topic, flight.record, now)
        self.stats.resent(failure)
        try:
            yield from self._post(flight)
        except errors.NetworkError as error:
            if not isinstance(failure, _UNKNOWN):
                raise
            flight.reply = error  # this copy was not sent, but the earlier one may be stored

    def _reroute(self, flight: InFlightRecord, now: int, failure: errors.TubeMQError) -> None:
        """Choose another broker that has not refused the record.

        Raises `failure` if there is none, or if the record's partition is fixed.
        """
        flight.tried |= {flight.partition.broker_id}
        routes = self.routes.get(flight.topic, ())
        left = self.breaker.open(routes, now, flight.tried) if flight.free else ()
        if not left:
            raise failure
        flight.partition = self._pick(flight.topic, flight.record, left)

    def _requests(self, flights: Iterable[InFlightRecord]) -> list[bytes]:
        token, templates = self.master.visit_token, self._templates
        requests = []
        for flight in flights:
            # Keyed by id: hashing a partition takes longer than the rest. The entry keeps the
            # partition alive, so its id is not reused.
            key = (id(flight.partition), flight.sent_address, token)
            entry = templates.get(key) or self._template(key, flight)
            flight.visit_token = token
            record = flight.record
            requests.append(
                entry[1].request(flight.data, flight.flag, record.stream_id, record.msg_time)
            )
        return requests

    def _template(
        self, key: tuple[int, int, int], flight: InFlightRecord
    ) -> tuple[Partition, SendTemplate]:
        partition = flight.partition
        template = SendTemplate(
            self.client_id,
            partition.topic,
            partition.partition_id,
            flight.sent_address,
            self.master.broker_auth(),
            verify=self.settings.verify_checksum,
        )
        entry = self._templates[key] = (partition, template)
        return entry


def _take_batches(waiting: deque[SendBatch], count: int) -> list[SendBatch]:
    """Take batches from the left until they hold at least `count` records."""
    batches: list[SendBatch] = []
    while waiting and count > 0:
        batches.append(waiting.popleft())
        count -= len(batches[-1].flights)
    return batches


def _chunks(records: Iterable[Record], size: int) -> Iterable[Sequence[Record]]:
    """Return groups of `size` records, or single records where the next may take long to arrive."""
    if isinstance(records, list | tuple):
        return (records[start : start + size] for start in range(0, len(records), size))
    return zip(records, strict=True)


def _check_record_size(
    topic: str, size: int, topic_limit: int, cluster_limit: int, large_records: str
) -> None:
    """Raise `errors.ConfigError` for a record of `size` bytes that a broker would refuse or skip.

    The first limit is the topic's, or else the cluster's. The second is always the cluster's: a
    record beyond it that a topic's wider limit allows is stored and acknowledged, and then skipped
    for all readers that the broker serves from memory. Sizes are of encoded records, attributes
    included.

    ``large_records="send"`` allows a record that would be skipped.
    """
    problem = None
    readable = cluster_limit + _READABLE_BEYOND_LIMIT
    if size > topic_limit:
        problem = (
            f"record of {size} bytes exceeds the limit of topic {topic!r}, {topic_limit} bytes"
        )
    elif size > readable and large_records != "send":
        problem = (
            f"record of {size} bytes: brokers pass over records of more than {readable} bytes "
            f"while they are in memory only, so a group that keeps up with topic {topic!r} would "
            "never get it. Raise the size limit of the cluster, not only the topic's, or send it "
            "all the same with large_records='send'"
        )
    if problem:
        raise errors.ConfigError(problem, subject="record")
