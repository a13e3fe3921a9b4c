"""A broker's HTTP administration (any path): a method name and parameters in, JSON out.

Plain calls without a web framework; `web` puts them on HTTP. Like a real broker it requires no
token, not even for moving positions. Bodies, wrappers and side effects are those of a real one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tubemq_client._wire import payload
from tubemq_client.embedded.broker import Broker
from tubemq_client.embedded.checks import Refused
from tubemq_client.embedded.cluster import UNDEFINED, Deployment
from tubemq_client.embedded.http_params import BadParameter, Params
from tubemq_client.embedded.http_reply import VERSION, refusal, to_text
from tubemq_client.embedded.http_statistics import statistics_methods
from tubemq_client.embedded.leases import Lease
from tubemq_client.embedded.options import MAX_TRANSFER_BYTES
from tubemq_client.embedded.positions import PositionKey
from tubemq_client.embedded.reading import ReadRequest, read
from tubemq_client.embedded.storage import Store
from tubemq_client.embedded.store import Record
from tubemq_client.model import INDEX_ENTRY_BYTES, PARTITIONS_PER_STORE

__all__ = ["BrokerAdmin"]

_NO_STORE = "Invalid parameter: not found the store by topicName!"
_NO_TOPIC = "Invalid parameter: not found the topicName configure!"
_UNLIMITED_MB = (1 << 43) - 1
_SNAPSHOT_COUNTS = (3, 50)


class BrokerAdmin:
    """Answers administration requests against one broker's state."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._methods: dict[str, Callable[[Params], dict[str, Any]]] = {
            "admin_query_server_version": self._version,
            "admin_get_methods": self._list_methods,
            "admin_query_pubinfo": self._pubinfo,
            "admin_query_offset": self._query_offset,
            "admin_query_group_offset": self._group_offset,
            "admin_get_booked_groupname": self._booked_groups,
            "admin_query_group": self._booked_groups,
            "admin_get_group_detail_info": self._group_detail,
            "admin_query_broker_all_consumer_info": self._group_detail,
            "admin_get_partition_reginfo": self._registrations,
            "admin_query_consumer_regmap": self._registrations,
            "admin_manual_set_current_offset": self._set_one,
            "admin_set_offset": self._set_many,
            "admin_clone_offset": self._clone,
            "admin_rmv_offset": self._remove,
            "admin_snapshot_message": self._snapshot,
            **statistics_methods(broker),
        }

    def reply(self, values: Mapping[str, str]) -> tuple[str, str | None]:
        """Return body and content type for a request's parameters; errors are bodies too."""
        params = Params(values)
        name = params.text("method")
        method = self._methods.get(name or "")
        if name is None:
            return to_text(refusal("Please take with method parameter! ")), None
        if method is None:
            return to_text(refusal(f"Unsupported method {name}")), None
        try:
            body = method(params)
        except BadParameter as error:
            body = refusal(str(error))
        except Refused as error:
            body = refusal(f"Bad request from server: {error.text}")
        return to_text(body), None

    # ------------------------------------------------------------------ discovery

    def _version(self, _params: Params) -> dict[str, Any]:
        return {**_wrapper("Ok"), "data": [{"version": VERSION}]}

    def _list_methods(self, _params: Params) -> dict[str, Any]:
        return _counted([{"method": name, "needAuth": False} for name in self._methods])

    # ------------------------------------------------------------------ ends

    def _pubinfo(self, params: Params) -> dict[str, Any]:
        selected = params.topics()
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for topic, store_id, store in self._broker.storage:
            record = self._broker.cluster.deployment(topic, self._broker.broker_id)
            if record is None or (selected and topic not in selected):
                continue
            rows = by_topic.setdefault(topic, [])
            rows += [
                _ends_row(store_id * PARTITIONS_PER_STORE + number, store)
                for number in range(record.props.partitions)
            ]
        data = [
            {"topicName": topic, "offsetInfo": rows, "itemCount": len(rows)}
            for topic, rows in by_topic.items()
        ]
        return {**_wrapper("Success!"), "dataSet": data, "dataCount": len(data)}

    # ------------------------------------------------------------------ positions

    def _query_offset(self, params: Params) -> dict[str, Any]:
        selected_groups, selected_topics = params.groups(), params.topics()
        rows = []
        for group in self._broker.positions.groups():
            if selected_groups and group not in selected_groups:
                continue
            subscribed = [
                topic
                for topic in self._topics_of(group)
                if not selected_topics or topic in selected_topics
            ]
            info = [self._topic_positions(group, topic) for topic in subscribed]
            rows.append({"groupName": group, "subInfo": info, "topicCount": len(info)})
        return _counted(rows)

    def _topics_of(self, group: str) -> list[str]:
        names = {key.topic for key, _ in self._broker.positions.items() if key.group == group}
        return [name for name in sorted(names) if self._deployment(name) is not None]

    def _topic_positions(self, group: str, topic: str) -> dict[str, Any]:
        rows = [
            self._position_row(PositionKey(group, topic, partition_id))
            for partition_id in self._partition_ids(topic)
        ]
        return {"topicName": topic, "offsets": rows, "partCount": len(rows)}

    def _position_row(self, key: PositionKey) -> dict[str, Any]:
        store = self._broker.storage.get(key.topic, key.partition_id // PARTITIONS_PER_STORE)
        position = self._broker.positions.get(key)
        reached = self._data_reached(key)
        row = {
            "partitionId": key.partition_id,
            "curOffset": position.confirmed if position else UNDEFINED,
            "flightOffset": position.in_flight if position else UNDEFINED,
            "curDataOffset": UNDEFINED if reached is None else reached,
            "offsetLag": UNDEFINED,
            "dataLag": UNDEFINED,
            "offsetMax": store.log.end if store else UNDEFINED,
            "dataMax": store.log.data_end if store else UNDEFINED,
        }
        if store is not None and position is not None:
            row["offsetLag"] = store.log.end - position.confirmed
            if reached is not None:
                row["dataLag"] = store.log.data_end - reached
        return row

    def _data_reached(self, key: PositionKey) -> int | None:
        """Return the data offset that the registration of `key` has reached, None without one."""
        lease = self._broker.leases.get(key)
        return lease.data_reached if lease else None

    def _group_offset(self, params: Params) -> dict[str, Any]:
        key, store = self._place(params)
        log = store.log
        position = self._broker.positions.get(key)
        body = {
            **_wrapper("OK!"),
            "tmpOffset": position.in_flight if position else 0,
            "minOffset": log.min_offset,
            "maxOffset": log.end,
            "minDataOffset": log.min_data_offset,
            "maxDataOffset": log.data_end,
        }
        if params.flag("requireRealOffset"):
            # Asking for the real offset creates a position at 0 if there is none, as it does
            # on a real broker.
            position = self._broker.positions.ensure(key)
            reached = self._data_reached(key)
            body["zkOffset"] = position.confirmed
            body["curReadDataOffset"] = -1 if reached is None else reached
            body["curRdDltDataOffset"] = -1 if reached is None else log.data_end - reached
        return body

    def _booked_groups(self, params: Params) -> dict[str, Any]:
        all_groups = self._broker.positions.groups()
        sets = {"all": all_groups}
        if params.flag("divide"):
            online = self._broker.positions.online_groups()
            sets = {
                "online": online,
                "offline": [group for group in all_groups if group not in online],
            }
        data = [
            {"type": kind, "groupName": groups, "groupCount": len(groups)}
            for kind, groups in sets.items()
        ]
        return {**_wrapper("Success!"), "dataSet": data, "dataCount": len(data)}

    def _set_one(self, params: Params) -> dict[str, Any]:
        params.user("modifyUser")
        offset = params.required_number("manualOffset", least=None)
        key, store = self._place(params)
        log = store.log
        if offset < log.min_offset:
            raise BadParameter(
                "Invalid parameter: manualOffset lower than Current MinOffset:"
                f"({offset}<{log.min_offset})"
            )
        if offset > log.end:
            raise BadParameter(
                "Invalid parameter: manualOffset bigger than Current MaxOffset:"
                f"({offset}>{log.end})"
            )
        has_position = self._broker.positions.get(key) is not None
        former = self._broker.positions.set(key, offset)
        body = _wrapper("Manual update current Offset success!")
        return {**body, "oldOffset": former if has_position else 0}

    def _set_many(self, params: Params) -> dict[str, Any]:
        groups = params.groups(required=True)
        params.required("manualSet")
        params.user("modifyUser")
        if params.flag("manualSet"):
            offsets = self._offsets_in_request(params)
        else:
            params.required("topicName")
            offsets = list(self._ends_of(params.topics()))
        for group in groups:
            for topic, partition_id, offset in offsets:
                self._broker.positions.set(PositionKey(group, topic, partition_id), offset)
        return _wrapper("OK")

    def _offsets_in_request(self, params: Params) -> list[tuple[str, int, int]]:
        """Return the offsets in the request that concern this broker, clamped to what exists."""
        document = params.json("offsetJsonInfo")
        if not isinstance(document, dict):
            raise BadParameter("Parameter offsetJsonInfo value parse failure, error is no object!")
        offsets = []
        for name, value in document.items():
            broker, _, topic_partition = name.partition(":")
            topic, _, partition = topic_partition.partition(":")
            if not (broker.isdecimal() and topic and partition.isdecimal()):
                raise BadParameter(
                    f"Parameter offsetJsonInfo's key invalid:{name} must be "
                    "brokerId:topicName:partitionId !"
                )
            offset = _offset_of(value)
            store = self._store(topic, int(partition))
            if int(broker) == self._broker.broker_id and store is not None:
                log = store.log
                offsets.append((topic, int(partition), max(log.min_offset, min(offset, log.end))))
        return offsets

    def _ends_of(self, topics: Iterable[str]) -> Iterable[tuple[str, int, int]]:
        for topic in topics:
            for partition_id in self._partition_ids(topic):
                store = self._store(topic, partition_id)
                if store is not None:
                    yield topic, partition_id, store.log.end

    def _clone(self, params: Params) -> dict[str, Any]:
        source = params.groups("sourceGroupName", required=True)[0]
        topics = params.topics()
        targets = params.groups("targetGroupName", required=True)
        params.user("modifyUser")
        positions = [(k, p) for k, p in self._broker.positions.items() if k.group == source]
        if not positions:
            raise BadParameter(
                f"Parameter sourceGroupName: subscribed topic set of {source} query result is null!"
            )
        positions = [
            (key, position) for key, position in positions if not topics or key.topic in topics
        ]
        if not positions:
            raise BadParameter(
                f"Parameter sourceGroupName: {source} unsubscribed to the specified topic set!"
            )
        for target in targets:
            for key, position in positions:
                self._broker.positions.set(key._replace(group=target), position.confirmed)
        return _wrapper("OK")

    def _remove(self, params: Params) -> dict[str, Any]:
        groups = params.groups(required=True)
        params.user("modifyUser")
        topics = params.topics()
        for key in self._broker.positions.all_keys():
            if key.group in groups and (not topics or key.topic in topics):
                self._broker.positions.remove(key)
        return {**_wrapper("OK"), "data": []}

    # ------------------------------------------------------------------ registrations

    def _registrations(self, _params: Params) -> dict[str, Any]:
        return _counted(
            [
                {"Partition": str(key), "Consumer": lease.client_id, "index": number}
                for number, (key, lease) in enumerate(self._broker.leases.items(), 1)
            ]
        )

    def _group_detail(self, params: Params) -> dict[str, Any]:
        selected = params.groups()
        leases = [
            (key, lease)
            for key, lease in self._broker.leases.items()
            if not selected or key.group in selected
        ]
        return _counted(
            [self._lease_row(number, key, lease) for number, (key, lease) in enumerate(leases, 1)]
        )

    def _lease_row(self, number: int, key: PositionKey, lease: Lease) -> dict[str, Any]:
        store = self._store(key.topic, key.partition_id)
        position = self._broker.positions.get(key)
        now_ms = self._broker.clock()
        row = {
            "index": number,
            "groupName": key.group,
            "topicName": key.topic,
            "partitionId": key.partition_id,
            "consumerId": lease.client_id,
            "isRegOk": True,
            "lastRegTime": lease.seen_ms,
            "isFilterConsume": bool(lease.filters),
            "receivedFrom": self._broker.host,
            "qryPriorityId": lease.query_priority,
            "curDataLimitInM": _UNLIMITED_MB,
            "curFreqLimit": 0,
            "totalSentSec": lease.short_window.total(now_ms),
            "isSupportLimit": True,
            "sentUnitSec": 0,
            "totalSentMin": lease.long_window.total(now_ms),
            "sentUnit": self._broker.switches.reads.first_fetch_bytes,
            "isMessageStoreOk": store is not None,
        }
        if store is not None:
            log = store.log
            row |= {
                "tmpOffset": position.in_flight if position else 0,
                "minOffset": log.min_offset,
                "maxOffset": log.end,
                "zkOffset": position.confirmed if position else 0,
                "minDataOffset": log.min_data_offset,
                "maxDataOffset": log.data_end,
            }
        return row

    # ------------------------------------------------------------------ peeking

    def _snapshot(self, params: Params) -> dict[str, Any]:
        topic = params.required("topicName")
        params.topics()
        least, most = _SNAPSHOT_COUNTS
        count = params.number("msgCount", least, least=least) or least
        if count > most:
            raise BadParameter(f"Over max allowed msgCount value, allowed count is {most}!")
        partition_id = params.number("partitionId")
        record = self._deployment(topic)
        opened = [number for name, number, _ in self._broker.storage if name == topic]
        if record is None or not opened:
            raise BadParameter(f"Invalid parameter: not found the store by topicName({topic})!")
        if partition_id is None:
            partition_id = opened[0] * PARTITIONS_PER_STORE
        store = self._store(topic, partition_id)
        if store is None:
            last = record.props.partitions - 1
            text = f"Wrong partition value {partition_id},valid partitions in (0,{last})"
            return refusal(f"Get Message failure, exception is {text}", 501)
        records = self._peek(store, partition_id, count, params.items("filterConds"), record)
        if not records:
            return refusal(f"Could not find message at position by topic ({topic})!", 401)
        rows = [_peek_row(number, item) for number, item in enumerate(records[-count:])]
        return {**_wrapper("Success!"), "dataSet": rows}

    def _peek(
        self, store: Store, partition_id: int, count: int, filters: list[str], record: Deployment
    ) -> list[Record]:
        """Return records near the end. Half reads make this miss the newest ones in a file."""
        log, partitions = store.log, record.props.partitions
        distance = (count + 1) * INDEX_ENTRY_BYTES * partitions * (5 if filters else 1)
        start = max(log.min_offset, log.end - distance)
        if start >= log.end:
            return []
        codes = frozenset(payload.java_hash(item) for item in filters)
        largest = self._broker.cluster.memory_record_limit
        request = ReadRequest(
            start, partition_id, codes, 3, MAX_TRANSFER_BYTES, partitions, largest
        )
        return list(read(log, request, self._broker.switches.reads).records)

    # ------------------------------------------------------------------ look-ups

    def _deployment(self, topic: str) -> Deployment | None:
        return self._broker.cluster.deployment(topic, self._broker.broker_id)

    def _partition_ids(self, topic: str) -> list[int]:
        """Return partition ids partition by partition, store by store, as brokers list them."""
        record = self._deployment(topic)
        if record is None:
            return []
        return [
            store_id * PARTITIONS_PER_STORE + number
            for number in range(record.props.partitions)
            for store_id in range(record.props.stores)
        ]

    def _store(self, topic: str, partition_id: int) -> Store | None:
        if self._deployment(topic) is None:
            return None
        return self._broker.store_for(topic, partition_id)

    def _place(self, params: Params) -> tuple[PositionKey, Store]:
        """Return group and partition of a request, with the store. Raises `BadParameter`."""
        params.required("topicName")
        topics, groups = params.topics(), params.groups(required=True)
        partition_id = params.required_number("partitionId")
        if self._deployment(topics[0]) is None:
            raise BadParameter(_NO_TOPIC)
        store = self._store(topics[0], partition_id)
        if store is None:
            raise BadParameter(_NO_STORE)
        return PositionKey(groups[0], topics[0], partition_id), store


def _wrapper(text: str) -> dict[str, Any]:
    return {"result": True, "errCode": 0, "errMsg": text}


def _counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {**_wrapper("Success!"), "dataSet": rows, "totalCnt": len(rows)}


def _ends_row(partition_id: int, store: Store) -> dict[str, Any]:
    log = store.log
    return {
        "partitionId": partition_id,
        "offsetMin": log.min_offset,
        "offsetMax": log.end,
        "dataMin": log.min_data_offset,
        "dataMax": log.data_end,
    }


def _peek_row(number: int, record: Record) -> dict[str, Any]:
    attributes, body = payload.split_payload(record.payload, record.flag)
    return {
        "index": number,
        "data": base64.b64encode(body).decode("ascii"),
        "attr": "null" if attributes is None else attributes.decode("utf-8", "replace"),
    }


def _offset_of(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise BadParameter(
            f"Parameter offsetJsonInfo value parse failure, error is {json.dumps(value)}!"
        ) from error
