"""Controls over consumer groups: permissions by topic, allowed filters, and rate limits.

Pure records and the decisions that follow from them. A master consults them at every registration
and balance round, brokers apply the cluster's flow rules; `http_controls` sets them. Flow rules are
kept as the JSON text that clients get.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tubemq_client.embedded.checks import Refused
from tubemq_client.embedded.records import UNDEFINED, Audit, TopicProps

__all__ = ["ClusterSetting", "ConsumeControl", "Controls", "FlowSetting", "GroupControl"]

NO_RULES = "[]"


@dataclass(slots=True)
class FlowSetting:
    """Flow rules as their JSON text, and whether they are in force."""

    enabled: bool = False
    text: str = NO_RULES


@dataclass(slots=True)
class ConsumeControl:
    """A group's permission for one topic. Without `enabled` the group never gets a partition of it;
    with `filtering` it must request some of `conditions`, and no others.
    """

    group: str
    topic: str
    audit: Audit
    enabled: bool = True
    reason: str = ""
    filtering: bool = False
    conditions: tuple[str, ...] = ()


@dataclass(slots=True)
class GroupControl:
    """A group's share of the brokers: `client_rate` > 0 limits the brokers of one member."""

    group: str
    audit: Audit
    check_rate: bool = False
    client_rate: int = 0
    query_priority: int = 301
    flow: FlowSetting = field(default_factory=FlowSetting)


@dataclass(slots=True)
class ClusterSetting:
    """The cluster's defaults, for a broker, topic or group without its own setting."""

    audit: Audit
    broker_port: int = 8123
    broker_tls_port: int = 8124
    broker_web_port: int = 8081
    max_message_mb: int = 1
    query_priority: int = 301
    flow: FlowSetting = field(default_factory=FlowSetting)
    props: TopicProps = field(default_factory=TopicProps)


class Controls:
    """All controls of one cluster. `setting` is None until it is set, as on a real one."""

    def __init__(self) -> None:
        self.consume: dict[tuple[str, str], ConsumeControl] = {}
        self.groups: dict[str, GroupControl] = {}
        self.setting: ClusterSetting | None = None

    # ------------------------------------------------------------------ decisions

    def check_consumer(
        self,
        client_id: str,
        group: str,
        authorised_topics: Iterable[str],
        conditions: Mapping[str, frozenset[str]],
    ) -> None:
        """Check that `group` may read topics under authorisation control, with its filters.

        Raises `Refused` 450 or 455.
        """
        topics = sorted(authorised_topics)
        closed = [topic for topic in topics if not self._permits(group, topic)]
        if closed:
            raise Refused(
                450,
                f"[unAuthorized Group] {client_id}'s consumerGroup not authorized by "
                f"administrator, unAuthorizedTopics: [{', '.join(closed)}]",
            )
        for topic in topics:
            requested = conditions.get(topic, frozenset())
            _check_filter(client_id, self.consume[group, topic], requested)

    def _permits(self, group: str, topic: str) -> bool:
        control = self.consume.get((group, topic))
        return control is not None and control.enabled

    def disabled_topics(self, group: str) -> frozenset[str]:
        """Return the topics of which the group never gets a partition."""
        return frozenset(
            control.topic
            for (name, _), control in self.consume.items()
            if name == group and not control.enabled
        )

    def client_rate(self, group: str) -> int:
        """Return the limit of brokers per member, `UNDEFINED` if the group has none."""
        control = self.groups.get(group)
        return control.client_rate if control and control.client_rate > 0 else UNDEFINED

    # ------------------------------------------------------------------ persistence

    def dump(self) -> dict[str, Any]:
        """Return all controls as plain JSON values."""
        return {
            "consume": [asdict(control) for control in self.consume.values()],
            "groups": [asdict(control) for control in self.groups.values()],
            "setting": asdict(self.setting) if self.setting else None,
        }

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace all controls by the result of `dump`; an empty document removes them."""
        self.consume = {
            (row["group"], row["topic"]): ConsumeControl(
                **{**row, "audit": Audit(**row["audit"]), "conditions": tuple(row["conditions"])}
            )
            for row in document.get("consume", ())
        }
        self.groups = {
            row["group"]: GroupControl(
                **{**row, "audit": Audit(**row["audit"]), "flow": FlowSetting(**row["flow"])}
            )
            for row in document.get("groups", ())
        }
        row = document.get("setting")
        self.setting = row and ClusterSetting(
            **{
                **row,
                "audit": Audit(**row["audit"]),
                "flow": FlowSetting(**row["flow"]),
                "props": TopicProps(**row["props"]),
            }
        )


def _check_filter(client_id: str, control: ConsumeControl, requested: frozenset[str]) -> None:
    if not control.filtering:
        return
    if not requested:
        raise Refused(
            455,
            f"[Restricted Group] {client_id} : {control.group} must set the filter conditions of "
            f"topic {control.topic}",
        )
    forbidden = sorted(requested.difference(control.conditions))
    if forbidden:
        raise Refused(
            455,
            f"[Restricted Group] {client_id} : unAuthorized filter conditions "
            f"{{{control.topic}=[{', '.join(forbidden)}]}}",
        )
