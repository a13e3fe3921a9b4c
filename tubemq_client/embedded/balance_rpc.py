"""RPC 4 and 5: consumers whose partitions the master distributes, plain and bound.

Handlers from request message to reply message, in a real master's order of checks. Events that the
rounds of `balancer` queued are sent here, one per heartbeat, and clients' reports are stored. A
client's report replaces the master's view of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tubemq_client import _pb
from tubemq_client._wire import strings
from tubemq_client.embedded.balance_state import Event
from tubemq_client.embedded.checks import (
    INVOCATION_FAILURE,
    Refused,
    RpcFault,
    check_client_id,
    check_group,
    check_host,
    check_topics,
)
from tubemq_client.embedded.cluster import UNDEFINED, Cluster
from tubemq_client.embedded.controls import ClusterSetting, Controls, GroupControl
from tubemq_client.embedded.groups import BoundTerms, Group, GroupKind, Groups, Join, Member
from tubemq_client.errors import TubeMQError
from tubemq_client.model import BrokerNode, Partition

__all__ = ["BalanceFaults", "BalanceRpc", "ClusterOffers"]

_KEY_PARTS = 3
_NO_RULES = " "
"""Text that masters send in place of flow rules that are off."""


class ClusterOffers:
    """Partitions and limits of a cluster that apply to a group now (`balancer.Offers`)."""

    def __init__(self, cluster: Cluster, clock: Callable[[], int], default_rate: int) -> None:
        self._cluster = cluster
        self._clock = clock
        self._default_rate = default_rate

    def partitions(self, group: Group) -> set[Partition]:
        """Return every subscribable partition, without topics that are disabled for the group."""
        return {
            partition
            for topic in group.topics - self._cluster.controls.disabled_topics(group.name)
            for meta in self._metas(topic)
            for partition, _ in strings.TopicMeta(topic, (meta,)).partitions()
        }

    def most_brokers(self, group: Group) -> int:
        """Return the number of brokers of the group's most widely spread topic."""
        return max(map(self.brokers_of, group.topics))

    def brokers_of(self, topic: str) -> int:
        """Return the number of brokers on which a topic may be subscribed."""
        return len(self._metas(topic))

    def brokers_per_member(self, group: Group) -> tuple[int, int]:
        """Return the cluster's limit and the group's (`UNDEFINED` if it has none)."""
        return self._default_rate, self._cluster.controls.client_rate(group.name)

    def _metas(self, topic: str) -> list[strings.BrokerMeta]:
        now_ms = self._clock()
        return [
            strings.BrokerMeta(
                record.broker_id, record.props.stores, record.props.partitions, subscribable=True
            )
            for record in self._cluster.deployments(topic)
            if self._cluster.subscribable(record, now_ms)
        ]


class BalanceFaults:
    """Faults on demand: how many of the next events are lost or sent twice."""

    def __init__(self) -> None:
        self.lose_events = 0
        self.repeat_events = 0

    def next_event(self, group: Group, client_id: str) -> Event | None:
        """Return the client's next event; None if there is none or a fault drops it."""
        event = group.balance.next_event(client_id)
        if event is None:
            return None
        if self.lose_events > 0:
            self.lose_events -= 1
            return None
        if self.repeat_events > 0:
            self.repeat_events -= 1
            group.balance.repeat_event(client_id)
        return event


