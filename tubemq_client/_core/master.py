"""Conversations with the master: find the active one; client-balance requests (RPC 6, 20–22).

`MasterSession` keeps the list of masters, the one that answered last, and the ids and tokens that
every request echoes. A request tries each master once: a stand-by or unreachable one means the
next. Registering is only needed to learn metadata; brokers do not require it.

A master that has just become active knows no members, for a moment no topics, and no broker before
brokers have reported to it. So for some time after a switch was noticed its "no" is not final.

Sources: `docs/protocol/wire.md#methods-methods`, `docs/protocol/errors.md#failures-without-a-code`
(stand-bys), `docs/protocol/client-balance.md#what-a-heartbeat-to-the-master-says-and-brings`.
"""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tubemq_client import _pb, errors
from tubemq_client._core import event_log
from tubemq_client._core.connections import is_host_name
from tubemq_client._core.effects import Call, Connect, Now, Sleep, VerifyPeer
from tubemq_client._core.limits import check_topic
from tubemq_client._core.registration import UNDEFINED
from tubemq_client._core.security import Access
from tubemq_client._wire import methods, strings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.flow_control import FlowControl
    from tubemq_client._wire.methods import Method
    from tubemq_client.model import Address, BrokerNode, ClientSettings, Partition

T = TypeVar("T")

__all__ = ["KnownMetadata", "MasterSession", "TopicMetadata", "fetch_topic_metadata"]

SETTLING_MS = 30_000
"""Time after a switch, in milliseconds, during which a master's view is incomplete. Brokers report
every 8 s; a broker that serves throughout this time must not lose partitions because of it."""

_RETRY_PAUSE_MS = 200

_OTHER_TOPICS = 425
_TURN_WAIT_MS = 10_000
_FIRST_TURN_MS, _LAST_TURN_MS = 25, 400


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """Brokers of a topic by id, and its partitions, each with "may be subscribed now"."""

    topic: str
    brokers: dict[int, BrokerNode]
    partitions: dict[Partition, bool]

    @property
    def subscribable(self) -> list[Partition]:
        """Partitions that may be subscribed now, sorted."""
        return sorted(p for p, ready in self.partitions.items() if ready)

    def select(self, partitions: Iterable[Partition] | None) -> list[Partition]:
        """Return `partitions` as a list, or all partitions of the topic for None.

        Raises `errors.ConfigError` for partitions that the topic does not have.
        """
        if partitions is None:
            return sorted(self.partitions)
        selection = list(partitions)
        unknown = [p for p in selection if p not in self.partitions]
        if unknown:
            existing = ", ".join(p.key for p in sorted(self.partitions))
            raise errors.ConfigError(
                [
                    f"topic {self.topic!r} has no partition {p.key}; it has {existing}"
                    for p in unknown
                ],
                subject="partitions",
            )
        return selection


class KnownMetadata(NamedTuple):
    """State that a client-balanced member already has; the master answers with changes only.

    It consists of the topic metadata (id, and time of arrival in epoch ms) and the id of the last
    order to skip to the ends.
    """

    meta_id: int = UNDEFINED
    learned_ms: int | None = None
    from_max_id: int = UNDEFINED


