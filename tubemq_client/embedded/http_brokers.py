"""The master's HTTP methods for brokers: the table of changes, how they are set and how they run.

One kind of record: a broker as configured at the master. Changes take effect at once, since
embedded brokers share the master's state; so a reload has nothing to send.
"""

from __future__ import annotations

import ipaddress

from tubemq_client.embedded.cluster import Audit, BrokerRecord, ManageStatus, TopicProps
from tubemq_client.embedded.http_params import BadParameter, Params, changed_props
from tubemq_client.embedded.http_records import (
    ChangeOne,
    Method,
    RecordKind,
    Reply,
    change,
    changes,
)
from tubemq_client.embedded.http_reply import audit_fields, props_fields, rows, wrapper
from tubemq_client.embedded.http_topics import topic_row
from tubemq_client.embedded.master import Master

__all__ = ["BrokersAdmin"]

_BROKER = RecordKind(("brokerId", "brokerIp"), "brokerId({})", "broker configure", "")
_PORTS = {
    "brokerPort": ("port", 8123),
    "brokerTLSPort": ("tls_port", 8124),
    "brokerWebPort": ("web_port", 8081),
}
_OUT_OF_USE = (ManageStatus.DRAFT, ManageStatus.OFFLINE)
_BY_ACCESS = {
    (True, True): ManageStatus.ONLINE,
    (False, True): ManageStatus.ONLY_READ,
    (True, False): ManageStatus.ONLY_WRITE,
    (False, False): ManageStatus.OFFLINE,
}
"""Statuses by what a broker accepts: records, and readers."""


