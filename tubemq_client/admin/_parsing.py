"""Parsing of masters' and brokers' JSON rows into the values of `model`.

Servers also write booleans as text and a dash for unknown values; both are parsed. A missing field
raises `KeyError`, which callers turn into `errors.ProtocolViolation` with `_web.parsed`. Shapes are
those of upstream's `*Handler.java` and `BrokerAdminServlet.java`, verified on a server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tubemq_client.admin.model import (
    PROPERTY_FIELDS,
    BrokerInfo,
    BrokerStatus,
    ClusterSettings,
    ConsumeControl,
    GroupDetail,
    GroupMember,
    MasterGroup,
    MasterNode,
    PartitionPosition,
    PositionSample,
    ResourceControl,
    TopicControl,
    TopicDeployment,
    TopicInfo,
    TopicProperties,
)
from tubemq_client.model import PARTITIONS_PER_STORE, Partition

__all__ = [
    "broker_info",
    "broker_status",
    "cluster_settings",
    "consume_control",
    "ends_by_partition",
    "flag",
    "group_detail",
    "master_group",
    "position_rows",
    "resource_control",
    "samples",
    "topic_control",
    "topic_info",
]

Row = Mapping[str, Any]

_UNDEFINED = -2
_STATUS = {0: "normal", 1: "deleted"}


def flag(value: object) -> bool | None:
    """Return a boolean, written as such or as text; None for a dash or nothing."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(str(value).strip().lower())


def _number_or_none(value: object) -> int | None:
    """Return a number, None for TubeMQ's "no value"."""
    number = int(str(value))
    return None if number == _UNDEFINED else number


def properties(row: Row) -> TopicProperties:
    """Return the topic properties in a row; absent ones are None."""
    return TopicProperties(**{name: row.get(wire) for name, wire in PROPERTY_FIELDS.items()})


def topic_info(row: Row) -> TopicInfo:
    return TopicInfo(
        name=str(row["topicName"]),
        max_message_mb=int(row["maxMsgSizeInMB"]),
        partitions=int(row["totalCfgNumPart"]),
        running_partitions=int(row["totalRunNumPartCount"]),
        accepts_publish=bool(flag(row["isSrvAcceptPublish"])),
        accepts_subscribe=bool(flag(row["isSrvAcceptSubscribe"])),
        deployments=tuple(
            sorted((_deployment(item) for item in row["topicInfo"]), key=lambda d: d.broker_id)
        ),
    )


def _deployment(row: Row) -> TopicDeployment:
    running = row.get("runInfo") or {}
    return TopicDeployment(
        broker_id=int(row["brokerId"]),
        host=str(row["brokerIp"]),
        port=int(row["brokerPort"]),
        status=_STATUS.get(int(row["topicStatusId"]), "removing"),
        properties=properties(row),
        publishing=flag(running.get("acceptPublish")),
        subscribing=flag(running.get("acceptSubscribe")),
    )


def broker_info(row: Row) -> BrokerInfo:
    return BrokerInfo(
        broker_id=int(row["brokerId"]),
        host=str(row["brokerIp"]),
        port=int(row["brokerPort"]),
        tls_port=int(row["brokerTLSPort"]),
        web_port=int(row["brokerWebPort"]),
        manage_status=str(row["manageStatus"]),
        region_id=int(row["regionId"]),
        group_id=int(row["groupId"]),
        properties=properties(row),
    )


def broker_status(row: Row) -> BrokerStatus:
    return BrokerStatus(
        broker_id=int(row["brokerId"]),
        host=str(row["brokerIp"]),
        port=int(row["brokerPort"]),
        manage_status=str(row["manageStatus"]),
        run_status=str(row["runStatus"]),
        sub_status=str(row["subStatus"]),
        changed=flag(row["isConfChanged"]),
        loaded=flag(row["isConfLoaded"]),
        online=flag(row["isBrokerOnline"]),
        accepts_publish=flag(row["acceptPublish"]),
        accepts_subscribe=flag(row["acceptSubscribe"]),
        tls=flag(row["enableTLS"]),
        abnormal=bool(flag(row["isRepAbnormal"])),
        forbidden=bool(flag(row["isAutoForbidden"])),
    )


def group_detail(body: Row) -> GroupDetail:
    """Parse a reply to `admin_query_consume_group_detail`, whose fields are at the top level."""
    return GroupDetail(
        name=str(body["consumeGroup"]),
        balance=str(body["isBandConsume"]),
        topics=tuple(sorted(body["topicSet"])),
        filters={t: tuple(sorted(items)) for t, items in sorted(body["filterConds"].items())},
        members=tuple(sorted(map(_member, body["data"]), key=lambda m: m.client_id)),
        rebalance=dict(body.get("rebInfo") or {}),
    )


