"""The master's RPCs: producers, client-balanced consumers, topic metadata.

Handlers are plain calls from request message to reply message, with a real master's order of
checks, codes and string formats. Members and producers live in memory only, as on a real master:
one that forgets them answers 411 and clients register again. Server-balanced consumers (RPC 4 and
5) are answered by `balance_rpc` and given their partitions by `balancer`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from tubemq_client import _pb
from tubemq_client._wire import methods, strings
from tubemq_client.embedded.balance_rpc import (
    BalanceRpc,
    ClusterOffers,
    check_allowed,
    check_deployed,
    ops_task,
    read_conditions,
)
from tubemq_client.embedded.balancer import Balancer
from tubemq_client.embedded.broker import Clock
from tubemq_client.embedded.checks import (
    INVOCATION_FAILURE,
    STANDBY,
    Refused,
    RpcFault,
    check_client_id,
    check_group,
    check_host,
    check_published_topics,
    check_topics,
)
from tubemq_client.embedded.cluster import UNDEFINED, Cluster
from tubemq_client.embedded.groups import Group, Groups, Join, Member, Producers
from tubemq_client.embedded.options import Switches
from tubemq_client.embedded.scripted_replies import ScriptedPages, ScriptedReplies
from tubemq_client.errors import TubeMQError
from tubemq_client.model import BrokerNode

__all__ = ["Master"]

_DEFAULT_BROKER_PORT = 8123


class _Handler(NamedTuple):
    serve: Callable[[Any], Any]
    refuse: Callable[[Refused], Any]


class Master:
    """State and RPCs of one master. `standby` makes it answer like a stand-by."""

    def __init__(self, cluster: Cluster, switches: Switches, clock: Clock) -> None:
        self.cluster = cluster
        self.switches = switches
        self.clock = clock
        self.groups = Groups(switches.member_timeout_ms)
        self.producers = Producers(switches.member_timeout_ms)
        self.standby = False
        self.silent: set[int] = set()
        self.scripted = ScriptedReplies()
        self.scripted_pages = ScriptedPages()
        self.address = "127.0.0.1"
        self._started_ms = clock()
        offers = ClusterOffers(cluster, clock, switches.max_brokers_per_member)
        random = Random(switches.balance_seed)  # noqa: S311 - deals partitions, not secrets
        self.balancer = Balancer(self.groups, offers, random)
        self.balance = BalanceRpc(
            cluster,
            self.groups,
            clock,
            check_active=self._check_active,
            authorized=self._authorized,
            default_rate=switches.max_brokers_per_member,
            check_reset=switches.start_offset_reset_check,
        )
        self.handlers: dict[int, _Handler] = {
            methods.REGISTER_PRODUCER.id: _Handler(self._register_producer, _refuse_register_p),
            methods.HEARTBEAT_PRODUCER.id: _Handler(self._heartbeat_producer, _refuse_heartbeat_p),
            methods.CLOSE_PRODUCER.id: _Handler(self._close_producer, _refuse_close_p),
            methods.REGISTER_CONSUMER.id: _Handler(self.balance.register, _refuse_join),
            methods.HEARTBEAT_CONSUMER.id: _Handler(self.balance.heartbeat, _refuse_beat),
            methods.CLOSE_CONSUMER.id: _Handler(self._close_consumer, _refuse_close_c),
            methods.REGISTER_CONSUMER_V2.id: _Handler(self._register_consumer, _refuse_register_c),
            methods.HEARTBEAT_CONSUMER_V2.id: _Handler(
                self._heartbeat_consumer, _refuse_heartbeat_c
            ),
            methods.GET_PARTITION_META.id: _Handler(self._partition_meta, _refuse_meta),
        }

    def handle(self, method_id: int, request: Any) -> Any | None:
        """Return the reply to `request`, None if it must stay unanswered."""
        if method_id in self.silent:
            return None
        handler = self.handlers[method_id]
        try:
            self.scripted.check(method_id)
            return handler.serve(request)
        except Refused as refusal:
            return handler.refuse(refusal)

    def sweep(self) -> None:
        """Drop members and producers that have timed out."""
        now_ms = self.clock()
        self.groups.sweep(now_ms)
        self.producers.sweep(now_ms)

    def forget_members(self) -> None:
        """Lose all registrations, as a fail-over does: heartbeats now get 411."""
        self.groups.clear()
        self.producers.clear()
        self.balancer.restart()

    # ------------------------------------------------------------------ producers

    def _register_producer(self, request: Any) -> Any:
        client_id = check_client_id(request.clientId)
        check_host(request.hostName)
        self._check_active(client_id)
        topics = check_published_topics(request.topicList)
        self.producers.register(client_id, topics, self.clock())
        return _pb.RegisterResponseM2P(
            success=True,
            errCode=200,
            errMsg="OK!",
            brokerCheckSum=self.cluster.broker_list_id,
            brokerInfos=self._broker_list(),
            authorizedInfo=self._authorized(),
            appdConfig=self._client_config(request.appdConfig.configId),
        )

    def _heartbeat_producer(self, request: Any) -> Any:
        client_id = check_client_id(request.clientId)
        check_host(request.hostName)
        self._check_active(client_id)
        topics = check_published_topics(request.topicList)
        self.producers.renew(client_id, topics, self.clock())
        reply = _pb.HeartResponseM2P(
            success=True,
            errCode=200,
            errMsg="OK!",
            brokerCheckSum=self.cluster.broker_list_id,
            topicInfos=self._topic_routes(topics),
            authorizedInfo=self._authorized(),
        )
        if request.brokerCheckSum != self.cluster.broker_list_id:
            reply.brokerInfos.extend(self._broker_list())
        reply.appdConfig.CopyFrom(self._client_config(request.appdConfig.configId))
        return reply

    def _close_producer(self, request: Any) -> Any:
        client_id = check_client_id(request.clientId)
        self._check_active(client_id)
        self.producers.remove(client_id)
        return _pb.CloseResponseM2P(success=True, errCode=200, errMsg="OK!")

    def _topic_routes(self, topics: frozenset[str]) -> list[str]:
        now_ms = self.clock()
        texts = []
        for topic in sorted(topics):
            routes = tuple(
                strings.BrokerRoute(record.broker_id, record.props.partitions, record.props.stores)
                for record in self.cluster.deployments(topic)
                if self.cluster.publishable(record, now_ms)
            )
            if routes:
                texts.append(self._route_text(topic, routes))
        return texts

    def _route_text(self, topic: str, routes: tuple[strings.BrokerRoute, ...]) -> str:
        own = self.cluster.topics[topic].max_message_mb
        limit = own * 1024 * 1024 if own else None
        text = strings.format_topic_info(strings.TopicRoutes(topic, routes, limit))
        # Masters keep the separator when the topic has no size limit.
        return text if limit else f"{text}#"

    def _client_config(self, known_id: int) -> Any:
        # Without a cluster setting its id is "undefined".
        setting = self.cluster.controls.setting
        config_id = setting.audit.serial_id if setting else UNDEFINED
        config = _pb.ApprovedClientConfig(configId=config_id)
        if known_id != config_id:
            most_mb = setting.max_message_mb if setting else self.switches.max_message_mb
            config.maxMsgSize = most_mb * 1024 * 1024
        return config

    # ------------------------------------------------------------------ consumers

    def _register_consumer(self, request: Any) -> Any:
        client_id = check_client_id(request.clientId)
        check_host(request.hostName)
        group_name = check_group(request.groupName)
        self._check_active(client_id)
        topics = check_topics(request.topicList)
        check_deployed(self.cluster, topics)
        source_count, node_id = _sources(request.sourceCount, request.nodeId)
        conditions = read_conditions(request.topicCondition, topics)
        check_allowed(self.cluster, request, topics, conditions)
        join = Join(
            client_id,
            group_name,
            request.hostName,
            frozenset(topics),
            conditions,
            source_count,
            node_id,
        )
        group = self.groups.join(join, self.clock())
        return _pb.RegisterResponseM2CV2(
            errCode=200,
            errMsg="OK!",
            brokerConfigId=self.cluster.broker_list_id,
            brokerConfigList=self._broker_list(known_id=request.subRepInfo.brokerConfigId),
            opsTaskInfo=ops_task(self.cluster.controls, group, request.opsTaskInfo),
            authorizedInfo=self._authorized(),
        )

    def _heartbeat_consumer(self, request: Any) -> Any:
        group, member = self._known_member(request)
        report = request.subRepInfo
        if report.reportSubInfo:
            member.partitions = tuple(
                partition for text in report.partSubInfo for partition in _reported(text)
            )
        reply = _pb.HeartResponseM2CV2(
            errCode=200,
            errMsg="OK!",
            brokerConfigId=self.cluster.broker_list_id,
            brokerConfigList=self._broker_list(known_id=report.brokerConfigId),
            opsTaskInfo=ops_task(self.cluster.controls, group, request.opsTaskInfo),
            authorizedInfo=self._authorized(),
        )
        if self._meta_is_stale(member, report):
            self._refresh_meta(group)
            reply.topicMetaInfoId = group.meta_id
            if report.topicMetaInfoId != group.meta_id:
                reply.topicMetaInfoList.extend(group.meta)
        return reply

    def _meta_is_stale(self, member: Member, report: Any) -> bool:
        """Return True if the client has not fetched topic meta for so long that the master pushes
        it."""
        return (
            report.HasField("lstAssignedTime")
            and report.lstAssignedTime >= 0
            and bool(member.partitions)
            and self.clock() - report.lstAssignedTime > self.switches.meta_refresh_ms
        )

    def _partition_meta(self, request: Any) -> Any:
        group, _ = self._known_member(request)
        self._refresh_meta(group)
        changed = request.topicMetaInfoId != group.meta_id
        return _pb.GetPartMetaResponseM2C(
            errCode=200,
            errMsg="OK!",
            brokerConfigId=self.cluster.broker_list_id,
            topicMetaInfoId=group.meta_id,
            topicMetaInfoList=group.meta if changed else [],
            brokerConfigList=self._broker_list(known_id=request.brokerConfigId),
        )

    def _close_consumer(self, request: Any) -> Any:
        client_id, group_name = check_client_id(request.clientId), check_group(request.groupName)
        self._check_active(client_id)
        self.groups.leave(group_name, client_id)
        return _pb.CloseResponseM2C(success=True, errCode=200, errMsg="OK!")

    def _known_member(self, request: Any) -> tuple[Group, Member]:
        client_id, group_name = check_client_id(request.clientId), check_group(request.groupName)
        self._check_active(client_id)
        return self.groups.member(group_name, client_id, self.clock())

    def _refresh_meta(self, group: Group) -> None:
        now_ms = self.clock()
        texts = []
        disabled = self.cluster.controls.disabled_topics(group.name)
        for topic in sorted(group.topics):
            brokers = tuple(
                strings.BrokerMeta(
                    record.broker_id,
                    record.props.stores,
                    record.props.partitions,
                    topic not in disabled and self.cluster.subscribable(record, now_ms),
                )
                for record in self.cluster.deployments(topic)
            )
            texts.append(strings.format_topic_meta(strings.TopicMeta(topic, brokers)))
        group.update_meta(texts, now_ms)

    # ------------------------------------------------------------------ shared

    def _check_active(self, client_id: str) -> None:
        if self.standby:
            raise RpcFault(
                STANDBY,
                f"{self.address} is not master now. the connecting client id is {client_id}",
            )

    def _broker_list(self, known_id: int | None = None) -> list[str]:
        """Return broker addresses; an empty list if the client knows the current one."""
        if known_id == self.cluster.broker_list_id or not self.cluster.loaded:
            return []
        return [
            strings.format_broker(
                BrokerNode(record.broker_id, record.host, record.port), _DEFAULT_BROKER_PORT
            )
            for _, record in sorted(self.cluster.brokers.items())
        ]

    def _authorized(self) -> Any:
        return _pb.MasterAuthorizedInfo(visitAuthorizedToken=self._started_ms)


def _sources(count: int, node_id: int) -> tuple[int, int]:
    """Return the requested group size and node number; both undefined if the size is not fixed."""
    if count <= 0:
        return UNDEFINED, UNDEFINED
    if not 0 <= node_id < count:
        raise Refused(400, "Request nodeId value must be between in [0, sourceCount-1]!")
    return count, node_id


def _reported(text: str) -> tuple[Any, ...]:
    try:
        return strings.parse_part_sub_info(text)
    except (TubeMQError, ValueError) as error:
        raise RpcFault(INVOCATION_FAILURE) from error


def _refuse_register_p(refusal: Refused) -> Any:
    return _pb.RegisterResponseM2P(
        success=False, errCode=refusal.code, errMsg=refusal.text, brokerCheckSum=-1
    )


def _refuse_heartbeat_p(refusal: Refused) -> Any:
    return _pb.HeartResponseM2P(
        success=False, errCode=refusal.code, errMsg=refusal.text, brokerCheckSum=-1
    )


def _refuse_close_p(refusal: Refused) -> Any:
    return _pb.CloseResponseM2P(success=False, errCode=refusal.code, errMsg=refusal.text)


def _refuse_join(refusal: Refused) -> Any:
    return _pb.RegisterResponseM2C(success=False, errCode=refusal.code, errMsg=refusal.text)


def _refuse_beat(refusal: Refused) -> Any:
    return _pb.HeartResponseM2C(success=False, errCode=refusal.code, errMsg=refusal.text)


def _refuse_close_c(refusal: Refused) -> Any:
    return _pb.CloseResponseM2C(success=False, errCode=refusal.code, errMsg=refusal.text)


def _refuse_register_c(refusal: Refused) -> Any:
    return _pb.RegisterResponseM2CV2(errCode=refusal.code, errMsg=refusal.text)


def _refuse_heartbeat_c(refusal: Refused) -> Any:
    return _pb.HeartResponseM2CV2(errCode=refusal.code, errMsg=refusal.text)


def _refuse_meta(refusal: Refused) -> Any:
    return _pb.GetPartMetaResponseM2C(errCode=refusal.code, errMsg=refusal.text)
