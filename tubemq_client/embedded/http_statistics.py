"""A broker's HTTP methods about the past: position history, sizes of stores, counters.

`http_broker` dispatches to these methods by name. History is read from the topic that the broker
itself writes; nothing here changes anything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tubemq_client._wire import payload
from tubemq_client.embedded.broker import Broker
from tubemq_client.embedded.checks import OFFSET_HISTORY_TOPIC
from tubemq_client.embedded.history import HISTORY_PARTITIONS
from tubemq_client.embedded.http_params import BadParameter, Params
from tubemq_client.embedded.http_reply import rows, wrapper
from tubemq_client.embedded.storage import Store

__all__ = ["statistics_methods"]

_COUNTERS = (
    "file_exc_cnt",
    "zk_exc_cnt",
    "offset_file_exc_cnt",
    "broker_timeout_cnt",
    "broker_hb_exc_cnt",
)
_HISTOGRAMS = (
    "file_sync_dlt",
    "offset_file_sync_dlt",
    "zk_sync_dlt",
    "msg_put_dlt",
    "msg_get_dlt",
    "msg_confirm_dlt",
)
_NOTHING_COUNTED = {
    "count": 0,
    "min": 2**63 - 1,
    "max": -(2**63),
    "cells": {},
    "P99": 0,
    "P999": 0,
    "P9999": 0,
}


def statistics_methods(broker: Broker) -> dict[str, Callable[[Params], dict[str, Any]]]:
    """Return the methods by name."""
    return {
        "admin_get_group_history_offset": partial(_history, broker),
        "admin_query_broker_all_store_info": partial(_stores, broker),
        "admin_get_metrics_info": partial(_metrics, broker),
    }


def _history(broker: Broker, params: Params) -> dict[str, Any]:
    groups = params.groups(required=True)
    since_ms = _instant(params.required("recordTime"))
    count = params.number("msgCount", 1, least=1) or 1
    return rows([_history_row(broker, group, since_ms, count) for group in groups])


def _instant(text: str) -> int:
    """Return milliseconds since the epoch for a time in the server's own zone."""
    try:
        return int(time.mktime(time.strptime(text, "%Y%m%d%H%M%S"))) * 1000
    except ValueError:
        raise BadParameter(
            f"Parameter recordTime's value {text} parse error, required value format is "
            "yyyyMMddHHmmss"
        ) from None


def _history_row(broker: Broker, group: str, since_ms: int, count: int) -> dict[str, Any]:
    records = []
    for document in _documents(broker, group):
        if document["dt"] >= since_ms:
            records.append(document)
        if len(records) == count:
            break
    if not records:
        return {"groupName": group, "result": False, "errMsg": "Could not find record!"}
    return {
        "groupName": group,
        "result": True,
        "errMsg": "ok",
        "records": records,
        "recordCount": len(records),
    }


def _documents(broker: Broker, group: str) -> Iterator[dict[str, Any]]:
    store = broker.storage.get(OFFSET_HISTORY_TOPIC, 0)
    if store is None:
        return
    partition_id = abs(payload.java_hash(group)) % HISTORY_PARTITIONS
    log = store.log
    for record in log.slice(log.min_offset, log.end):
        if record.partition_id != partition_id:
            continue
        _, body = payload.split_payload(record.payload, record.flag)
        document: dict[str, Any] = json.loads(body)
        if document["group"] == group:
            yield document


def _stores(broker: Broker, params: Params) -> dict[str, Any]:
    selected = params.topics()
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for topic, store_id, store in broker.storage:
        record = broker.cluster.deployment(topic, broker.broker_id)
        if record is None or (selected and topic not in selected):
            continue
        row = _store_row(store_id, store, record.props.partitions)
        by_topic.setdefault(topic, []).append(row)
    topic_rows = [
        {"index": number, "topicName": topic, "storeInfo": stores}
        for number, (topic, stores) in enumerate(by_topic.items(), 1)
    ]
    return {**wrapper("Success!"), "dataSet": topic_rows, "totalCnt": len(topic_rows)}


def _store_row(store_id: int, store: Store, partitions: int) -> dict[str, Any]:
    log = store.log
    size = log.end - log.min_offset
    return {
        "storeId": store_id,
        "numPartition": partitions,
        "minDataOffset": log.min_data_offset,
        "maxDataOffset": log.data_end,
        "sizeInBytes": log.data_end - log.min_data_offset,
        "partitionInfo": [
            {
                "partitionId": number,
                "minOffset": log.min_offset,
                "maxOffset": log.end,
                "sizeInBytes": size,
            }
            for number in range(partitions)
        ],
    }


def _metrics(broker: Broker, _params: Params) -> dict[str, Any]:
    """Return a reply in the shape of a real one; figures that are not counted are zero."""
    now = time.strftime("%Y%m%d%H%M%S", time.localtime(broker.clock() / 1000))
    status: dict[str, Any] = {"reset_time": now, "detailStatsClosed": False}
    status |= dict.fromkeys(_COUNTERS, 0)
    status["consume_online_cnt"] = len(list(broker.leases.items()))
    status |= {"consume_timeout_cnt": 0, "msg_put_overflow": 0}
    status |= {name: dict(_NOTHING_COUNTED) for name in _HISTOGRAMS}
    row = {
        "probeTime": now,
        "nodeName": broker.host,
        "nodeRole": "Broker",
        "metrics": {"serviceStatus": status, "webAPI": {}},
    }
    return rows([row])