def _member(row: Row) -> GroupMember:
    return GroupMember(
        client_id=str(row["consumerId"]),
        host=str(row["receivedFrom"]),
        tls=bool(flag(row["isOverTLS"])),
        partitions=tuple(
            sorted(
                Partition(
                    int(str(part["brokerAddr"]).partition(":")[0]),
                    str(part["topicName"]),
                    int(part["partId"]),
                )
                for part in row["parInfo"]
            )
        ),
        source_count=_number_or_none(row.get("sourceCount", _UNDEFINED)),
        node_id=_number_or_none(row.get("nodeId", _UNDEFINED)),
    )


def consume_control(row: Row) -> ConsumeControl:
    filters = [item for item in str(row["filterConds"]).split(",") if item]
    return ConsumeControl(
        group=str(row["groupName"]),
        topic=str(row["topicName"]),
        enabled=bool(flag(row["consumeEnable"])),
        reason=str(row["disableCsmRsn"]),
        filter_required=bool(flag(row["filterEnable"])),
        filters=tuple(sorted(filters)),
    )


def resource_control(row: Row) -> ResourceControl:
    return ResourceControl(
        group=str(row["groupName"]),
        check_resources=bool(flag(row["resCheckEnable"])),
        clients_per_broker=int(row["alwdBrokerClientRate"]),
        query_priority=_number_or_none(row["qryPriorityId"]),
        flow_control=bool(flag(row["flowCtrlEnable"])),
        flow_rules=_rules(row["flowCtrlInfo"]),
    )


def _rules(value: object) -> tuple[Mapping[str, Any], ...]:
    """Parse flow rules, which some replies hold as JSON text."""
    if isinstance(value, str):
        value = json.loads(value) if value.strip() else []
    if not isinstance(value, list):
        raise TypeError(f"flow rules are {type(value).__name__}, not a list")
    return tuple(value)


def topic_control(row: Row) -> TopicControl:
    return TopicControl(
        topic=str(row["topicName"]),
        authorisation=bool(flag(row["enableAuthControl"])),
        max_message_mb=_number_or_none(row["maxMsgSizeInMB"]),
    )


def cluster_settings(row: Row) -> ClusterSettings:
    return ClusterSettings(
        max_message_mb=_number_or_none(row["maxMsgSizeInMB"]),
        query_priority=_number_or_none(row["qryPriorityId"]),
        flow_control=bool(flag(row["flowCtrlEnable"])),
        flow_rules=_rules(row["flowCtrlInfo"]),
        properties=properties(row),
    )


def master_group(body: Row) -> MasterGroup:
    return MasterGroup(
        name=str(body["groupName"]),
        status=str(body["groupStatus"]),
        nodes=tuple(
            MasterNode(
                str(row["name"]),
                str(row["hostName"]),
                int(row["port"]),
                str((row.get("statusInfo") or {}).get("nodeStatus", "-")),
            )
            for row in body["data"]
        ),
    )


def ends_by_partition(body: Row, broker_id: int) -> dict[Partition, tuple[int, int]]:
    """Parse minimum and end in memory of every partition in a reply to `admin_query_pubinfo`."""
    return {
        Partition(broker_id, str(entry["topicName"]), int(row["partitionId"])): (
            int(row["offsetMin"]),
            int(row["offsetMax"]),
        )
        for entry in body["dataSet"]
        for row in entry["offsetInfo"]
    }


def position_rows(
    body: Row, broker_id: int, ends: Mapping[Partition, tuple[int, int]]
) -> dict[str, list[PartitionPosition]]:
    """Parse positions by group in a reply to `admin_query_offset`."""
    by_group: dict[str, list[PartitionPosition]] = {}
    for entry in body.get("dataSet", []):
        rows = by_group.setdefault(str(entry["groupName"]), [])
        for info in entry["subInfo"]:
            topic = str(info["topicName"])
            for row in info["offsets"]:
                partition = Partition(broker_id, topic, int(row["partitionId"]))
                rows.append(_position(row, partition, ends.get(partition, (0, 0))))
    return by_group


def _position(row: Row, partition: Partition, ends: tuple[int, int]) -> PartitionPosition:
    return PartitionPosition(
        partition,
        position=_number_or_none(row["curOffset"]),
        in_flight=_number_or_none(row["flightOffset"]) or 0,
        min_offset=ends[0],
        max_offset=max(ends[1], _number_or_none(row["offsetMax"]) or 0),
    )


def samples(document: Row) -> list[PositionSample]:
    """Parse a record that brokers write about a group (upstream's `OffsetRecordService.java`)."""
    return [
        PositionSample(
            time_ms=int(document["dt"]),
            group=str(document["group"]),
            partition=Partition(
                int(document["bId"]),
                str(entry["topic"]),
                int(store["storeId"]) * PARTITIONS_PER_STORE + int(part["partId"]),
            ),
            position=int(part["iCfm"]),
            in_flight=int(part["iFlt"]),
            min_offset=int(store["iMin"]),
            max_offset=int(store["iMax"]),
            online=bool(document["on"]),
        )
        for entry in document["records"]
        for store in entry["offsets"]
        for part in store["parts"]
    ]