@dataclass(slots=True)
class MasterSession:
    """State shared by all conversations of one client with its masters.

    `access` holds the client's credentials and tokens. With `tls` every connection uses TLS, so
    a broker announced without a port is contacted at the TLS port.
    """

    masters: tuple[Address, ...]
    host: str = "127.0.0.1"
    access: Access = field(default_factory=Access)
    tls: bool = False
    preconnect: bool = False
    fail_over_wait_ms: int = 0
    active: int = 0
    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    broker_config_id: int = UNDEFINED
    _connected: set[Address] = field(default_factory=set)
    _answered: bool = False
    _silent: bool = False
    _switched_at: int | None = None

    def __post_init__(self) -> None:
        if self.masters:
            self.access.renew = self.renew_token

    @classmethod
    def of(cls, settings: ClientSettings, host: str, first_nonce: int) -> MasterSession:
        """Create the session of a client with `settings` that runs on `host`."""
        access = Access(settings.auth, itertools.count(first_nonce))
        tls, preconnect = settings.tls is not None, settings.preconnect
        return cls(
            settings.masters,
            host,
            access,
            tls=tls,
            preconnect=preconnect,
            fail_over_wait_ms=settings.fail_over_wait_ms,
        )

    @property
    def visit_token(self) -> int:
        """Token by which masters and brokers recognise this client; -2 before the first answer."""
        return self.access.visit_token

    def call(self, method: Method, request: Any) -> Conversation[Any]:
        """Send a signed `request` to the active master, which is searched for; return the reply.

        Keeps the tokens of the reply. Raises the last problem when no master answers.
        """
        yield from self.access.stamp(request)
        problems: list[str] = []
        failure: errors.TubeMQError | None = None
        switched = False
        for step in range(len(self.masters)):
            index = (self.active + step) % len(self.masters)
            try:
                reply = yield from self._ask(self.masters[index], method, request)
            except (errors.NetworkError, errors.StandbyMaster) as error:
                failure = error
                problems.append(str(error))
                # A stand-by is no sign of a switch unless a master has answered this client before.
                switched |= self._answered or isinstance(error, errors.NetworkError)
                continue
            if switched:
                yield from self.notice_switch()
            if self._silent or (self._answered and index != self.active):
                event_log.master_answers(self.masters[index])
            self.active, self._answered, self._silent = index, True, False
            self.access.learn(reply)
            if self.preconnect:
                yield from self._connect_brokers(reply)
            return reply
        yield from self.notice_switch()
        if failure is not None and not self._silent:
            event_log.no_master_answers(failure)
        self._silent = True
        if failure is not None and len(problems) == 1:
            raise failure
        raise errors.ConnectError(
            "no active master answers; check the option 'masters':\n  " + "\n  ".join(problems)
        ) from failure

    def _ask(self, address: Address, method: Method, request: Any) -> Conversation[Any]:
        """Ask one master.

        After a stand-by's answer look its host name up again: it may have moved.
        """
        try:
            return (yield Call(address, method, request))
        except errors.StandbyMaster:
            if not is_host_name(address[0]) or not (yield VerifyPeer(address)):
                raise
        return (yield Call(address, method, request))

    def notice_switch(self) -> Conversation[None]:
        """Record a possible switch: another master is active, or the same one lost its state."""
        self._switched_at = yield Now()

    def is_switching(self, now: int) -> bool:
        """Return whether the master's view may be incomplete after a recent switch."""
        return self._switched_at is not None and now - self._switched_at < SETTLING_MS

    def may_be_switch(self, error: errors.TubeMQError, now: int) -> bool:
        """Return whether `error` may be caused by a switch that is under way."""
        if isinstance(error, errors.NetworkError | errors.StandbyMaster):
            return len(self.masters) > 1
        passing = isinstance(error, errors.UnknownTopic | errors.NotRegistered)
        return passing and self.is_switching(now)

    def retry_during_switch(
        self, ask: Callable[[], Conversation[T]], is_enough: Callable[[T], bool]
    ) -> Conversation[T]:
        """Return the answer of `ask`; repeat while a switch may explain a failure or a poor answer.

        Repeats for up to `fail_over_wait_ms`, then returns the last answer or raises the last
        error. `is_enough` tells if an answer is complete.
        """
        deadline: int | None = None
        while True:
            failure: errors.TubeMQError | None = None
            try:
                answer = yield from ask()
                if is_enough(answer):
                    return answer
            except errors.TubeMQError as error:
                failure = error
                if isinstance(error, errors.NotRegistered):
                    yield from self.notice_switch()  # it had registered at another master
            now = yield Now()
            deadline = now + self.fail_over_wait_ms if deadline is None else deadline
            passing = (
                self.is_switching(now) if failure is None else self.may_be_switch(failure, now)
            )
            if passing and now < deadline:
                yield Sleep(min(_RETRY_PAUSE_MS, deadline - now))
            elif failure is None:
                return answer
            else:
                raise failure

    def _connect_brokers(self, reply: Any) -> Conversation[None]:
        """Open connections to brokers that a reply names for the first time."""
        reply_fields = reply.DESCRIPTOR.fields_by_name
        texts = [
            text
            for name in ("brokerInfos", "brokerConfigList")
            if name in reply_fields
            for text in getattr(reply, name)
        ]
        new_addresses = {
            node.address for node in self.parse_brokers(texts).values()
        } - self._connected
        if new_addresses:
            self._connected |= new_addresses
            yield Connect(tuple(sorted(new_addresses)))

    def broker_auth(self) -> Any:
        """Return the authentication of RPC 13, 15 and 16: the token that the master gave last."""
        return self.access.broker_auth()

    def learn(self, reply: Any) -> None:
        """Keep the tokens of a reply that did not come through `call`, which keeps them itself."""
        self.access.learn(reply)

    def renew_token(self, client_id: str) -> Conversation[None]:
        """Get a visit token and leave no registration behind.

        Registering as a producer of no topic is the smallest request whose answer has one.
        """
        request = _pb.RegisterRequestP2M(
            clientId=client_id,
            brokerCheckSum=-1,
            hostName=self.host,
            appdConfig=_pb.ApprovedClientConfig(configId=UNDEFINED),
        )
        reply = yield from self.call(methods.REGISTER_PRODUCER, request)
        _check(reply, "asking for a visit token")
        try:
            yield from self.call(methods.CLOSE_PRODUCER, _pb.CloseRequestP2M(clientId=client_id))
        except (errors.NetworkError, errors.RemoteException):
            pass  # the master forgets a silent client by itself

    def parse_brokers(self, texts: Iterable[str]) -> dict[int, BrokerNode]:
        """Parse the texts in which masters announce brokers; return the brokers by id."""
        port = strings.DEFAULT_BROKER_TLS_PORT if self.tls else strings.DEFAULT_BROKER_PORT
        nodes = (strings.parse_broker(text, port) for text in texts)
        return {node.broker_id: node for node in nodes}

    def learn_brokers(self, reply: Any) -> None:
        if reply.brokerConfigList:
            self.brokers = self.parse_brokers(reply.brokerConfigList)
        if reply.HasField("brokerConfigId"):
            self.broker_config_id = reply.brokerConfigId

    # -- client balance -----------------------------------------------------------------------

    def register_consumer(
        self,
        client_id: str,
        group: str,
        topics: dict[str, tuple[str, ...]],
        *,
        flow: FlowControl | None = None,
        node: tuple[int, int] = (UNDEFINED, UNDEFINED),
        known: KnownMetadata = KnownMetadata(),  # noqa: B008 - an immutable value
    ) -> Conversation[Any]:
        """Register a member (RPC 20) and return the reply.

        `topics` maps each topic to its filter items, `node` is the group's size and the member's
        number in it; `flow` learns the flow rules. Raises `errors.UnknownTopic`,
        `errors.GroupInconsistent` and the like when the master refuses.
        """
        request = _pb.RegisterRequestC2MV2(
            clientId=client_id,
            groupName=group,
            hostName=self.host,
            sourceCount=node[0],
            nodeId=node[1],
            topicList=sorted(topics),
            topicCondition=[
                strings.format_topic_condition(topic, items)
                for topic, items in sorted(topics.items())
                if items
            ],
            subRepInfo=_pb.ClientSubRepInfo(
                brokerConfigId=self.broker_config_id if self.brokers else UNDEFINED,
                topicMetaInfoId=UNDEFINED,
                reportSubInfo=False,
            ),
        )
        _fill(request, flow, known)
        reply = yield from self.call(methods.REGISTER_CONSUMER_V2, request)
        node_text = f" as node {node[1]} of {node[0]}" if node[0] > 0 else ""
        _check(reply, f"registering group {group!r}{node_text} for {', '.join(sorted(topics))}")
        self.learn_brokers(reply)
        if flow is not None:
            flow.learn(reply.opsTaskInfo)
        return reply

    def partition_meta(
        self, client_id: str, group: str
    ) -> Conversation[dict[str, dict[Partition, bool]]]:
        """Return every partition of the registered topics, by topic (RPC 22)."""
        _, metas = yield from self.topic_meta(client_id, group)
        return {
            meta.topic: {p: s for p, s in meta.partitions() if p.broker_id in self.brokers}
            for meta in metas
        }

    def topic_meta(
        self, client_id: str, group: str, known_id: int = UNDEFINED
    ) -> Conversation[tuple[int, list[strings.TopicMeta]]]:
        """Return the id of the group's topic metadata, and the metadata (RPC 22).

        The list is empty if `known_id` is still the current id.
        """
        request = _pb.GetPartMetaRequestC2M(
            clientId=client_id,
            groupName=group,
            brokerConfigId=self.broker_config_id,
            topicMetaInfoId=known_id,
        )
        reply = yield from self.call(methods.GET_PARTITION_META, request)
        _check(reply, f"asking for partitions as group {group!r}")
        self.learn_brokers(reply)
        return reply.topicMetaInfoId, [strings.parse_topic_meta(t) for t in reply.topicMetaInfoList]

    def heartbeat_consumer(
        self,
        client_id: str,
        group: str,
        held: list[Partition],
        *,
        report: bool,
        flow: FlowControl | None = None,
        known: KnownMetadata = KnownMetadata(),  # noqa: B008 - an immutable value
    ) -> Conversation[Any]:
        """Send a heartbeat (RPC 21) and return the reply; `flow` learns changed flow rules.

        Raises `errors.NotRegistered` when the master has forgotten the client.
        """
        sub_info = _pb.ClientSubRepInfo(
            brokerConfigId=self.broker_config_id,
            topicMetaInfoId=known.meta_id,
            lstAssignedTime=known.learned_ms,
            reportSubInfo=report,
        )
        if report:
            sub_info.partSubInfo.extend(strings.format_part_sub_info(held))
        request = _pb.HeartRequestC2MV2(clientId=client_id, groupName=group, subRepInfo=sub_info)
        _fill(request, flow, known)
        reply = yield from self.call(methods.HEARTBEAT_CONSUMER_V2, request)
        _check(reply, f"heartbeat of group {group!r}")
        self.learn_brokers(reply)
        if flow is not None:
            flow.learn(reply.opsTaskInfo)
        return reply

    def close_consumer(self, client_id: str, group: str) -> Conversation[None]:
        request = _pb.CloseRequestC2M(clientId=client_id, groupName=group)
        yield from self.call(methods.CLOSE_CONSUMER, request)


