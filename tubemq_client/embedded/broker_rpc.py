"""A broker's RPCs: send, register and unregister a partition, heartbeat, fetch, commit.

Checks come in the order of a real broker, with its codes and the beginnings of its texts. Handlers
are plain calls from request message to reply message; framing and sockets are elsewhere. Every
request gets a reply, unless it cannot be understood at all (`RpcFault`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tubemq_client import _pb, errors
from tubemq_client._wire import methods, payload
from tubemq_client.embedded.broker import Broker
from tubemq_client.embedded.checks import (
    INVOCATION_FAILURE,
    OFFSET_HISTORY_TOPIC,
    Refused,
    RpcFault,
    check_client_id,
    check_group,
    check_topic,
)
from tubemq_client.embedded.leases import UNDEFINED_PRIORITY, Lease
from tubemq_client.embedded.positions import FetchMode, PositionKey
from tubemq_client.embedded.reading import ReadOutcome, ReadRequest, priority_level, read
from tubemq_client.embedded.storage import Store
from tubemq_client.embedded.store import NO_KEY

__all__ = ["BrokerRpc"]

_REMOVING = 1
"""Deployment status above which even reading is refused."""

_NO_CHECKSUM = -1


class _Handler(NamedTuple):
    serve: Callable[[Any], Any]
    refuse: Callable[[Refused], Any]


class BrokerRpc:
    """Answers the methods in `handlers` for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.handlers: dict[int, _Handler] = {
            methods.SEND_MESSAGE.id: _Handler(self._send, _refuse_send),
            methods.REGISTER_PARTITION.id: _Handler(self._register_or_not, _refuse_register),
            methods.HEARTBEAT_BROKER.id: _Handler(self._heartbeat, _refuse_heartbeat),
            methods.GET_MESSAGES.id: _Handler(self._get, _refuse_get),
            methods.COMMIT_OFFSET.id: _Handler(self._commit, _refuse_commit),
        }

    def handle(self, method_id: int, request: Any) -> Any | None:
        """Return the reply to `request`, None if it must stay unanswered."""
        if method_id in self._broker.faults.silent:
            return None
        handler = self.handlers[method_id]
        try:
            self._broker.scripted.check(method_id)
            return handler.serve(request)
        except Refused as refusal:
            return handler.refuse(refusal)

    # ------------------------------------------------------------------ send

    def _send(self, request: Any) -> Any:
        broker = self._broker
        if not (broker.running and broker.faults.writing):
            raise Refused(503, "Write StoreService temporary unavailable!")
        client_id = check_client_id(request.clientId)
        store = self._store_to_write(request)
        data: bytes = request.data
        checksum = self._checked(request.topicName, data, request.checkSum)
        if broker.faults.overflows():
            raise Refused(
                419, f"Put message failed from {client_id}, server receive message overflow!"
            )
        appended = store.append(
            request.partitionId,
            data,
            time_ms=broker.clock(),
            checksum=checksum,
            flag=request.flag,
            key_code=payload.java_hash(request.msgType) if request.msgType else NO_KEY,
            sent_addr=request.sentAddr,
        )
        return _pb.SendMessageResponseB2P(
            success=True,
            errCode=200,
            errMsg=str(appended.message_id),
            requireAuth=False,
            messageId=appended.message_id,
            appendTime=appended.time_ms,
            appendOffset=appended.offset,
        )

    def _store_to_write(self, request: Any) -> Store:
        topic, partition_id = check_topic(request.topicName), request.partitionId
        if topic == OFFSET_HISTORY_TOPIC:
            raise Refused(403, f"topicName {topic} does not allow producers to send data!")
        if self._broker.deployment(topic).status > 0:
            raise Refused(403, f"topicName {topic} has been closed")
        store = self._broker.store_for(topic, partition_id)
        if store is None:
            raise Refused(
                403,
                f"partitionId {topic}-{partition_id} not existed, please check your configure",
            )
        return store

    def _checked(self, topic: str, data: bytes, claimed: int) -> int:
        """Return the checksum of `data` after checking length and, if `claimed`, content."""
        if not data:
            raise Refused(400, "data length is zero!")
        limit = self._broker.cluster.message_limit(topic)
        if len(data) > limit:
            raise Refused(
                400,
                f"data length over max length, allowed max length is {limit}, "
                f"data length is {len(data)}",
            )
        actual = payload.checksum(data)
        if claimed not in (_NO_CHECKSUM, actual):
            raise Refused(
                403,
                f"Checksum msg data failure: {claimed} of {topic} not equal to the data's "
                f"checksum of {actual}",
            )
        return actual

    # ------------------------------------------------------------------ registrations

    def _register_or_not(self, request: Any) -> Any:
        broker = self._broker
        if not broker.running:
            raise Refused(503, "StoreService temporary unavailable!")
        client_id = check_client_id(request.clientId)
        key = self._known_key(request)
        if request.opType == methods.OP_REGISTER:
            return self._register(key, client_id, request)
        if request.opType == methods.OP_UNREGISTER:
            return self._unregister(key, client_id, request.readStatus)
        raise Refused(400, f"Invalid request:{request.opType}")

    def _register(self, key: PositionKey, client_id: str, request: Any) -> Any:
        broker = self._broker
        self._refuse_occupied(key, client_id)
        filters = tuple(sorted({item for text in request.filterCondStr if (item := text.strip())}))
        priority = request.qryPriorityId if request.HasField("qryPriorityId") else 0
        lease = Lease(
            client_id,
            filters,
            frozenset(payload.java_hash(item) for item in filters),
            priority or UNDEFINED_PRIORITY,
        )
        # Like a real broker, take the lease before looking at the partition: a wrong partition
        # id stays leased until it times out.
        broker.leases.grant(key, lease, broker.clock())
        store = broker.store_for(key.topic, key.partition_id)
        if store is None:
            raise Refused(500, self._wrong_partition(key))
        ends = store.log.ends
        requested = request.currOffset if request.HasField("currOffset") else -1
        offset = broker.positions.open(
            key, ends, read_status=request.readStatus, requested=requested
        )
        return _pb.RegisterResponseB2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            currOffset=offset,
            maxOffset=broker.max_offset(lease, ends),
        )

    def _refuse_occupied(self, key: PositionKey, client_id: str) -> None:
        broker = self._broker
        holder = broker.leases.occupant(key, client_id)
        if holder is None:
            return
        where = f"Partition {broker.broker_id}#{key}"
        if broker.leases.drop_expired(key, broker.clock()):
            # A registration that finds an expired owner only removes it; the next one succeeds.
            broker.positions.drop_in_flight(key)
            raise Refused(410, f"[Duplicated Register] Remove Invalid Consumer Register {where}")
        raise Refused(410, f"[Duplicated Register] {where} has been registered by {holder}")

    def _wrong_partition(self, key: PositionKey) -> str:
        last = self._broker.deployment(key.topic).props.partitions - 1
        return (
            "Register broker failure!, exception is Wrong partition value "
            f"{key.partition_id},valid partitions in (0,{last})"
        )

    def _unregister(self, key: PositionKey, client_id: str, read_status: int) -> Any:
        lease = self._broker.leases.get(key)
        if lease is None:
            raise Refused(411, f"UnRegistered Consumer {client_id}, you have to register firstly!")
        if lease.client_id != client_id:
            raise Refused(
                412,
                f"[Duplicated Request]Partition {key} has been consumed by {lease.client_id};"
                f"Current consumer {client_id}, broker={self._broker.host}",
            )
        if read_status == 0:
            self._broker.positions.confirm(key)
        else:
            self._broker.positions.drop_in_flight(key)
        self._broker.leases.release(key)
        return _pb.RegisterResponseB2C(success=True, errCode=200, errMsg="OK!", currOffset=-1)

    def _known_key(self, request: Any) -> PositionKey:
        """Return partition and group of a request. Raises `Refused` 400, or 403 for the topic."""
        topic = check_topic(request.topicName)
        self._broker.deployment(topic)
        return PositionKey(check_group(request.groupName), topic, request.partitionId)

    def _owned(self, key: PositionKey, client_id: str) -> Lease:
        """Return the caller's registration. Raises `Refused` 411 or 412."""
        lease = self._broker.leases.get(key)
        if lease is None:
            raise Refused(411, f"UnRegistered Consumer:{client_id}, you have to register firstly!")
        if lease.client_id != client_id:
            raise Refused(
                412,
                f"[Duplicated Request] Partition={key} of Broker={self._broker.broker_id} "
                f"has been consumed by {lease.client_id};Current consumer {client_id}",
            )
        return lease

    # ------------------------------------------------------------------ heartbeat

    def _heartbeat(self, request: Any) -> Any:
        if not self._broker.running:
            raise Refused(503, "StoreService temporary unavailable!")
        client_id = check_client_id(request.clientId)
        group = check_group(request.groupName)
        priority = UNDEFINED_PRIORITY
        if request.HasField("qryPriorityId"):
            priority = request.qryPriorityId
        # All elements are parsed before the first takes effect: one bad element fails the call.
        named = [(text, _partition_of(group, text)) for text in request.partitionInfo]
        failures = []
        for text, key in named:
            try:
                lease = self._owned(key, client_id)
            except Refused as refusal:
                failures.append(f"{refusal.code}:{text}")
                continue
            lease.query_priority = priority
            self._broker.leases.renew(lease, self._broker.clock())
        return _pb.HeartBeatResponseB2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            hasPartFailure=bool(failures),
            failureInfo=failures,
            requireAuth=False,
        )

    # ------------------------------------------------------------------ fetch

    def _get(self, request: Any) -> Any:
        broker = self._broker
        if not (broker.running and broker.faults.reading):
            raise Refused(503, "Read StoreService temporary unavailable!")
        client_id = check_client_id(request.clientId)
        key = self._known_key(request)
        lease = self._owned(key, client_id)
        broker.leases.renew(lease, broker.clock())
        if broker.deployment(key.topic).status > _REMOVING:
            raise Refused(403, f"[Partition Closed] Partition has been closed {key}")
        store = broker.store_for(key.topic, key.partition_id)
        if store is None:
            raise Refused(
                500, f"Get the store of topic {key.topic} in partition {key.partition_id} failure!"
            )
        mode = FetchMode(request.lastPackConsumed, request.manualCommitOffset)
        start = broker.positions.begin(key, mode, store.log.ends)
        if start.refusal:
            return _nothing(start.refusal, wait_ms=start.wait_ms)
        wait_ms = self._refused_ms(lease, store)
        if wait_ms and request.escFlowCtrl:
            # The flag does not lift the byte budget, and a budget of 0 bytes is a refusal as well.
            wait_ms = None if lease.allowance.budget(1) else 0
        if wait_ms is not None:
            return _too_early(wait_ms)
        if broker.faults.empties():
            return self._batch(start.offset, ReadOutcome(200, "OK!", max_offset=store.log.end))
        return self._fetch(key, lease, store, mode, start.offset)

    def _refused_ms(self, lease: Lease, store: Store) -> int | None:
        """Return how long (ms) the flow rules refuse a reader; None if it may fetch now."""
        if lease.data_reached is None:  # nothing is limited before the first successful fetch
            return None
        lag, now = store.log.data_end - lease.data_reached, self._broker.clock()
        return lease.allowance.refused_ms(self._broker.data_limits, lag, now, now) or None

    def _fetch(
        self, key: PositionKey, lease: Lease, store: Store, mode: FetchMode, start: int
    ) -> Any:
        broker = self._broker
        outcome = self._read(key, lease, store, start)
        if outcome.code == 200 or broker.switches.advance_on_404:
            broker.positions.record_fetch(
                key, mode, outcome.advance, delivered=bool(outcome.records)
            )
        if outcome.code != 200:
            # Real brokers leak the end of the data log here, truncated to 32 bits.
            hint = broker.faults.wait_hint
            wait_ms = _int32(store.log.data_end) if hint is None else hint
            return _nothing(outcome.text, wait_ms=wait_ms)
        lease.warmed = lease.warmed or bool(outcome.records)
        lease.data_reached = store.log.data_end - outcome.data_lag
        size = sum(record.size for record in outcome.records)
        lease.sent(size, broker.clock())
        lease.allowance.sent(size)
        return self._batch(start, outcome)

    def _read(self, key: PositionKey, lease: Lease, store: Store, start: int) -> ReadOutcome:
        broker, limits = self._broker, self._broker.switches.reads
        filtered = bool(lease.filters)
        request = ReadRequest(
            start,
            key.partition_id,
            lease.key_codes,
            priority_level(broker.query_priority(lease), filtered=filtered),
            lease.allowance.budget(limits.byte_budget(first=not lease.warmed)),
            broker.deployment(key.topic).props.partitions,
            broker.cluster.memory_record_limit,
        )
        return read(store.log, request, limits)

    def _batch(self, start: int, outcome: ReadOutcome) -> Any:
        reply = _pb.GetMessageResponseB2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            currOffset=start,
            minLimitTime=0,
            escFlowCtrl=False,
            currDataDlt=outcome.data_lag,
            requireSlow=outcome.require_slow,
            maxOffset=outcome.max_offset,
        )
        add = reply.messages.add
        checksum_of = self._broker.faults.checksum_of
        for record in outcome.records:
            add(
                messageId=record.message_id,
                checkSum=checksum_of(record.checksum),
                payLoadData=record.payload,
                flag=record.flag,
            )
        return reply

    # ------------------------------------------------------------------ commit

    def _commit(self, request: Any) -> Any:
        broker = self._broker
        if not broker.running:
            raise Refused(503, "StoreService temporary unavailable!")
        client_id = check_client_id(request.clientId)
        key = self._known_key(request)
        lease = broker.leases.get(key)
        if lease is None:
            raise Refused(401, "The partition not registered by consumers")
        if lease.client_id != client_id:
            raise Refused(
                401, f"The partition has been registered by other consumer: {lease.client_id}"
            )
        consumed = request.lastPackConsumed if request.HasField("lastPackConsumed") else True
        offset = broker.positions.commit(key, consumed=consumed)
        return _pb.CommitOffsetResponseB2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            currOffset=offset,
            maxOffset=broker.max_offset(lease, broker.ends(key.topic, key.partition_id)),
        )


