"""The master's HTTP administration (``/webapi.htm``): a method name and parameters in, JSON out.

Plain calls without a web framework; `web` puts them on HTTP. Queries need no token, modifications
need the one of `Switches.admin_token`. Bodies are those of a real master, field by field; errors of
single records come back under ``result: true``, as there. Topics take effect at once.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tubemq_client.embedded.cluster import (
    Audit,
    BrokerRecord,
    Deployment,
    ManageStatus,
    TopicProps,
)
from tubemq_client.embedded.http_batches import batch_methods
from tubemq_client.embedded.http_controls import ControlAdmin
from tubemq_client.embedded.http_groups import GroupAdmin
from tubemq_client.embedded.http_lifecycle import LifecycleAdmin, Methods
from tubemq_client.embedded.http_limits import LimitAdmin
from tubemq_client.embedded.http_params import BadParameter, Params, changed_props
from tubemq_client.embedded.http_reply import (
    VERSION,
    audit_fields,
    item_result,
    props_fields,
    refusal,
    rows,
    to_text,
)
from tubemq_client.embedded.http_topics import (
    topic_counts,
    topic_details,
    topic_row,
    topic_settings,
    topic_summary,
)
from tubemq_client.embedded.master import Master

__all__ = ["MasterAdmin"]

_BAD_REQUEST = "Bad request from client, "
_CALLBACK = re.compile(r"[_A-Za-z0-9]{1,128}", re.ASCII)
_DEFAULT_PORTS = {"brokerPort": 8123, "brokerTLSPort": 8124, "brokerWebPort": 8081}


class _Method(NamedTuple):
    run: Callable[[Params], dict[str, Any]]
    needs_token: bool


class MasterAdmin:
    """Answers administration requests against one master's state."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._cluster = master.cluster
        parts = (
            LifecycleAdmin(master),
            GroupAdmin(master),
            ControlAdmin(master),
            LimitAdmin(master),
        )
        reads: Methods = {
            "admin_query_server_version": self._version,
            "admin_get_methods": self._list_methods,
            "admin_query_topic_info": self._shown(topic_details),
            "admin_query_topic_deploy_info": self._shown(topic_settings),
            "admin_query_topic_broker_config_info": self._shown(topic_counts),
            "admin_query_cluster_topic_view": self._shown(topic_summary),
            "admin_query_broker_configure": self._broker_configure,
            "admin_query_broker_run_status": self._run_status,
        }
        writes: Methods = {
            "admin_add_broker_configure": self._add_broker,
            "admin_online_broker_configure": self._online_broker,
            "admin_add_topic_deploy_info": self._add_topic,
            "admin_add_new_topic_record": self._add_topic,
            "admin_update_topic_deploy_info": self._update_topic,
            "admin_modify_topic_info": self._update_topic,
        }
        for part in parts:
            reads |= part.reads
            writes |= part.writes
        writes |= batch_methods(writes)
        self._methods = {name: _Method(run, needs_token=False) for name, run in reads.items()} | {
            name: _Method(run, needs_token=True) for name, run in writes.items()
        }

    def reply(self, values: Mapping[str, str]) -> tuple[str, str | None]:
        """Body and content type for a request's parameters; errors are bodies too."""
        params = Params(values)
        text = to_text(self._answer(params))
        callback = params.text("callback")
        if callback is not None and _CALLBACK.fullmatch(callback):
            return f"{callback}({text})", "text/plain;charset=utf-8"
        return text, None

    def _answer(self, params: Params) -> dict[str, Any]:
        try:
            method = self._authorised(params)
        except BadParameter as error:
            return refusal(f"{_BAD_REQUEST}{error}")
        try:
            return method.run(params)
        except BadParameter as error:
            return refusal(str(error))

    def _authorised(self, params: Params) -> _Method:
        name = params.text("method")
        if name is None:
            raise BadParameter("Please take with method parameter!")
        method = self._methods.get(name)
        if method is None:
            raise BadParameter("unsupported method!")
        if method.needs_token:
            token = params.required("confModAuthToken")
            if token != self._master.switches.admin_token:
                raise BadParameter("illegal access, unauthorized request!")
        return method

    # ------------------------------------------------------------------ discovery

    def _version(self, _params: Params) -> dict[str, Any]:
        return rows([{"version": VERSION}])

    def _list_methods(self, _params: Params) -> dict[str, Any]:
        return rows(
            [
                {"method": name, "needAuth": method.needs_token}
                for name, method in self._methods.items()
            ]
        )

    # ------------------------------------------------------------------ topics

    def _wanted_topics(self, params: Params) -> list[str]:
        named = params.topics()
        known = self._cluster.topic_names()
        return [topic for topic in named if topic in known] if named else known

    def _wanted_deployments(self, params: Params, topic: str) -> list[Deployment]:
        ids = params.broker_ids()
        return [
            record
            for record in self._cluster.deployments(topic)
            if not ids or record.broker_id in ids
        ]

    def _shown(self, show: Callable[..., dict[str, Any]]) -> Callable[[Params], dict[str, Any]]:
        """A method that shows every topic asked for by `show`."""

        def answer(params: Params) -> dict[str, Any]:
            now_ms = self._master.clock()
            return rows(
                [
                    show(self._cluster, topic, records, now_ms)
                    for topic in self._wanted_topics(params)
                    if (records := self._wanted_deployments(params, topic))
                ]
            )

        return answer

    def _add_topic(self, params: Params) -> dict[str, Any]:
        user = params.user("createUser")
        topics = params.topics(required=True)
        broker_ids = params.broker_ids(required=True)
        own_mb = params.number("maxMsgSizeInMB", least=1)
        return rows(
            [
                self._add_one(topic, broker_id, params, own_mb, user)
                for topic in topics
                for broker_id in broker_ids
            ]
        )

    def _add_one(
        self, topic: str, broker_id: int, params: Params, own_mb: int | None, user: str
    ) -> dict[str, Any]:
        """Properties that the request does not name are the broker's."""
        keys = {"brokerId": broker_id, "topicName": topic}
        broker = self._cluster.brokers.get(broker_id)
        if broker is None:
            return item_result(
                keys,
                401,
                f"Not found broker configure record by brokerId={broker_id}, "
                "please create the broker's configure first!",
            )
        if self._cluster.deployment(topic, broker_id) is not None:
            return item_result(
                keys, 402, f"Existed record found for brokerId-topicName({broker_id}:{topic})!"
            )
        props = changed_props(params, broker.props)
        self._cluster.deploy(topic, broker_id, replace(props), user, self._master.clock())
        if own_mb is not None:
            self._cluster.topics[topic].max_message_mb = own_mb
        return item_result(keys)

    def _update_topic(self, params: Params) -> dict[str, Any]:
        topics = params.topics(required=True)
        broker_ids = params.broker_ids(required=True)
        user = params.user("modifyUser")
        return rows(
            [
                self._update_one(topic, broker_id, params, user)
                for topic in topics
                for broker_id in broker_ids
            ]
        )

    def _update_one(self, topic: str, broker_id: int, params: Params, user: str) -> dict[str, Any]:
        keys = {"brokerId": broker_id, "topicName": topic}
        place = f"brokerId-topicName({broker_id}:{topic})"
        record = self._cluster.deployment(topic, broker_id)
        if record is None:
            return item_result(keys, 401, f"Not found topic deploy configure for {place}!")
        props = changed_props(params, record.props)
        for what, new, old in (
            ("Partition", props.partitions, record.props.partitions),
            ("TopicStores", props.stores, record.props.stores),
        ):
            if new < old:
                return item_result(
                    keys,
                    407,
                    f"{what} number less than before, new value is {new}, "
                    f"current value is {old}in {place} record!",
                )
        if props == record.props:
            return item_result(keys, 403, "Topic deploy configure not changed!")
        record.props = props
        record.audit.touch(user, self._master.clock())
        self._cluster.changed()
        return item_result(keys)

    # ------------------------------------------------------------------ brokers

    def _wanted_brokers(self, params: Params) -> list[BrokerRecord]:
        ids, hosts = params.broker_ids(), params.items("brokerIp")
        return [
            record
            for _, record in sorted(self._cluster.brokers.items())
            if (not ids or record.broker_id in ids) and (not hosts or record.host in hosts)
        ]

    def _broker_configure(self, params: Params) -> dict[str, Any]:
        with_topics = params.flag("withTopic")
        found = []
        for record in self._wanted_brokers(params):
            deployed = self._cluster.on_broker(record.broker_id)
            row = {
                "brokerId": record.broker_id,
                "brokerIp": record.host,
                "brokerPort": record.port,
                "brokerTLSPort": record.tls_port,
                "brokerWebPort": record.web_port,
                "manageStatus": record.status.label,
                "isConfChanged": bool(deployed),
                "isConfLoaded": False,
                "regionId": record.region_id,
                "groupId": 0,
                **props_fields(record.props),
                **audit_fields(record.audit),
            }
            if with_topics:
                row["topicSet"] = [topic_row(self._cluster, item) for item in deployed]
            found.append(row)
        return rows(found)

    def _run_status(self, params: Params) -> dict[str, Any]:
        now_ms = self._master.clock()
        return rows([self._run_row(record, now_ms) for record in self._wanted_brokers(params)])

    def _run_row(self, record: BrokerRecord, now_ms: int) -> dict[str, Any]:
        draft = record.status is ManageStatus.DRAFT
        managed = not draft and record.status is not ManageStatus.OFFLINE
        running = managed and self._cluster.is_online(record.broker_id, now_ms)

        def text(value: object) -> str:
            return str(value).lower() if running else "-"

        return {
            "brokerId": record.broker_id,
            "brokerIp": record.host,
            "brokerPort": record.port,
            "brokerWebPort": record.web_port,
            "manageStatus": record.status.label,
            "brokerTLSPort": record.tls_port,
            "enableTLS": False if running else "-",
            "isRepAbnormal": False,
            "isAutoForbidden": False,
            "runStatus": "running" if running else ("-" if draft else "unRegister"),
            "subStatus": "idle" if running else "-",
            "isConfChanged": text(bool(self._cluster.on_broker(record.broker_id))),
            # A real master says so for good, too: it never counts a first load.
            "isConfLoaded": text("false"),
            "isBrokerOnline": text("true"),
            "brokerVersion": "-",
            "acceptPublish": text(record.status.publishes),
            "acceptSubscribe": text(record.status.subscribes),
        }

    def _add_broker(self, params: Params) -> dict[str, Any]:
        host = params.required("brokerIp")
        try:
            address = ipaddress.IPv4Address(host)
        except ValueError as error:
            raise BadParameter(
                "illegal value for brokerIp, value must matches the IPv4 address regulation"
            ) from error
        user = params.user("createUser")
        ids = params.broker_ids()
        broker_id = ids[0] if ids and ids[0] > 0 else int(address)
        if any(record.host == host for record in self._cluster.brokers.values()):
            raise BadParameter(f"Duplicated broker configure record, query by brokerIp : {host}")
        if broker_id in self._cluster.brokers:
            raise BadParameter(
                f"Duplicated broker configure record, query by brokerId : {broker_id}"
            )
        ports = {
            name: params.number(name, default) or default
            for name, default in _DEFAULT_PORTS.items()
        }
        self._cluster.put_broker(
            BrokerRecord(
                broker_id,
                host,
                ports["brokerPort"],
                ports["brokerWebPort"],
                ports["brokerTLSPort"],
                Audit.new(user, self._master.clock()),
                region_id=params.number("regionId", 0) or 0,
                props=changed_props(params, TopicProps()),
            )
        )
        return rows([item_result({"brokerId": broker_id, "brokerIp": host})])

    def _online_broker(self, params: Params) -> dict[str, Any]:
        broker_ids = params.broker_ids(required=True)
        user = params.user("modifyUser")
        return rows([self._online_one(broker_id, user) for broker_id in broker_ids])

    def _online_one(self, broker_id: int, user: str) -> dict[str, Any]:
        keys = {"brokerId": broker_id, "brokerIp": ""}
        record = self._cluster.brokers.get(broker_id)
        if record is None:
            return item_result(keys, 401, f"Not found broker configure for brokerId({broker_id})!")
        if record.status is ManageStatus.ONLINE:
            return item_result(keys, 403, "Unchanged  manageStatus(online)!")
        self._cluster.set_status(broker_id, ManageStatus.ONLINE, user, self._master.clock())
        return item_result(keys)
