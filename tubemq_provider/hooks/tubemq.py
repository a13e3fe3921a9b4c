"""`TubeMQHook`: clients and look-ups of an Airflow connection of type `tubemq`.

Each method opens a client, asks and closes it: sensors poke minutes apart and tasks plan once, so a
connection kept open would mostly be idle. Every request has the connection's deadline. Nothing
secret is logged or shown by `repr`. Clients are imported when one is opened, since every Dag file
with an operator imports this module.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client.model import ProducerSettings, ReaderSettings, address_text
from tubemq_provider.hooks._base import ClusterHook
from tubemq_provider.hooks.connection import ConnectionConfig
from tubemq_provider.hooks.lineage import read_from, wrote_to
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.lag import Lag, lag_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tubemq_client import (
        ClientSettings,
        ConsumerSettings,
        Message,
        OffsetRange,
        Partition,
        Record,
        SendReceipt,
        TopicMetadata,
    )
    from tubemq_client.sync import Consumer, Metadata
    from tubemq_provider.sources.tubemq.source import TubeMQSource
    from tubemq_provider.windows.spaces import Ends

__all__ = ["TubeMQHook"]

_HINT_TIMEOUT_MS = 2_000
"""For the topics in an error text: it must not wait for servers that do not answer."""
_SHOWN = 10


class TubeMQHook(ClusterHook[ConnectionConfig]):
    """Hook of the connection `tubemq_conn_id`. Methods block.

    :param tubemq_conn_id: id of a connection of type ``tubemq``.
    :param consumer_config: options of the client that win over those in the connection's extra.
    """

    conn_name_attr = "tubemq_conn_id"
    default_conn_name = "tubemq_default"
    conn_type = "tubemq"
    hook_name = "Apache InLong TubeMQ"
    model = ConnectionConfig

    def __init__(
        self,
        tubemq_conn_id: str = default_conn_name,
        consumer_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(consumer_config)
        self.tubemq_conn_id = tubemq_conn_id

    def get_conn(self) -> Metadata:
        """Return a look-up client; a context manager that the caller closes."""
        from tubemq_client.sync import Metadata

        return Metadata(self.get_settings())

    def get_settings(self) -> ClientSettings:
        """Return the plain settings of all clients of `tubemq_client`."""
        settings: ClientSettings = self.config.reader_settings(self.consumer_config)
        return settings

    @property
    def servers(self) -> str:
        """Masters of the connection, as text."""
        return f"masters {self.masters.replace(',', ', ')}"

    @property
    def masters(self) -> str:
        """Masters of the connection, as `tubemq --masters` takes them."""
        return ",".join(map(address_text, self.config.masters))

    @property
    def admin_url(self) -> str | None:
        """HTTP address of a master, from the connection."""
        return self.config.admin_url

    def source(self, topic: str, group: str, filters: Sequence[str] = ()) -> TubeMQSource:
        """Return the source that windows of `group` are planned from and read.

        Connects to nothing yet; close it. Raises `errors.ConfigError` for a connection that is
        wrong.
        """
        from tubemq_provider.sources.tubemq.source import TubeMQSource

        return TubeMQSource(
            self.get_settings(),
            identity=self.cluster,
            topic=topic,
            group=group,
            filters=filters,
            asking=lambda: _offering_topics(topic, lambda: self.config),
        )

    def consumer(
        self,
        topics: Mapping[str, Sequence[str]],
        group: str | None = None,
        *,
        settings: ConsumerSettings | None = None,
    ) -> Consumer:
        """Return a member of `group` (None: the connection's) that reads `topics`, each with stream
        ids to filter by.

        At least once; entering the context joins the group. For tasks that handle records
        themselves: windows need no group member, and commit nothing at the brokers.
        """
        from tubemq_client.sync import Consumer

        mine = self.get_settings()
        own = mine.member if isinstance(mine, ReaderSettings) else None
        return Consumer(mine, self._group(group), topics, consumer=settings or own)

    # Look-ups

    def topic(self, topic: str, group: str | None = None) -> TopicMetadata:
        """Return brokers and partitions of `topic`. Raises `errors.UnknownTopic`, network
        errors."""
        with self._asking(topic) as client:
            return client.topic(topic, group or self.config.default_group)

    def partitions(self, topic: str) -> dict[Partition, bool]:
        """Return the partitions of `topic`, True for those that may be subscribed now."""
        return self.topic(topic).partitions

    def ends(
        self,
        topic: str,
        group: str | None = None,
        partitions: Iterable[Partition] | None = None,
        *,
        stable: bool = True,
    ) -> Mapping[Partition, Ends]:
        """Return minimum and end offsets; `stable` ends survive a broker crash.

        One look-up per store.
        """
        with self._asking(topic) as client:
            return client.ends(topic, self._group(group), partitions, stable=stable)

    def reachable_ends(
        self, topic: str, group: str | None = None, *, stable: bool = True
    ) -> Mapping[Partition, Ends]:
        """Return `ends` of the partitions whose brokers answer.

        `away` of the result has the others, with the reason.
        """
        with self._asking(topic) as client:
            return client.reachable_ends(topic, self._group(group), stable=stable)

    def observed_ends(self, topic: str) -> Mapping[Partition, Ends]:
        """Return stable ends of the partitions whose brokers answer.

        A look-up registers its group, and a master refuses a group that is active on another topic.
        So the look-up uses the connection's default group, for clusters with rights by group, or
        else a separate one for each topic, never that of a task.
        """
        group = self.config.default_group or f"tubemq_page_{topic}"
        return self.reachable_ends(topic, group, stable=True)

    def lag(
        self,
        topic: str,
        positions: Mapping[Partition, int | None],
        group: str | None = None,
        *,
        stable: bool = True,
    ) -> Lag:
        """Return index entries between `positions` and the ends: an upper bound on records."""
        return lag_between(self.ends(topic, group, stable=stable), positions, SPACE)

    def group_offsets(self, topic: str, group: str) -> dict[Partition, int]:
        """Return the offsets that brokers keep for `group`, committed by TubeMQ's own consumers.

        Fetched over HTTP without registering, so a running consumer is not disturbed. Partitions
        without an offset are missing; a new group appears up to 5 s late.
        """
        from tubemq_client.admin import AdminClient

        config = self.config
        brokers = self.topic(topic, group).brokers
        with AdminClient(
            config.admin_urls(), timeout_ms=config.rpc_timeout_ms, **config.admin_tls()
        ) as client:
            return client.group_offsets(topic, group, brokers)

    def commit_group_offsets(
        self, topic: str, group: str, offsets: Mapping[Partition, int]
    ) -> None:
        """Commit `offsets` for `group` at the brokers, for TubeMQ's own dashboards.

        Registers as the group's only consumer for a moment: raises `errors.PartitionOccupied` if
        another consumer of the group is active.
        """
        from tubemq_provider.sources.tubemq.source import commit_offsets

        commit_offsets(self.get_settings(), topic, group, offsets)

    def mirror_group_offsets(
        self, topic: str, group: str, offsets: Mapping[Partition, int]
    ) -> dict[Partition, str]:
        """Commit offsets of existing partitions whose brokers answer; return the others.

        The result has the reason for each partition that was left out. Raises the last broker's
        error if none answers.
        """
        from tubemq_provider.sources.tubemq.source import mirror_offsets

        return mirror_offsets(self.get_settings(), topic, group, offsets)

    # Records

    def read_range(
        self, range_: OffsetRange, *, group: str | None = None, **policy: Any
    ) -> Iterator[Message]:
        """Yield every record of `range_` once; `policy` are options of `RangeReader`: filters …"""
        from tubemq_client.sync import RangeReader

        settings = self.get_settings()
        read_from(self, range_.partition.topic, self._group(group))
        options = {**settings.range_options, **policy}
        with RangeReader(settings, group=self._group(group), **options) as reader:
            for batch in reader.read(range_):
                yield from batch.messages()

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        producer: ProducerSettings | None = None,
    ) -> Iterator[SendReceipt]:
        """Send records and yield receipts in order; a receipt precedes the write to disk.

        `producer` has the settings of retries and large records, checked by `ProducerConfig`.
        """
        from tubemq_client.sync import Producer

        wrote_to(self, topic)
        with Producer(self.get_settings(), producer=producer or ProducerSettings()) as client:
            yield from client.send_many(topic, records)

    def spark_options(self) -> dict[str, str]:
        """Return options of the connection for ``spark.read.format("tubemq").options(**…)``.

        Raises `errors.ConfigError` for a connection with a user or TLS, which must not be in
        options,
        since those show in query plans; see the option ``configFile``.
        """
        config = self.config
        if config.auth or config.tls:
            raise errors.ConfigError(
                f"connection {self.tubemq_conn_id!r} has a user or TLS, which options must not "
                "carry: write them to a file on the driver and name it with 'configFile'",
                subject="Spark options",
            )
        return {
            "masters": ",".join(map(address_text, config.masters)),
            "rpcTimeoutMs": str(config.rpc_timeout_ms),
        }

    def test_connection(self) -> tuple[bool, str]:
        """Try names, masters, user, administration and brokers, and report each step.

        A cluster without authentication accepts any user.
        """
        from tubemq_provider.hooks.connection_check import check_connection

        try:
            return check_connection(self.config)
        except errors.TubeMQError as exc:
            return False, str(exc)

    @contextmanager
    def _asking(self, topic: str) -> Iterator[Metadata]:
        """Yield a client for look-ups of `topic`; an unknown topic's error names the existing
        ones."""
        with _offering_topics(topic, lambda: self.config), self.get_conn() as client:
            yield client

    def _group(self, group: str | None) -> str:
        return self.config.group_of(group, conn_id=self.tubemq_conn_id)


@contextmanager
def _offering_topics(topic: str, config: Callable[[], ConnectionConfig]) -> Iterator[None]:
    """Add the existing topics, and near matches, to an `errors.UnknownTopic`."""
    try:
        yield
    except errors.UnknownTopic as exc:
        hint = _topics_hint(topic, _topic_names(config()))
        raise errors.UnknownTopic(exc.code, f"{exc.detail}{hint}", where=exc.where) from exc


def _topics_hint(topic: str, names: list[str] | None) -> str:
    """Return lines to add; `names` is None if no server could be asked."""
    if names is None:
        return (
            "\nto list the topics: tubemq topics list --admin http://<master>:8080 (set the "
            "connection's admin_url to have them named here)"
        )
    from difflib import get_close_matches  # large, for an error only

    near = get_close_matches(topic, names, n=3, cutoff=0.6)
    shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    existing = f"\nthere are: {shown or 'no topics'}"
    return f"\ndid you mean {' or '.join(map(repr, near))}?{existing}" if near else existing


def _topic_names(config: ConnectionConfig) -> list[str] | None:
    from tubemq_client.admin import AdminClient

    try:
        with AdminClient(
            config.admin_urls(), timeout_ms=_HINT_TIMEOUT_MS, **config.admin_tls()
        ) as client:
            return sorted(topic.name for topic in client.topics())
    except Exception:  # noqa: BLE001 - the error at hand is the one to report
        return None
