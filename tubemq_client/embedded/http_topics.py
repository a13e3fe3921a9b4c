"""Topics in a master's HTTP replies: per-broker rows, per-topic details and summaries.

Pure functions over `Cluster`. The ``runInfo`` part shows what producers can see now and holds
dashes where they see nothing, as on a real master.
"""

from __future__ import annotations

from typing import Any

from tubemq_client.embedded.cluster import UNDEFINED, Cluster, Deployment
from tubemq_client.embedded.http_reply import audit_fields, props_fields

__all__ = ["topic_counts", "topic_details", "topic_row", "topic_settings", "topic_summary"]


def topic_row(cluster: Cluster, record: Deployment) -> dict[str, Any]:
    """Return the row of one topic on one broker, as configured."""
    broker = cluster.brokers[record.broker_id]
    return {
        "topicName": record.topic,
        "brokerId": record.broker_id,
        "topicNameId": UNDEFINED,
        "brokerIp": broker.host,
        "brokerPort": broker.port,
        "topicStatusId": record.status,
        **props_fields(record.props),
        **audit_fields(record.audit),
    }


def topic_details(
    cluster: Cluster, topic: str, records: list[Deployment], now_ms: int
) -> dict[str, Any]:
    """Return a topic with all its rows (``admin_query_topic_info``)."""
    return {
        "topicName": topic,
        "maxMsgSizeInMB": cluster.message_mb(topic),
        "topicInfo": _deployment_rows(cluster, records, now_ms),
        **_deployment_totals(cluster, records, now_ms),
        "authData": {},
    }


def topic_settings(
    cluster: Cluster, topic: str, records: list[Deployment], now_ms: int
) -> dict[str, Any]:
    """Return a topic with its settings and all its rows (``admin_query_topic_deploy_info``)."""
    record = cluster.topics[topic]
    return {
        "topicName": topic,
        "topicNameId": record.topic_name_id,
        "enableAuthControl": record.auth_control,
        "maxMsgSizeInMB": cluster.message_mb(topic),
        **audit_fields(record.audit),
        "deployInfo": _deployment_rows(cluster, records, now_ms),
        **_deployment_totals(cluster, records, now_ms),
    }


def topic_counts(
    cluster: Cluster, topic: str, records: list[Deployment], now_ms: int
) -> dict[str, Any]:
    """Return counts of what is configured, runs and accepts (``…_topic_broker_config_info``)."""
    running = [record for record in records if cluster.publishable(record, now_ms)]
    readable = [record for record in records if cluster.subscribable(record, now_ms)]
    online = [record for record in records if cluster.is_online(record.broker_id, now_ms)]
    counts: dict[str, Any] = {"topicName": topic}
    for name, count in (("broker", len), ("store", _stores), ("part", _all_partitions)):
        counts[f"{name}TotalCfgCnt"] = count(records)
        counts[f"{name}TotalRunCnt"] = count(online)
    for name, count in (("broker", len), ("store", _stores), ("part", _all_partitions)):
        counts[f"{name}AccPubTotalCnt"] = count(running)
        counts[f"{name}AccSubTotalCnt"] = count(readable)
    return {
        **counts,
        "topicSrvAccPubStatus": bool(running),
        "topicSrvAccSubStatus": bool(readable),
        "enableAuthControl": cluster.topics[topic].auth_control,
    }


def topic_summary(
    cluster: Cluster, topic: str, records: list[Deployment], now_ms: int
) -> dict[str, Any]:
    """Return a topic's totals (``admin_query_cluster_topic_view``)."""
    totals = _totals(cluster, records, now_ms)
    return {
        "topicName": topic,
        "totalCfgBrokerCnt": len(records),
        "totalCfgNumStore": totals["configured_stores"],
        "totalRunNumStore": totals["running_stores"],
        "totalCfgNumPart": totals["configured_partitions"],
        "totalRunNumPartCount": totals["running_partitions"],
        "isSrvAcceptPublish": totals["publish"],
        "isSrvAcceptSubscribe": totals["subscribe"],
        "enableAuthControl": cluster.topics[topic].auth_control,
    }


def _deployment_rows(
    cluster: Cluster, records: list[Deployment], now_ms: int
) -> list[dict[str, Any]]:
    return [
        {**topic_row(cluster, record), "runInfo": _run_info(cluster, record, now_ms)}
        for record in records
    ]


def _deployment_totals(cluster: Cluster, records: list[Deployment], now_ms: int) -> dict[str, Any]:
    totals = _totals(cluster, records, now_ms)
    return {
        "infoCount": len(records),
        "totalCfgNumPart": totals["configured_partitions"],
        "isSrvAcceptPublish": totals["publish"],
        "isSrvAcceptSubscribe": totals["subscribe"],
        "totalRunNumPartCount": totals["running_partitions"],
    }


def _stores(records: list[Deployment]) -> int:
    return sum(record.props.stores for record in records)


def _all_partitions(records: list[Deployment]) -> int:
    return sum(_partitions(record) for record in records)


def _run_info(cluster: Cluster, record: Deployment, now_ms: int) -> dict[str, Any]:
    if not cluster.publishable(record, now_ms):
        names = ("acceptPublish", "acceptSubscribe", "numPartitions", "brokerManageStatus")
        return dict.fromkeys(names, "-")
    broker = cluster.brokers[record.broker_id]
    return {
        "acceptPublish": True,
        "acceptSubscribe": record.props.accept_subscribe and broker.status.subscribes,
        "numPartitions": record.props.partitions,
        "numTopicStores": record.props.stores,
        "brokerManageStatus": broker.status.label,
    }


def _totals(cluster: Cluster, records: list[Deployment], now_ms: int) -> dict[str, Any]:
    running = [record for record in records if cluster.publishable(record, now_ms)]
    return {
        "configured_stores": sum(record.props.stores for record in records),
        "running_stores": sum(record.props.stores for record in running),
        "configured_partitions": sum(_partitions(record) for record in records),
        "running_partitions": sum(_partitions(record) for record in running),
        "publish": bool(running),
        "subscribe": any(cluster.subscribable(record, now_ms) for record in records),
    }


def _partitions(record: Deployment) -> int:
    return record.props.stores * record.props.partitions
