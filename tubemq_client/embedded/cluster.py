"""The master's metadata: brokers, topics and their deployment, each with its audit stamp.

Pure state shared by the master, the brokers and both HTTP sides of one embedded server. It decides
which topics can be published to and subscribed on which broker, at a given time (ms). It starts no
listener and sends nothing; persistence saves it whenever `version` has grown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

from tubemq_client.embedded.controls import Controls
from tubemq_client.embedded.options import Switches
from tubemq_client.embedded.records import UNDEFINED, Audit, TopicProps

__all__ = [
    "DELETED",
    "NORMAL",
    "REMOVED",
    "UNDEFINED",
    "Audit",
    "BrokerRecord",
    "Cluster",
    "Deployment",
    "ManageStatus",
    "TopicProps",
    "TopicRecord",
]

NORMAL, DELETED, REMOVED = range(3)
"""Values of `Deployment.status`: in use, out of use, to be deleted by its broker."""

HEADER_ALLOWANCE_BYTES = 10 * 1024
"""A record may exceed its topic's size setting by this much, for attributes."""


class ManageStatus(IntEnum):
    """A broker's administrative status; decides what is published to clients."""

    DRAFT = 1
    ONLINE = 5
    ONLY_READ = 6
    ONLY_WRITE = 7
    OFFLINE = 9

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")

    @property
    def publishes(self) -> bool:
        return self in (ManageStatus.ONLINE, ManageStatus.ONLY_WRITE)

    @property
    def subscribes(self) -> bool:
        return self in (ManageStatus.ONLINE, ManageStatus.ONLY_READ)


@dataclass(slots=True)
class BrokerRecord:
    """A broker as configured at the master. `alive`: its process runs and reports;
    `lost_ms`: when it stopped reporting, None if it never ran or runs."""

    broker_id: int
    host: str
    port: int
    web_port: int
    tls_port: int
    audit: Audit
    status: ManageStatus = ManageStatus.DRAFT
    region_id: int = 0
    props: TopicProps = field(default_factory=TopicProps)
    alive: bool = False
    lost_ms: int | None = None


@dataclass(slots=True)
class Deployment:
    """A topic on one broker. `status` 0 is normal, 1 soft deleted, 2 and 3 being removed."""

    topic: str
    broker_id: int
    props: TopicProps
    audit: Audit
    status: int = 0


@dataclass(slots=True)
class TopicRecord:
    """Topic-wide settings. `max_message_mb` None means the cluster's."""

    name: str
    audit: Audit
    max_message_mb: int | None = None
    topic_name_id: int = UNDEFINED
    auth_control: bool = False


