"""HTTP administration of groups that are online: members, assignments, and moving a group.

Methods of the master, from parameters to body; `http_admin` finds and calls them. Assignments shown
are those that members have reported. Changes last as long as the group has members.
"""

from __future__ import annotations

from tubemq_client.embedded.groups import Group, GroupKind, Member
from tubemq_client.embedded.http_params import BadParameter, Params
from tubemq_client.embedded.http_records import Method, Reply
from tubemq_client.embedded.http_reply import rows, wrapper
from tubemq_client.embedded.master import Master
from tubemq_client.model import Partition

__all__ = ["GroupAdmin"]


class GroupAdmin:
    """Answers methods about groups against one master's state."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self.reads: dict[str, Method] = {
            "admin_query_sub_info": self._subscriptions,
            "admin_query_consume_group_detail": self._detail,
            "admin_query_client_balance_group_set": self._client_balanced,
        }
        self.writes: dict[str, Method] = {
            "admin_rebalance_group_allocate": self._rebalance,
            "admin_set_client_balance_group_consume_from_max": self._consume_from_max,
        }

    def _online(self) -> list[Group]:
        groups = self._master.groups
        return [group for name in groups.names() if (group := groups.find(name)) is not None]

    def _subscriptions(self, params: Params) -> Reply:
        names = params.groups("consumeGroup") or params.groups()
        topics = set(params.topics())
        return rows(
            [
                {
                    "consumeGroup": group.name,
                    "topicSet": sorted(group.topics),
                    "consumerNum": len(group.members),
                }
                for group in self._online()
                if (not names or group.name in names) and (not topics or topics & group.topics)
            ]
        )

    def _client_balanced(self, _params: Params) -> Reply:
        return rows(
            [group.name for group in self._online() if group.kind is GroupKind.CLIENT_BALANCE]
        )

    # ------------------------------------------------------------------ one group

    def _detail(self, params: Params) -> Reply:
        name = params.text("groupName") or params.required("consumeGroup")
        group = self._master.groups.find(name)
        members = list(group.members.values()) if group else []
        return {
            **wrapper(),
            "count": len(members),
            "topicSet": sorted(group.topics) if group else [],
            "consumeGroup": name,
            "re-rebalance": _rejoining(group) if group else {},
            **(_kind(group) if group else {"isBandConsume": GroupKind.UNBOUND}),
            "rebInfo": _checked(group),
            "filterConds": {
                topic: sorted(items)
                for topic, items in sorted(group.conditions.items() if group else ())
            },
            "data": [self._member(group, member) for member in members] if group else [],
        }

    def _member(self, group: Group, member: Member) -> Reply:
        return {
            "consumerId": member.client_id,
            "receivedFrom": member.host,
            "isOverTLS": False,
            **_member_extras(group, member),
            "parCount": len(member.partitions),
            "parInfo": [
                {
                    "partId": partition.partition_id,
                    "brokerAddr": self._address(partition),
                    "topicName": partition.topic,
                }
                for partition in member.partitions
            ],
        }

    def _address(self, partition: Partition) -> str:
        record = self._master.cluster.brokers.get(partition.broker_id)
        number = partition.broker_id
        return f"{number}:{record.host}:{record.port}" if record else f"{number}: : "

    # ------------------------------------------------------------------ changes

    def _rebalance(self, params: Params) -> Reply:
        """Move partitions away from members; unknown members are ignored, as on a real master."""
        params.user("modifyUser")
        names = params.groups(required=True)
        params.required("consumerId")
        clients = params.items("consumerId")
        wait = params.number("reJoinWait", 0) or 0
        for name in names:
            group = self._master.groups.find(name)
            if group is None or group.kind is GroupKind.CLIENT_BALANCE:
                raise BadParameter(f"The group({name}) not online!")
            for client_id in clients:
                if client_id in group.members:
                    group.balance.suspend_member(client_id, wait, self._master.clock())
        return {**wrapper(), "data": []}

    def _consume_from_max(self, params: Params) -> Reply:
        params.user("modifyUser")
        names = params.groups(required=True)
        selected = [
            group
            for group in self._online()
            if group.name in names and group.kind is GroupKind.CLIENT_BALANCE
        ]
        if not selected:
            raise BadParameter("all consumer groups are not client balance groups")
        for group in selected:
            group.from_max_id = max(self._master.clock(), group.from_max_id + 1)
        return {**wrapper(), "data": []}


def _kind(group: Group) -> Reply:
    shown: Reply = {"isBandConsume": group.kind}
    if group.kind is GroupKind.CLIENT_BALANCE:
        return {**shown, "topicMetaId": group.meta_id, "metaDetails": group.meta}
    if group.bound is not None:
        shown |= {
            "isNotAllocate": group.balance.not_allocated,
            "sessionKey": group.bound.session_key,
            "isSelectBig": group.bound.select_big,
            "reqSourceCount": group.bound.total_count,
            "curSourceCount": len(group.members),
            "rebalanceCheckTime": group.balance.reset_rounds,
        }
    return shown


def _checked(group: Group | None) -> Reply:
    check = group.balance.check if group else None
    if check is None:
        return {"isRebalanced": False}
    return {
        "isRebalanced": True,
        "checkPasted": check.passed,
        "defBClientRate": check.default,
        "confBClientRate": check.configured,
        "curBClientRate": check.current,
    }


def _rejoining(group: Group) -> Reply:
    return {
        client_id: {
            "clientId": client_id,
            "status": 2 if exclusion.begun else 0,
            "createTime": exclusion.since_ms,
            "reqType": 1,
            "waitDuration": exclusion.rounds,
        }
        for client_id, exclusion in sorted(group.balance.suspended.items())
    }


def _member_extras(group: Group, member: Member) -> Reply:
    if group.kind is GroupKind.CLIENT_BALANCE:
        return {"sourceCount": member.source_count, "nodeId": member.node_id}
    if group.bound is None:
        return {}
    return {
        "initReSetPartCount": len(member.start_offsets),
        "initReSetPartInfo": [
            {"partitionKey": key, "Offset": offset}
            for key, offset in sorted(member.start_offsets.items())
        ],
    }