class BrokersAdmin:
    """Answers methods about brokers against one master's state."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._cluster = master.cluster
        self.reads: dict[str, Method] = {
            "admin_query_broker_configure": self._broker_configure,
            "admin_query_broker_run_status": self._run_status,
            "admin_query_master_group_info": self._master_group,
        }
        ids = "brokerId modifyUser"
        self.writes: dict[str, Method] = {
            "admin_add_broker_configure": self._add,
            "admin_set_broker_read_or_write": self._set_access,
            **changes(
                {
                    "admin_online_broker_configure": (ids, self._move_to(ManageStatus.ONLINE)),
                    "admin_offline_broker_configure": (ids, self._move_to(ManageStatus.OFFLINE)),
                    "admin_update_broker_configure": (ids, self._update),
                    "admin_reload_broker_configure": (ids, self._reload),
                    # Nothing to clear: this master forbids no broker.
                    "admin_release_broker_autoforbidden_status": (ids, self._known),
                    "admin_delete_broker_configure": (ids, self._delete),
                }
            ),
        }

    # ------------------------------------------------------------------ queries

    def _selected(self, params: Params) -> list[BrokerRecord]:
        ids, hosts = params.broker_ids(), params.items("brokerIp")
        return [
            record
            for _, record in sorted(self._cluster.brokers.items())
            if (not ids or record.broker_id in ids) and (not hosts or record.host in hosts)
        ]

    def _broker_configure(self, params: Params) -> Reply:
        with_topics = params.flag("withTopic")
        broker_rows = []
        for record in self._selected(params):
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
            broker_rows.append(row)
        return rows(broker_rows)

    def _run_status(self, params: Params) -> Reply:
        now_ms = self._master.clock()
        return rows([self._run_row(record, now_ms) for record in self._selected(params)])

    def _run_row(self, record: BrokerRecord, now_ms: int) -> Reply:
        draft = record.status is ManageStatus.DRAFT
        managed = record.status not in _OUT_OF_USE
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
            # A real master also reports this forever: it never counts a first load.
            "isConfLoaded": text("false"),
            "isBrokerOnline": text("true"),
            "brokerVersion": "-",
            "acceptPublish": text(record.status.publishes),
            "acceptSubscribe": text(record.status.subscribes),
        }

    def _master_group(self, _params: Params) -> Reply:
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

    # ------------------------------------------------------------------ changes

    def _add(self, params: Params) -> Reply:
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
        # In the order in which a real master checks them.
        port, tls_port, web_port = (
            params.number(name, default) or default for name, (_, default) in _PORTS.items()
        )
        record = BrokerRecord(
            broker_id,
            host,
            port,
            web_port,
            tls_port,
            Audit.new(user, self._master.clock()),
            region_id=params.number("regionId", 0) or 0,
            props=changed_props(params, TopicProps()),
        )
        self._cluster.put_broker(record)
        return rows([_BROKER.ok(broker_id, host)])

    def _move_to(self, status: ManageStatus) -> ChangeOne:
        def one(_params: Params, user: str, broker_id: int) -> Reply:
            return self._set_status(broker_id, status, user)

        return one

    def _set_status(self, broker_id: int, status: ManageStatus, user: str) -> Reply:
        record = self._cluster.brokers.get(broker_id)
        if record is None:
            return _BROKER.missing(broker_id, "")
        if record.status is status:
            text = f"Unchanged  manageStatus({status.label})!"
            return _BROKER.refused(403, text, broker_id, "")
        if status is not ManageStatus.ONLINE and record.status is ManageStatus.DRAFT:
            text = "Illegal manage status, cannot reverse manageStatus from draft to"
            text = f"{text} {status.label} for the broker(brokerId={broker_id})!"
            return _BROKER.refused(407, text, broker_id, "")
        self._cluster.set_status(broker_id, status, user, self._master.clock())
        return _BROKER.ok(broker_id, "")

    def _set_access(self, params: Params) -> Reply:
        if params.text("acceptPublish") is None and params.text("acceptSubscribe") is None:
            raise BadParameter("Fields acceptPublish or acceptSubscribe must exist at this method!")
        return change("brokerId modifyUser", self._access)(params)

    def _access(self, params: Params, user: str, broker_id: int) -> Reply:
        record = self._cluster.brokers.get(broker_id)
        if record is None:
            return _BROKER.missing(broker_id, "")
        if record.status is ManageStatus.DRAFT:
            text = "The broker configure under draft status, please online first!"
            return _BROKER.refused(405, text, broker_id, "")
        publish = params.flag("acceptPublish", default=record.status.publishes)
        subscribe = params.flag("acceptSubscribe", default=record.status.subscribes)
        status = _BY_ACCESS[publish, subscribe]
        if status is record.status:
            return _BROKER.ok(broker_id, record.host)
        return self._set_status(broker_id, status, user)

    def _reload(self, params: Params, user: str, broker_id: int) -> Reply:
        record = self._cluster.brokers.get(broker_id)
        if record is not None and record.status in _OUT_OF_USE:
            text = f"The broker manage status by brokerId={broker_id} is not in online status"
            text = f"{text}, can't reload this configure! "
            return _BROKER.refused(406, text, broker_id, "")
        return self._known(params, user, broker_id)

    def _known(self, _params: Params, _user: str, broker_id: int) -> Reply:
        exists = broker_id in self._cluster.brokers
        return _BROKER.ok(broker_id, "") if exists else _BROKER.missing(broker_id, "")

    def _update(self, params: Params, user: str, broker_id: int) -> Reply:
        record = self._cluster.brokers.get(broker_id)
        if record is None:
            return _BROKER.missing(broker_id, "")
        if record.alive:
            ports = [name for name in _PORTS if params.text(name) is not None]
            if ports:
                raise BadParameter(f"{', '.join(ports)}: the embedded broker is listening already")
        for name, (attribute, _) in _PORTS.items():
            setattr(record, attribute, params.number(name, getattr(record, attribute)))
        record.props = changed_props(params, record.props)
        record.audit.touch(user, self._master.clock())
        self._cluster.changed()
        return _BROKER.ok(broker_id, record.host)

    def _delete(self, params: Params, _user: str, broker_id: int) -> Reply:
        record = self._cluster.brokers.get(broker_id)
        if record is None:
            return _BROKER.missing(broker_id, "")
        if record.status not in _OUT_OF_USE:
            text = "Broker manage status is online, please offline first!"
            return _BROKER.refused(406, text, broker_id, "null")
        if record.alive:
            return _BROKER.refused(406, "The embedded broker runs: stop it first!", broker_id, "")
        if not params.flag("isReservedData"):  # real brokers always have the system's own topic
            text = f"Illegal operate conditions, the broker({broker_id})'s topic deploy configure"
            text = f"{text} uncleaned, please delete them first!"
            return _BROKER.refused(404, text, broker_id, "null")
        for item in self._cluster.on_broker(broker_id):
            self._cluster.undeploy(item.topic, broker_id)
        self._cluster.remove_broker(broker_id)
        return _BROKER.ok(broker_id, "null")