def fetch_topic_metadata(
    session: MasterSession, topic: str, client_id: str, group: str
) -> Conversation[TopicMetadata]:
    """Return the master's metadata of a topic: register, ask, close. Leaves nothing behind.

    Repeats for up to `fail_over_wait_ms` while a switch of masters may explain a failure or a topic
    without a subscribable partition. While a look-up at another topic occupies the group, repeats
    for about ten seconds, then raises `errors.GroupBusy`.
    """
    check_topic(topic)
    return (
        yield from session.retry_during_switch(
            lambda: _look_up_exclusively(session, topic, client_id, group),
            lambda found: bool(found.subscribable),
        )
    )


def _look_up_exclusively(
    session: MasterSession, topic: str, client_id: str, group: str
) -> Conversation[TopicMetadata]:
    """Look a topic up after the look-ups at other topics that use the same group.

    A master accepts members of one group for one set of topics only.
    """
    waited, pause = 0, _FIRST_TURN_MS
    while True:
        try:
            return (yield from _look_up(session, topic, client_id, group))
        except errors.GroupBusy:
            if waited >= _TURN_WAIT_MS:
                raise
        # Ids differ, and so do the pauses of concurrent look-ups.
        spread = pause + zlib.crc32(f"{client_id}|{waited}".encode()) % pause
        yield Sleep(spread)
        waited, pause = waited + spread, min(2 * pause, _LAST_TURN_MS)


