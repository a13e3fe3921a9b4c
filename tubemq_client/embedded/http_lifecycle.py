"""The master's HTTP methods for the lives of topics and brokers, and queries about who has what.

Beside `http_admin`, which owns the conversation: this gives it methods by name. A topic passes from
normal to soft deleted to soft removed; the broker that meets a removed one deletes its stores and
the record is gone. Redoing a deletion is answered with Ok and changes nothing, as by a real 2.4.0.
Errors of single records come back under ``result: true``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tubemq_client.embedded.cluster import DELETED, REMOVED, Deployment, ManageStatus
from tubemq_client.embedded.http_params import BadParameter, Params, changed_props
from tubemq_client.embedded.http_reply import item_result, rows, wrapper
from tubemq_client.embedded.http_topics import topic_row
from tubemq_client.embedded.master import Master

__all__ = ["LifecycleAdmin", "Methods"]

Methods = dict[str, Callable[[Params], dict[str, Any]]]

_PORTS = {"brokerPort": "port", "brokerTLSPort": "tls_port", "brokerWebPort": "web_port"}


class LifecycleAdmin:
    """Methods over one master's state; `reads` need no token, `writes` do."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._cluster = master.cluster
        self.reads: Methods = {
            "admin_query_deployed_topics": self._deployed_topics,
            "admin_query_deployed_broker_ids": self._deployed_broker_ids,
            "admin_query_topic_deploy_configure": self._deploy_configure,
            "admin_query_group_info_by_topic": self._groups_by_topic,
            "admin_query_master_group_info": self._master_group,
        }
        self.writes: Methods = {
            "admin_delete_topic_deploy_info": self._delete_topic,
            "admin_delete_topic_info": self._delete_topic,
            "admin_redo_deleted_topic_deploy_info": self._redo_topic,
            "admin_redo_deleted_topic_info": self._redo_topic,
            "admin_remove_topic_deploy_info": self._remove_topic,
            "admin_remove_topic_info": self._remove_topic,
            "admin_update_broker_configure": self._update_broker,
            "admin_offline_broker_configure": self._offline,
            "admin_reload_broker_configure": self._reload,
            "admin_set_broker_read_or_write": self._set_access,
            "admin_release_broker_autoforbidden_status": self._release,
            "admin_delete_broker_configure": self._delete_broker,
        }

    # ------------------------------------------------------------------ topics

    def _delete_topic(self, params: Params) -> dict[str, Any]:
        return self._move(params, DELETED)

    def _redo_topic(self, params: Params) -> dict[str, Any]:
        ids = params.broker_ids(required=True)
        params.user("modifyUser")
        return rows([self._redo_one(t, n) for t in params.topics(required=True) for n in ids])

    def _redo_one(self, topic: str, broker_id: int) -> dict[str, Any]:
        if self._cluster.deployment(topic, broker_id) is None:
            return _no_deployment(topic, broker_id)
        return item_result({"brokerId": broker_id, "topicName": topic})

    def _remove_topic(self, params: Params) -> dict[str, Any]:
        return self._move(params, REMOVED)

    def _move(self, params: Params, status: int) -> dict[str, Any]:
        topics = params.topics(required=True)
        broker_ids = params.broker_ids(required=True)
        user = params.user("modifyUser")
        return rows(
            [
                self._move_one(topic, broker_id, status, user)
                for topic in topics
                for broker_id in broker_ids
            ]
        )

    def _move_one(self, topic: str, broker_id: int, status: int, user: str) -> dict[str, Any]:
        keys = {"brokerId": broker_id, "topicName": topic}
        record = self._cluster.deployment(topic, broker_id)
        if record is None:
            return _no_deployment(topic, broker_id)
        if record.props.accept_publish or record.props.accept_subscribe:
            text = "The values of acceptPublish and acceptSubscribe must be false before change"
            place = f"brokerId-topicName({broker_id}:{topic})"
            return item_result(keys, 406, f"{text} status of {place} record!")
        if record.status == status == DELETED:
            return item_result(keys)
        if record.status == status:
            return item_result(keys, 403, "Topic deploy configure not changed!")
        if status == REMOVED and record.status != DELETED:
            return item_result(keys, 406, f"The topic {topic} is not soft deleted!")
        record.status = status
        record.audit.touch(user, self._master.clock())
        if status == REMOVED and not self._cluster.brokers[broker_id].alive:
            self._cluster.undeploy(topic, broker_id)
        self._cluster.changed()
        return item_result(keys)

    def _selected(self, params: Params) -> list[Deployment]:
        topics, ids = params.topics(), params.broker_ids()
        return [
            record
            for record in self._cluster.all_deployments()
            if (not topics or record.topic in topics) and (not ids or record.broker_id in ids)
        ]

    def _deployed_topics(self, params: Params) -> dict[str, Any]:
        by_broker: dict[int, list[str]] = {}
        for record in self._selected(params):
            by_broker.setdefault(record.broker_id, []).append(record.topic)
        return rows(
            [
                {"brokerId": broker_id, "topicName": names, "topicCount": len(names)}
                for broker_id, names in sorted(by_broker.items())
            ]
        )

    def _deployed_broker_ids(self, params: Params) -> dict[str, Any]:
        with_host = params.flag("withIp")
        by_topic: dict[str, list[Any]] = {}
        for record in self._selected(params):
            host = self._cluster.brokers[record.broker_id].host
            entry = {"brokerId": record.broker_id, "brokerIp": host} if with_host else None
            by_topic.setdefault(record.topic, []).append(entry or record.broker_id)
        return rows(
            [
                {"topicName": topic, "brokerInfo": places, "brokerCnt": len(places)}
                for topic, places in sorted(by_topic.items())
            ]
        )

    def _deploy_configure(self, params: Params) -> dict[str, Any]:
        return rows([topic_row(self._cluster, record) for record in self._selected(params)])

    def _groups_by_topic(self, params: Params) -> dict[str, Any]:
        wanted = params.topics() or self._cluster.topic_names()
        found = []
        for topic in wanted:
            groups = sorted(
                name
                for name in self._master.groups.names()
                if (group := self._master.groups.find(name)) is not None and topic in group.topics
            )
            found.append({"topicName": topic, "groupSet": groups, "groupCnt": len(groups)})
        return rows(found)

    # ------------------------------------------------------------------ brokers

    def _for_each(
        self, params: Params, change: Callable[[int, str], dict[str, Any]]
    ) -> dict[str, Any]:
        ids = params.broker_ids(required=True)
        user = params.user("modifyUser")
        return rows([change(broker_id, user) for broker_id in ids])

    def _set_status(self, broker_id: int, status: ManageStatus, user: str) -> dict[str, Any]:
        keys = {"brokerId": broker_id, "brokerIp": ""}
        record = self._cluster.brokers.get(broker_id)
        if record is None:
            return _no_broker(broker_id)
        if record.status is status:
            return item_result(keys, 403, f"Unchanged  manageStatus({status.label})!")
        if status is not ManageStatus.ONLINE and record.status is ManageStatus.DRAFT:
            text = "Illegal manage status, cannot reverse manageStatus from draft to"
            place = f"for the broker(brokerId={broker_id})!"
            return item_result(keys, 407, f"{text} {status.label} {place}")
        self._cluster.set_status(broker_id, status, user, self._master.clock())
        return item_result(keys)

    def _offline(self, params: Params) -> dict[str, Any]:
        return self._for_each(
            params, lambda number, user: self._set_status(number, ManageStatus.OFFLINE, user)
        )

    def _set_access(self, params: Params) -> dict[str, Any]:
        if params.text("acceptPublish") is None and params.text("acceptSubscribe") is None:
            raise BadParameter("Fields acceptPublish or acceptSubscribe must exist at this method!")
        return self._for_each(params, lambda number, user: self._access(number, params, user))

    def _access(self, broker_id: int, params: Params, user: str) -> dict[str, Any]:
        record = self._cluster.brokers.get(broker_id)
        if record is None:
            return _no_broker(broker_id)
        if record.status is ManageStatus.DRAFT:
            text = "The broker configure under draft status, please online first!"
            return item_result({"brokerId": broker_id, "brokerIp": ""}, 405, text)
        publish = params.flag("acceptPublish", default=record.status.publishes)
        subscribe = params.flag("acceptSubscribe", default=record.status.subscribes)
        status = {
            (True, True): ManageStatus.ONLINE,
            (False, True): ManageStatus.ONLY_READ,
            (True, False): ManageStatus.ONLY_WRITE,
            (False, False): ManageStatus.OFFLINE,
        }[publish, subscribe]
        if status is record.status:
            return item_result({"brokerId": broker_id, "brokerIp": record.host})
        return self._set_status(broker_id, status, user)

    def _reload(self, params: Params) -> dict[str, Any]:
        """Nothing to send: brokers here see a change at once."""
        return self._for_each(params, lambda number, _: self._reload_one(number))

    def _reload_one(self, broker_id: int) -> dict[str, Any]:
        record = self._cluster.brokers.get(broker_id)
        if record is not None and record.status in (ManageStatus.DRAFT, ManageStatus.OFFLINE):
            text = f"The broker manage status by brokerId={broker_id} is not in online status"
            return item_result(
                {"brokerId": broker_id, "brokerIp": ""},
                406,
                f"{text}, can't reload this configure! ",
            )
        return self._touched(broker_id)

    def _release(self, params: Params) -> dict[str, Any]:
        """Nothing to clear: this master forbids nobody."""
        return self._for_each(params, lambda number, _: self._touched(number))

    def _touched(self, broker_id: int) -> dict[str, Any]:
        if broker_id not in self._cluster.brokers:
            return _no_broker(broker_id)
        return item_result({"brokerId": broker_id, "brokerIp": ""})

    def _update_broker(self, params: Params) -> dict[str, Any]:
        return self._for_each(params, lambda number, user: self._update(number, params, user))

    def _update(self, broker_id: int, params: Params, user: str) -> dict[str, Any]:
        record = self._cluster.brokers.get(broker_id)
        if record is None:
            return _no_broker(broker_id)
        if record.alive:
            ports = [name for name in _PORTS if params.text(name) is not None]
            if ports:
                raise BadParameter(f"{', '.join(ports)}: the embedded broker is listening already")
        for name, attribute in _PORTS.items():
            setattr(record, attribute, params.number(name, getattr(record, attribute)))
        record.props = changed_props(params, record.props)
        record.audit.touch(user, self._master.clock())
        self._cluster.changed()
        return item_result({"brokerId": broker_id, "brokerIp": record.host})

    def _delete_broker(self, params: Params) -> dict[str, Any]:
        reserved = params.flag("isReservedData")
        return self._for_each(params, lambda number, _: self._delete_one(number, reserved=reserved))

    def _delete_one(self, broker_id: int, *, reserved: bool) -> dict[str, Any]:
        keys = {"brokerId": broker_id, "brokerIp": ""}
        record = self._cluster.brokers.get(broker_id)
        if record is None:
            return _no_broker(broker_id)
        if record.status not in (ManageStatus.DRAFT, ManageStatus.OFFLINE):
            text = "Broker manage status is online, please offline first!"
            return item_result({**keys, "brokerIp": "null"}, 406, text)
        if record.alive:
            return item_result(keys, 406, "The embedded broker runs: stop it first!")
        keys["brokerIp"] = "null"
        if not reserved:  # real brokers always have the system's own topic
            text = f"Illegal operate conditions, the broker({broker_id})'s topic deploy configure"
            return item_result(keys, 404, f"{text} uncleaned, please delete them first!")
        for item in self._cluster.on_broker(broker_id):
            self._cluster.undeploy(item.topic, broker_id)
        self._cluster.remove_broker(broker_id)
        return item_result(keys)

    # ------------------------------------------------------------------ masters

    def _master_group(self, _params: Params) -> dict[str, Any]:
        node = {
            "index": 1,
            "name": "embedded",
            "hostName": "127.0.0.1",
            # Numbers are text here on a real master.
            "port": "0",
            "statusInfo": {"nodeStatus": "Master", "joinTime": "0"},
        }
        return {
            **wrapper("Ok"),
            "groupName": "Embedded Cluster",
            "isPrimaryNodeActive": True,
            "data": [node],
            "count": 1,
            "groupStatus": "Running-ReadWrite",
        }


def _no_broker(broker_id: int) -> dict[str, Any]:
    keys = {"brokerId": broker_id, "brokerIp": ""}
    return item_result(keys, 401, f"Not found broker configure for brokerId({broker_id})!")


def _no_deployment(topic: str, broker_id: int) -> dict[str, Any]:
    keys = {"brokerId": broker_id, "topicName": topic}
    text = f"Not found the topic {topic}'s deploy configure in broker={broker_id}"
    return item_result(keys, 401, f"{text}, please confirm the configure first!")
