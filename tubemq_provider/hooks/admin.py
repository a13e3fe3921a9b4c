"""`TubeMQAdminHook`: topics, groups and positions of a cluster, from an Airflow connection.

Administration uses HTTP to the masters; changes need the connection's administration token,
which only this hook reads. Each call opens and closes a client; methods block. The effect of a
change on clients is described in docs/administration.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tubemq_client.admin import AdminClient
from tubemq_provider.hooks._base import ClusterHook
from tubemq_provider.hooks.connection import ConnectionConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tubemq_client import Partition
    from tubemq_client.admin import GroupLag, OffsetChange, TopicInfo

__all__ = ["TubeMQAdminHook"]


class TubeMQAdminHook(ClusterHook[ConnectionConfig]):
    """Hook that administers the cluster of the connection `tubemq_conn_id`.

    The connection's `admin_url` is the address (default: port 8080 of each master), its
    `admin_token`
    is the masters' ``confModAuthToken``; only changes need it.

    :param tubemq_conn_id: id of a connection of type ``tubemq``.
    """

    conn_name_attr = "tubemq_conn_id"
    default_conn_name = "tubemq_default"
    conn_type = "tubemq"
    hook_name = "Apache InLong TubeMQ"
    model = ConnectionConfig

    def __init__(self, tubemq_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.tubemq_conn_id = tubemq_conn_id

    def get_conn(self) -> AdminClient:
        """Return the client with all operations, a context manager that the caller closes."""
        config = self.config
        return AdminClient(
            config.admin_urls(),
            token=config.admin_token,
            user="airflow",
            timeout_ms=config.rpc_timeout_ms,
            **config.admin_tls(),
        )

    def topics(self, names: Sequence[str] = ()) -> list[TopicInfo]:
        """Return the topics in the masters' configuration; all, or those of `names`."""
        with self.get_conn() as client:
            return client.topics(names)

    def has_topic(self, name: str) -> bool:
        """Return True if any broker has the topic."""
        return any(topic.name == name for topic in self.topics())

    def create_topic(self, name: str, **settings: Any) -> None:
        """Create a topic, on every broker or on those of `broker_ids`.

        `settings` are those of `AdminClient.create_topic`. Raises `errors.AdminError` with the
        answer of each broker.
        """
        with self.get_conn() as client:
            client.create_topic(name, **settings)

    def modify_topic(self, name: str, **settings: Any) -> None:
        """Change a topic; the numbers of stores and partitions can only grow."""
        with self.get_conn() as client:
            client.modify_topic(name, **settings)

    def delete_topic(self, name: str, **settings: Any) -> None:
        """Delete a topic; with `remove_data` its records cannot be recovered."""
        with self.get_conn() as client:
            client.delete_topic(name, **settings)

    def group_lag(self, group: str, topic: str | None = None) -> list[GroupLag]:
        """Return the lag of a group of TubeMQ's own consumers, to the ends in memory."""
        with self.get_conn() as client:
            return client.lag(group, topic)

    def set_group_offsets(
        self,
        group: str,
        offsets: Mapping[Partition, int | Literal["earliest", "latest"]],
        *,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Move the positions that brokers keep for `group`: offsets, ``earliest`` or ``latest`` by
        partition. `dry_run` only returns the changes.

        Stop the group's consumers first. Progress of ingest tasks is not stored there: use
        `TubeMQOffsetsOperator`.
        """
        with self.get_conn() as client:
            return client.set_offsets(group, offsets, dry_run=dry_run)