def _look_up(
    session: MasterSession, topic: str, client_id: str, group: str
) -> Conversation[TopicMetadata]:
    try:
        yield from session.register_consumer(client_id, group, {topic: ()})
    except errors.GroupInconsistent as error:
        if error.code != _OTHER_TOPICS:
            raise
        where = f"{error.where}, while a look-up at another topic has it"
        raise errors.GroupBusy(error.code, error.detail, where=where) from None
    partitions_by_topic = yield from session.partition_meta(client_id, group)
    try:
        yield from session.close_consumer(client_id, group)
    except (errors.NetworkError, errors.RemoteException):
        pass  # the master forgets a silent client by itself
    partitions = partitions_by_topic.get(topic, {})
    ids = {partition.broker_id for partition in partitions}
    brokers = {i: node for i, node in session.brokers.items() if i in ids}
    return TopicMetadata(topic, brokers, partitions)


def _fill(request: Any, flow: FlowControl | None, known: KnownMetadata) -> None:
    if flow is not None:
        flow.fill(request.opsTaskInfo)
    if known.from_max_id >= 0:
        request.opsTaskInfo.csmFrmMaxOffsetCtrlId = known.from_max_id


def _check(reply: Any, what: str) -> None:
    if reply.errCode != errors.SUCCESS:
        raise errors.for_code(reply.errCode, reply.errMsg, where=f"master, {what}")