def _partition_of(group: str, text: str) -> PositionKey:
    """Parse the partition in ``brokerId:host:port#topic:partitionId``."""
    try:
        _, place = text.split("#")
        topic, partition = place.split(":")
        return PositionKey(group, topic, int(partition))
    except ValueError as error:
        raise RpcFault(INVOCATION_FAILURE) from error


def _int32(value: int) -> int:
    """Return the low 32 bits of `value` as a signed number."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _nothing(text: str, *, wait_ms: int = 0) -> Any:
    return _pb.GetMessageResponseB2C(
        success=False,
        errCode=404,
        errMsg=text,
        currOffset=-1,
        minLimitTime=wait_ms,
        escFlowCtrl=False,
        currDataDlt=-1,
    )


def _too_early(wait_ms: int) -> Any:
    return _pb.GetMessageResponseB2C(
        success=False,
        errCode=errors.SPEED_LIMIT,
        errMsg="RpcServer consume speed limit!",
        currOffset=-1,
        minLimitTime=wait_ms,
        escFlowCtrl=False,
        currDataDlt=-1,
    )


def _refuse_send(refusal: Refused) -> Any:
    return _pb.SendMessageResponseB2P(success=False, errCode=refusal.code, errMsg=refusal.text)


def _refuse_register(refusal: Refused) -> Any:
    return _pb.RegisterResponseB2C(
        success=False, errCode=refusal.code, errMsg=refusal.text, currOffset=-1
    )


def _refuse_heartbeat(refusal: Refused) -> Any:
    return _pb.HeartBeatResponseB2C(
        success=False, errCode=refusal.code, errMsg=refusal.text, hasPartFailure=False
    )


def _refuse_get(refusal: Refused) -> Any:
    return _pb.GetMessageResponseB2C(
        success=False,
        errCode=refusal.code,
        errMsg=refusal.text,
        currOffset=-1,
        minLimitTime=0,
        escFlowCtrl=False,
        currDataDlt=-1,
    )


def _refuse_commit(refusal: Refused) -> Any:
    return _pb.CommitOffsetResponseB2C(
        success=False, errCode=refusal.code, errMsg=refusal.text, currOffset=-1
    )