class BalanceRpc:
    """Answers RPC 4 and 5 of one master. `check_active` raises on a stand-by."""

    def __init__(
        self,
        cluster: Cluster,
        groups: Groups,
        clock: Callable[[], int],
        *,
        check_active: Callable[[str], None],
        authorized: Callable[[], Any],
        default_rate: int,
        check_reset: bool = False,
    ) -> None:
        self._check_reset = check_reset
        self._cluster = cluster
        self._groups = groups
        self._clock = clock
        self._check_active = check_active
        self._authorized = authorized
        self._default_rate = default_rate
        self.faults = BalanceFaults()

    # ------------------------------------------------------------------ register

    def register(self, request: Any) -> Any:
        client_id = check_client_id(request.clientId)
        check_host(request.hostName)
        group_name = check_group(request.groupName)
        self._check_active(client_id)
        topics = check_topics(request.topicList)
        check_deployed(self._cluster, topics)
        bound = request.requireBound
        starts = _starts(request.requiredPartition, topics) if bound else {}
        terms = self._terms(request, group_name, topics) if bound else None
        conditions = read_conditions(request.topicCondition, topics)
        check_allowed(self._cluster, request, topics, conditions)
        join = Join(
            client_id,
            group_name,
            request.hostName,
            frozenset(topics),
            conditions,
            kind=GroupKind.BOUND if bound else GroupKind.UNBOUND,
            bound=terms,
            start_offsets=starts,
        )
        held = _held(request.subscribeInfo)
        group = self._groups.join(join, self._clock())
        if held:
            member = group.members[client_id]
            member.partitions, member.reported = held, True
        if held or (request.HasField("notAllocated") and not request.notAllocated):
            group.balance.not_allocated = False
        reply = _pb.RegisterResponseM2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            notAllocated=group.balance.not_allocated,
            authorizedInfo=self._authorized(),
        )
        self._add_flow_rules(request, group_name, reply)
        return reply

    def _terms(self, request: Any, group: str, topics: list[str]) -> BoundTerms:
        """Return the terms that members of a bound group must share. Raises `Refused` 400."""
        session_key = request.sessionKey.strip()
        if not session_key:
            raise Refused(400, "[Parameter error] blank value of sessionKey!")
        count = request.totalCount
        if count <= 0:
            raise Refused(400, "[Parameter error] totalSourceCount must over zero!")
        if self._check_reset and group not in self._cluster.controls.groups:
            raise Refused(
                400,
                "[unauthorized subscribe] ConsumeGroup must be authorized by administrator before "
                "using bound subscribe, please contact to administrator!",
            )
        own = self._cluster.controls.client_rate(group)
        allowed = own if own > 0 else self._default_rate
        offers = ClusterOffers(self._cluster, self._clock, self._default_rate)
        brokers = max(offers.brokers_of(topic) for topic in topics)
        if brokers // count > allowed:
            least = -(-brokers // allowed)
            raise Refused(
                400,
                f"[Parameter error] System requires at least {least} clients to consume data "
                f"together, please increase the number of clients or totalCount value {count}",
            )
        select_big = request.selectBig if request.HasField("selectBig") else True
        return BoundTerms(session_key, count, select_big)

    # ------------------------------------------------------------------ heartbeat

    def heartbeat(self, request: Any) -> Any:
        client_id, group_name = check_client_id(request.clientId), check_group(request.groupName)
        self._check_active(client_id)
        group, member = self._groups.balanced_member(group_name, client_id, self._clock())
        self._note(request, group, member)
        reply = _pb.HeartResponseM2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            authorizedInfo=self._authorized(),
        )
        event = self.faults.next_event(group, client_id)
        if event is not None:
            reply.event.CopyFrom(self._event(event, member, group))
        reply.notAllocated = group.balance.not_allocated
        self._add_flow_rules(request, group_name, reply)
        return reply

    def _note(self, request: Any, group: Group, member: Member) -> None:
        """Store the client's report and acknowledgement."""
        if request.reportSubscribeInfo:
            member.partitions = _held(request.subscribeInfo)
        member.reported = True
        if request.HasField("event") and request.event.rebalanceId > 0:
            group.balance.acknowledge(member.client_id)

    def _event(self, event: Event, member: Member, group: Group) -> Any:
        texts = [
            strings.format_subscribe_info(
                strings.SubscribeInfo(member.client_id, group.name, node, partition)
            )
            for partition in event.partitions
            if (node := self._node(partition)) is not None
        ]
        return _pb.EventProto(
            rebalanceId=event.rebalance_id, opType=int(event.type), subscribeInfo=texts
        )

    def _node(self, partition: Partition) -> BrokerNode | None:
        record = self._cluster.brokers.get(partition.broker_id)
        return BrokerNode(record.broker_id, record.host, record.port) if record else None

    # ------------------------------------------------------------------ flow control

    def _add_flow_rules(self, request: Any, group: str, reply: Any) -> None:
        """Add the rules in force, for clients that request them by sending the ids they know."""
        requested = request.HasField("defFlowCheckId") or request.HasField("groupFlowCheckId")
        if not requested:
            return
        controls = self._cluster.controls
        reply.ssdStoreId = reply.qryPriorityId = UNDEFINED
        flow_id, text = _in_force(controls.setting)
        reply.defFlowCheckId = flow_id
        reply.defFlowControlInfo = text if request.defFlowCheckId != flow_id else _NO_RULES
        own = controls.groups.get(group)
        flow_id, text = _in_force(own)
        reply.groupFlowCheckId = flow_id
        reply.groupFlowControlInfo = text if request.groupFlowCheckId != flow_id else _NO_RULES
        if own is not None and own.flow.enabled:
            reply.qryPriorityId = own.query_priority