class Cluster:
    """Brokers and topics of one server, and the `controls` over their clients."""

    def __init__(self, switches: Switches) -> None:
        self._switches = switches
        self.brokers: dict[int, BrokerRecord] = {}
        self.topics: dict[str, TopicRecord] = {}
        self._deployments: dict[str, dict[int, Deployment]] = {}
        self.controls = Controls()
        self.version = 0
        self.loaded = True
        """False while a master that has just become active has not read the metadata yet."""
        self.broker_list_id = 1
        """Changes whenever the list of broker addresses does."""

    # ------------------------------------------------------------------ brokers

    def put_broker(self, record: BrokerRecord) -> None:
        """Add or replace a broker's record."""
        self.brokers[record.broker_id] = record
        self._broker_list_changed(record.audit.serial_id)

    def remove_broker(self, broker_id: int) -> None:
        """Forget a broker."""
        del self.brokers[broker_id]
        self._broker_list_changed(self.broker_list_id + 1)

    def set_status(self, broker_id: int, status: ManageStatus, user: str, now_ms: int) -> None:
        record = self.brokers[broker_id]
        record.status = status
        record.audit.touch(user, now_ms)
        self.version += 1

    def broker_started(self, broker_id: int) -> None:
        record = self.brokers[broker_id]
        record.alive, record.lost_ms = True, None

    def begin_loading(self) -> None:
        """Start over under another master, which has no metadata and no reports of brokers yet."""
        self.loaded = False
        for broker_id in self.brokers:
            self.broker_stopped(broker_id)

    def broker_stopped(self, broker_id: int) -> None:
        """Mark a broker that signed off as offline at once.

        A broker whose start failed may be unknown.
        """
        record = self.brokers.get(broker_id)
        if record is not None:
            record.alive, record.lost_ms = False, None

    def broker_lost(self, broker_id: int, now_ms: int) -> None:
        """Mark a broker as lost without a sign-off; it counts as online until its timeout."""
        record = self.brokers[broker_id]
        record.alive, record.lost_ms = False, now_ms

    def is_online(self, broker_id: int, now_ms: int) -> bool:
        """Return True if the master believes that the broker runs."""
        record = self.brokers[broker_id]
        if record.alive:
            return True
        timeout = self._switches.broker_timeout_ms
        return record.lost_ms is not None and now_ms - record.lost_ms < timeout

    # ------------------------------------------------------------------ topics

    def deploy(
        self, topic: str, broker_id: int, props: TopicProps, user: str, now_ms: int
    ) -> Deployment:
        """Put a topic on a broker; the pair must be new."""
        record = Deployment(topic, broker_id, props, Audit.new(user, now_ms))
        self._deployments.setdefault(topic, {})[broker_id] = record
        if topic not in self.topics:
            self.topics[topic] = TopicRecord(topic, Audit.by_system(now_ms))
        self.version += 1
        return record

    def undeploy(self, topic: str, broker_id: int) -> None:
        """Forget that a broker has a topic."""
        deployments = self._deployments.get(topic, {})
        deployments.pop(broker_id, None)
        if not deployments:
            self._deployments.pop(topic, None)
        self.version += 1

    def changed(self) -> None:
        """Count a change to a record that was edited in place."""
        self.version += 1

    def deployment(self, topic: str, broker_id: int) -> Deployment | None:
        return self._deployments.get(topic, {}).get(broker_id)

    def deployments(self, topic: str) -> list[Deployment]:
        """Return the deployments of `topic`, sorted by broker id."""
        return [record for _, record in sorted(self._deployments.get(topic, {}).items())]

    def on_broker(self, broker_id: int) -> list[Deployment]:
        return [record for record in self.all_deployments() if record.broker_id == broker_id]

    def all_deployments(self) -> Iterator[Deployment]:
        for topic in sorted(self._deployments):
            yield from self.deployments(topic)

    def topic_names(self) -> list[str]:
        return sorted(self._deployments)

    def is_deployed(self, topic: str) -> bool:
        return self.loaded and bool(self._deployments.get(topic))

    def message_limit(self, topic: str) -> int:
        """Return the maximum size in bytes of one encoded record of `topic`."""
        return self.message_mb(topic) * 1024 * 1024 + HEADER_ALLOWANCE_BYTES

    def message_mb(self, topic: str) -> int:
        """Return the topic's size setting in MiB."""
        record = self.topics.get(topic)
        return (record.max_message_mb if record else None) or self._default_mb

    @property
    def memory_record_limit(self) -> int:
        """Maximum size in bytes of a record in the data log to be read from memory, whatever its
        topic allows: real brokers compare with the cluster's setting there.
        """
        return self._default_mb * 1024 * 1024 + HEADER_ALLOWANCE_BYTES

    @property
    def _default_mb(self) -> int:
        setting = self.controls.setting
        return setting.max_message_mb if setting else self._switches.max_message_mb

    # ------------------------------------------------------------------ views of clients

    def publishable(self, record: Deployment, now_ms: int) -> bool:
        """Return True if producers are sent to this deployment now."""
        return (
            record.props.accept_publish
            and self._usable(record, now_ms, self._switches.publish_delay_ms)
            and self.brokers[record.broker_id].status.publishes
        )

    def subscribable(self, record: Deployment, now_ms: int) -> bool:
        """Return True if consumers may subscribe to this deployment now."""
        return (
            record.props.accept_subscribe
            and self._usable(record, now_ms, self._switches.subscribe_delay_ms)
            and self.brokers[record.broker_id].status.subscribes
        )

    def _usable(self, record: Deployment, now_ms: int, delay_ms: int) -> bool:
        return (
            record.status == 0
            and record.broker_id in self.brokers
            and self.is_online(record.broker_id, now_ms)
            and now_ms >= record.audit.created_ms + delay_ms
        )

    def renew_broker_list(self) -> None:
        """Change the id of the list of broker addresses, as if the list had changed."""
        self._broker_list_changed(self.broker_list_id + 1)

    def _broker_list_changed(self, candidate: int) -> None:
        # Ids are times on real masters; a new one only has to exceed all former ones.
        self.broker_list_id = max(candidate, self.broker_list_id + 1)
        self.version += 1

    # ------------------------------------------------------------------ persistence

    def dump(self) -> dict[str, Any]:
        """Return the whole state as plain JSON values."""
        return {
            "broker_list_id": self.broker_list_id,
            "brokers": [asdict(record) for record in self.brokers.values()],
            "topics": [asdict(record) for record in self.topics.values()],
            "deployments": [asdict(record) for record in self.all_deployments()],
            "controls": self.controls.dump(),
        }

    def load(self, document: dict[str, Any]) -> None:
        """Replace the whole state by the result of `dump`. No broker is alive afterwards."""
        self.broker_list_id = document["broker_list_id"]
        self.brokers = {row["broker_id"]: _broker(row) for row in document["brokers"]}
        self.topics = {
            row["name"]: TopicRecord(**{**row, "audit": Audit(**row["audit"])})
            for row in document["topics"]
        }
        self._deployments = {}
        for row in document["deployments"]:
            props, audit = TopicProps(**row["props"]), Audit(**row["audit"])
            record = Deployment(**{**row, "props": props, "audit": audit})
            self._deployments.setdefault(record.topic, {})[record.broker_id] = record
        self.controls.load(document.get("controls", {}))
        self.version += 1


def _broker(row: dict[str, Any]) -> BrokerRecord:
    return BrokerRecord(
        **{
            **row,
            "audit": Audit(**row["audit"]),
            "props": TopicProps(**row["props"]),
            "status": ManageStatus(row["status"]),
            "alive": False,
            "lost_ms": None,
        }
    )
