"""The master's HTTP methods for topics on brokers: the table of changes, and the queries.

One kind of record: a topic on one broker. It passes from normal to soft deleted to soft removed;
the broker that meets a removed one deletes its stores and the record is gone. Redoing a deletion is
answered with Ok and changes nothing, as by a real 2.4.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tubemq_client.embedded.cluster import DELETED, REMOVED, Deployment
from tubemq_client.embedded.http_params import Params, changed_props
from tubemq_client.embedded.http_records import ChangeOne, Method, RecordKind, Reply, changes
from tubemq_client.embedded.http_reply import rows
from tubemq_client.embedded.http_topics import (
    topic_counts,
    topic_details,
    topic_row,
    topic_settings,
    topic_summary,
)
from tubemq_client.embedded.master import Master

__all__ = ["DeploymentAdmin"]

_PLACE = RecordKind(
    ("brokerId", "topicName"),
    "brokerId-topicName({}:{})",
    "topic deploy configure",
    "Topic deploy configure",
)


class DeploymentAdmin:
    """Answers methods about topics on brokers against one master's state."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._cluster = master.cluster
        self.reads: dict[str, Method] = {
            "admin_query_topic_info": self._topics(topic_details),
            "admin_query_topic_deploy_info": self._topics(topic_settings),
            "admin_query_topic_broker_config_info": self._topics(topic_counts),
            "admin_query_cluster_topic_view": self._topics(topic_summary),
            "admin_query_deployed_topics": self._deployed_topics,
            "admin_query_deployed_broker_ids": self._deployed_broker_ids,
            "admin_query_topic_deploy_configure": self._deploy_configure,
            "admin_query_group_info_by_topic": self._groups_by_topic,
        }
        place = "topicName brokerId modifyUser"
        redo = ("brokerId modifyUser topicName", self._redo)
        self.writes: dict[str, Method] = changes(
            {
                "admin_add_topic_deploy_info": ("createUser topicName brokerId", self._add),
                "admin_add_new_topic_record": ("createUser topicName brokerId", self._add),
                "admin_update_topic_deploy_info": (place, self._update),
                "admin_modify_topic_info": (place, self._update),
                "admin_delete_topic_deploy_info": (place, self._move_to(DELETED)),
                "admin_delete_topic_info": (place, self._move_to(DELETED)),
                "admin_redo_deleted_topic_deploy_info": redo,
                "admin_redo_deleted_topic_info": redo,
                "admin_remove_topic_deploy_info": (place, self._move_to(REMOVED)),
                "admin_remove_topic_info": (place, self._move_to(REMOVED)),
            }
        )

    # ------------------------------------------------------------------ queries

    def _selected(self, params: Params) -> list[Deployment]:
        topics, ids = params.topics(), params.broker_ids()
        return [
            record
            for record in self._cluster.all_deployments()
            if (not topics or record.topic in topics) and (not ids or record.broker_id in ids)
        ]

    def _topics(self, show: Callable[..., Reply]) -> Method:
        """Return a method that renders each requested topic with `show`, in the order requested."""

        def answer(params: Params) -> Reply:
            now_ms = self._master.clock()
            requested, existing = params.topics(), self._cluster.topic_names()
            shown = []
            for topic in (
                [name for name in requested if name in existing] if requested else existing
            ):
                ids, deployments = params.broker_ids(), self._cluster.deployments(topic)
                selected = [record for record in deployments if not ids or record.broker_id in ids]
                if selected:
                    shown.append(show(self._cluster, topic, selected, now_ms))
            return rows(shown)

        return answer

    def _deployed_topics(self, params: Params) -> Reply:
        by_broker: dict[int, list[str]] = {}
        for record in self._selected(params):
            by_broker.setdefault(record.broker_id, []).append(record.topic)
        return rows(
            [
                {"brokerId": broker_id, "topicName": names, "topicCount": len(names)}
                for broker_id, names in sorted(by_broker.items())
            ]
        )

    def _deployed_broker_ids(self, params: Params) -> Reply:
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

    def _deploy_configure(self, params: Params) -> Reply:
        return rows([topic_row(self._cluster, record) for record in self._selected(params)])

    def _groups_by_topic(self, params: Params) -> Reply:
        groups = self._master.groups
        online = [(name, group) for name in groups.names() if (group := groups.find(name))]
        groups_by_topic = []
        for topic in params.topics() or self._cluster.topic_names():
            names = sorted(name for name, group in online if topic in group.topics)
            groups_by_topic.append({"topicName": topic, "groupSet": names, "groupCnt": len(names)})
        return rows(groups_by_topic)

    # ------------------------------------------------------------------ changes

    def _add(self, params: Params, user: str, topic: str, broker_id: int) -> Reply:
        """Add a topic to a broker; properties missing in the request are the broker's."""
        own_mb = params.number("maxMsgSizeInMB", least=1)
        broker = self._cluster.brokers.get(broker_id)
        if broker is None:
            text = f"Not found broker configure record by brokerId={broker_id}, "
            text = f"{text}please create the broker's configure first!"
            return _PLACE.refused(401, text, broker_id, topic)
        if self._cluster.deployment(topic, broker_id) is not None:
            return _PLACE.exists(broker_id, topic)
        props = changed_props(params, broker.props)
        self._cluster.deploy(topic, broker_id, replace(props), user, self._master.clock())
        if own_mb is not None:
            self._cluster.topics[topic].max_message_mb = own_mb
        return _PLACE.ok(broker_id, topic)

    def _update(self, params: Params, user: str, topic: str, broker_id: int) -> Reply:
        record = self._cluster.deployment(topic, broker_id)
        if record is None:
            return _PLACE.missing(broker_id, topic)
        props = changed_props(params, record.props)
        for label, new, old in (
            ("Partition", props.partitions, record.props.partitions),
            ("TopicStores", props.stores, record.props.stores),
        ):
            if new < old:
                text = (
                    f"{label} number less than before, new value is {new}, current value is {old}"
                )
                text = f"{text}in brokerId-topicName({broker_id}:{topic}) record!"
                return _PLACE.refused(407, text, broker_id, topic)
        if props == record.props:
            return _PLACE.unchanged(broker_id, topic)
        record.props = props
        record.audit.touch(user, self._master.clock())
        self._cluster.changed()
        return _PLACE.ok(broker_id, topic)

    def _redo(self, _params: Params, _user: str, topic: str, broker_id: int) -> Reply:
        exists = self._cluster.deployment(topic, broker_id) is not None
        return _PLACE.ok(broker_id, topic) if exists else _no_deployment(broker_id, topic)

    def _move_to(self, status: int) -> ChangeOne:
        def one(_params: Params, user: str, topic: str, broker_id: int) -> Reply:
            record = self._cluster.deployment(topic, broker_id)
            if record is None:
                return _no_deployment(broker_id, topic)
            if record.props.accept_publish or record.props.accept_subscribe:
                text = "The values of acceptPublish and acceptSubscribe must be false before change"
                text = f"{text} status of brokerId-topicName({broker_id}:{topic}) record!"
                return _PLACE.refused(406, text, broker_id, topic)
            if record.status == status == DELETED:
                return _PLACE.ok(broker_id, topic)
            if record.status == status:
                return _PLACE.unchanged(broker_id, topic)
            if status == REMOVED and record.status != DELETED:
                text = f"The topic {topic} is not soft deleted!"
                return _PLACE.refused(406, text, broker_id, topic)
            record.status = status
            record.audit.touch(user, self._master.clock())
            if status == REMOVED and not self._cluster.brokers[broker_id].alive:
                self._cluster.undeploy(topic, broker_id)
            self._cluster.changed()
            return _PLACE.ok(broker_id, topic)

        return one


def _no_deployment(broker_id: int, topic: str) -> Reply:
    text = f"Not found the topic {topic}'s deploy configure in broker={broker_id}"
    text = f"{text}, please confirm the configure first!"
    return _PLACE.refused(401, text, broker_id, topic)