def ops_task(controls: Controls, group: Group, sent_ids: Any) -> Any:
    """Return flow rules and reset id for a client-balanced member, which sent `sent_ids`."""
    task = _pb.OpsTaskInfo()
    flow_id, text = _in_force(controls.setting)
    if flow_id != UNDEFINED:
        task.defFlowCheckId = flow_id
        if sent_ids.defFlowCheckId != flow_id:
            task.defFlowControlInfo = text
    own = controls.groups.get(group.name)
    flow_id, text = _in_force(own)
    if own is not None and flow_id != UNDEFINED:
        task.groupFlowCheckId, task.qryPriorityId = flow_id, own.query_priority
        if sent_ids.groupFlowCheckId != flow_id:
            task.groupFlowControlInfo = text
    if group.from_max_id not in (UNDEFINED, sent_ids.csmFrmMaxOffsetCtrlId):
        task.csmFrmMaxOffsetCtrlId = group.from_max_id
    return task


def _in_force(record: ClusterSetting | GroupControl | None) -> tuple[int, str]:
    """Return id and text of the flow rules in force; `UNDEFINED` and a blank if there are none."""
    if record is None or not record.flow.enabled:
        return UNDEFINED, _NO_RULES
    return record.audit.serial_id, record.flow.text


# ---------------------------------------------------------------------------- checks


def check_deployed(cluster: Cluster, topics: Iterable[str]) -> None:
    """Raise `Refused` 431 for topics that are on no broker."""
    missing = [topic for topic in topics if not cluster.is_deployed(topic)]
    if missing:
        raise Refused(431, f"Requested topic [[{', '.join(missing)}]] not deployed!")


def read_conditions(texts: Iterable[str], topics: list[str]) -> dict[str, frozenset[str]]:
    """Return the requested filters by topic. Raises `Refused` 400 for topics not subscribed."""
    conditions: dict[str, frozenset[str]] = {}
    for text in texts:
        try:
            topic, items = strings.parse_topic_condition(text)
        except (TubeMQError, ValueError) as error:
            raise RpcFault(INVOCATION_FAILURE) from error
        conditions[topic] = items
    unsubscribed = sorted(set(conditions).difference(topics))
    if unsubscribed:
        raise Refused(400, f"Filter's Topic not subscribed :[{', '.join(unsubscribed)}]")
    return conditions


def check_allowed(
    cluster: Cluster, request: Any, topics: Iterable[str], conditions: dict[str, frozenset[str]]
) -> None:
    """Raise `Refused` 450 or 455 where a topic is under authorisation control."""
    watched = [topic for topic in topics if cluster.topics[topic].auth_control]
    cluster.controls.check_consumer(
        request.clientId.strip(), request.groupName.strip(), watched, conditions
    )


def _starts(text: str, topics: list[str]) -> dict[str, int]:
    """Parse ``broker:topic:partition=offset[,…]`` into offsets by the text before the equals sign.

    Real masters check only shape and topic, and accept negative offsets.
    """
    starts = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        key, equals, offset = item.partition("=")
        parts = key.split(":")
        if not equals or len(parts) != _KEY_PARTS:
            raise Refused(
                400,
                f"[Parameter error] unformatted Partition-Offset value : {item} must be "
                "aa:bbb:ccc=val1,ddd:eee:ff=val2",
            )
        if parts[1] not in topics:
            raise Refused(
                400,
                f"[Parameter error] wrong offset reset for unsubscribed topic: reset item is "
                f"{item}, request topicList are [{', '.join(topics)}]",
            )
        try:
            starts[key] = int(offset)
        except ValueError as error:
            raise Refused(
                400, f"[Parameter error] required long type value of {item}' Offset!"
            ) from error
    return starts


def _held(texts: Iterable[str]) -> tuple[Partition, ...]:
    try:
        return tuple(strings.parse_subscribe_info(text).partition for text in texts)
    except (TubeMQError, ValueError) as error:
        raise RpcFault(INVOCATION_FAILURE) from error
