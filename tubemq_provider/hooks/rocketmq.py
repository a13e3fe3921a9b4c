"""`RocketMQHook`: clients and look-ups of an Airflow connection of type `rocketmq`.

Each method opens a client, asks and closes it, like the TubeMQ hook. Nothing secret is logged or
shown by `repr`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from rocketmq_client import aio, errors
from rocketmq_client.config import ClientConfig
from rocketmq_client.model import Queue
from rocketmq_client.sync import Admin, Consumer, Metadata, Producer, PullConsumer, RangeReader
from tubemq_client.model import address_text
from tubemq_provider.hooks._base import AsyncClusterHook, ClusterHook
from tubemq_provider.hooks.connection import ConnectionFields
from tubemq_provider.hooks.failures import ErrorContext
from tubemq_provider.hooks.sharing import Connected
from tubemq_provider.sources.rocketmq.reading import reader_group
from tubemq_provider.sources.rocketmq.source import RocketMQSource
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.windows.lag import Lag, lag_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from airflow.sdk import Connection

    from rocketmq_client.model import (
        ClientSettings,
        ConsumerSettings,
        Message,
        OutgoingMessage,
        QueueEnds,
        QueueRange,
        SendReceipt,
    )

__all__ = ["RocketMQAsyncHook", "RocketMQConnection", "RocketMQHook", "error_context"]


def error_context(conn_id: str, topic: str, group: str | None = None) -> ErrorContext:
    """Return the context that error texts of a task end with."""
    return ErrorContext(conn_id, topic, group, conn_type="rocketmq", port="9876")


class RocketMQConnection(ConnectionFields, ClientConfig):
    """Fields of a connection: how to reach the cluster, and its alias."""

    _KIND: ClassVar[str] = "rocketmq"
    _HOSTS: ClassVar[str] = "name_servers"
    _CREDENTIALS: ClassVar[tuple[str, str]] = ("access_key", "secret_key")

    @classmethod
    def _misplaced(cls, connection: Connection) -> list[str]:
        extras: Any = connection.extra_dejson
        has_login = bool(connection.login or connection.password)
        token = isinstance(extras, dict) and extras.get("security_token")
        useless = ["security_token: has no effect without login and password"]
        return super()._misplaced(connection) + (useless if token and not has_login else [])

    @classmethod
    def _completed(cls, options: dict[str, Any]) -> dict[str, Any]:
        token = options.pop("security_token", None)
        if token:
            options["auth"]["security_token"] = token
        return options


class RocketMQAsyncHook(AsyncClusterHook[RocketMQConnection]):
    """Hook of the connection `rocketmq_conn_id` on asyncio, for triggers.

    Use one hook in one event loop; it reads the Airflow connection once.

    :param rocketmq_conn_id: id of a connection of type ``rocketmq``.
    :param consumer_config: options of the client that win over those in the connection's extra.
    """

    model = RocketMQConnection

    def __init__(
        self,
        rocketmq_conn_id: str = "rocketmq_default",
        consumer_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(rocketmq_conn_id, consumer_config)
        self.rocketmq_conn_id = rocketmq_conn_id

    def connected(self) -> AbstractAsyncContextManager[aio.Metadata]:
        """Return a look-up client on connections that this loop shares per cluster."""
        return Connected(self.settings, aio.Session, aio.Metadata)


class RocketMQHook(ClusterHook[RocketMQConnection]):
    """Hook of the connection `rocketmq_conn_id`. Methods block.

    :param rocketmq_conn_id: id of a connection of type ``rocketmq``.
    :param consumer_config: options of the client that win over those in the connection's extra.
    """

    conn_name_attr = "rocketmq_conn_id"
    default_conn_name = "rocketmq_default"
    conn_type = "rocketmq"
    hook_name = "Apache RocketMQ"
    model = RocketMQConnection

    def __init__(
        self,
        rocketmq_conn_id: str = default_conn_name,
        consumer_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(consumer_config)
        self.rocketmq_conn_id = rocketmq_conn_id

    def get_conn(self) -> Metadata:
        """Return a look-up client; a context manager that the caller closes."""
        return Metadata(self.get_settings(), group=reader_group(self._group(None)))

    def get_settings(self) -> ClientSettings:
        """Return the plain settings of all clients of `rocketmq_client`."""
        settings: ClientSettings = self.config.reader_settings(self.consumer_config)
        return settings

    @property
    def servers(self) -> str:
        """Name servers of the connection, as text."""
        return f"name servers {', '.join(map(address_text, self.config.name_servers))}"

    @property
    def admin_url(self) -> str | None:
        """Address of an admin page; None, as brokers have no pages."""
        return None

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> RocketMQSource:
        """Return the source that windows of `group` are planned from and read; filters are tags.

        Connects to nothing yet; close it. Raises `errors.ConfigError` for a connection that is
        wrong.
        """
        return RocketMQSource(
            self.get_settings(), identity=self.cluster, topic=topic, group=group, tags=filters
        )

    def consumer(
        self,
        topics: Mapping[str, str | Sequence[str]],
        group: str | None = None,
        *,
        settings: ConsumerSettings | None = None,
    ) -> Consumer:
        """Return a member of `group` (None: the connection's) that reads `topics`, each with tags
        to filter by.

        At least once; entering the context joins the group. For tasks that handle records
        themselves: windows need no group member, and commit nothing at the brokers. Raises
        `errors.ConfigError` without a group.
        """
        name = self.config.group_of(group, conn_id=self.rocketmq_conn_id)
        mine = self.get_settings()
        return Consumer(mine, name, topics, consumer=settings or getattr(mine, "member", None))

    # Look-ups

    def partitions(self, topic: str) -> Mapping[Queue, bool]:
        """Return the queues of `topic` that can be read. Raises `errors.UnknownTopic`."""
        with self.source(topic, self._group(None)) as source:
            return source.partitions()

    def ends(self, topic: str, *, stable: bool = True) -> Mapping[Queue, QueueEnds]:
        """Return minimum and end offsets of all queues; `stable` ends are on the brokers' disks."""
        with self.get_conn() as client:
            return client.ends(topic, stable=stable, route=client.topic(topic))

    def reachable_ends(
        self, topic: str, group: str | None = None, *, stable: bool = True
    ) -> Mapping[Queue, QueueEnds]:
        """Return `ends` of queues whose brokers answer, asked as the reader of `group`.

        `away` of the result has the others.
        """
        with self.source(topic, self._group(group)) as source:
            return source.ends("stable" if stable else "latest")

    def observed_ends(self, topic: str) -> Mapping[Queue, QueueEnds]:
        """Return stable ends, without disturbing a group."""
        return self.ends(topic)

    def offset_at(self, topic: str, instant: datetime) -> Mapping[str, int]:
        """Return the first offset stored at or after `instant`, by queue key.

        Raises `WindowNotReady` while an earlier record may still arrive.
        """
        with self.source(topic, self._group(None)) as source:
            return source.offsets_at(instant)

    def lag(self, topic: str, positions: Mapping[Queue, int | None], *, stable: bool = True) -> Lag:
        """Return the records between `positions` and the ends."""
        return lag_between(self.ends(topic, stable=stable), positions, SPACE)

    def group_offsets(self, topic: str, group: str) -> dict[Queue, int | None]:
        """Return the committed offsets of `group`; None where it never committed."""
        with self.get_conn() as client:
            return client.group_offsets(topic, group)

    def commit_group_offsets(self, topic: str, group: str, offsets: Mapping[str, int]) -> None:
        """Commit `offsets`, by queue key, for `group` at the brokers.

        Raises for the first queue that fails.
        """
        with PullConsumer(self.get_settings(), group=group) as consumer:
            for key, offset in offsets.items():
                consumer.commit(Queue.from_key(topic, key), offset)

    # Records

    def read_range(
        self, range_: QueueRange, *, group: str | None = None, **policy: Any
    ) -> Iterator[Message]:
        """Yield every record of `range_` once; `policy` are options of `RangeReader`: tags …"""
        name = reader_group(self._group(group))
        settings = self.get_settings()
        with RangeReader(settings, group=name, **{**settings.range_options, **policy}) as reader:
            for batch in reader.read(range_):
                yield from batch.messages()

    def produce(self, topic: str, records: Iterable[OutgoingMessage]) -> Iterator[SendReceipt]:
        """Send records one by one, delayed ones too, and yield receipts in order."""
        with Producer(self.get_settings()) as client:
            for record in records:
                yield client.send(topic, **record._asdict())

    def test_connection(self) -> tuple[bool, str]:
        """List the brokers of a name server, and contact each master."""
        try:
            with Admin(self.get_settings()) as admin:
                brokers = admin.brokers().brokers
                for name in brokers:
                    admin.runtime_info(name)
        except errors.RocketMQError as exc:
            return False, str(exc)
        return bool(brokers), f"brokers that answer: {', '.join(sorted(brokers)) or 'none'}"

    def _group(self, group: str | None) -> str:
        return group or self.config.default_group or "rocketmq_look"
