"""`TubeMQMessageTrigger`: rings for each record of a topic, for Dags that a message starts.

For an `AssetWatcher` on a topic that carries commands or notices, a few a second at most. It joins
a consumer group of its own, and confirms records when Airflow has stored their events: a record
rings at least once. Whole topics are for windows, which `TubeMQLagTrigger` rings for.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from pydantic import Field

from tubemq_client.config import GroupName, TopicName
from tubemq_client.config.groups import Filters
from tubemq_provider.ingest.validation import ClusterAlias, TaskArguments, parse
from tubemq_provider.triggers._messages import MessageStream

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tubemq_client import Message, Partition

__all__ = ["TubeMQMessageTrigger"]

_MOST_ATTRIBUTES_BYTES = 2048


class MessageArguments(TaskArguments):
    """Arguments of `TubeMQMessageTrigger`."""

    topic: TopicName
    group: GroupName
    cluster: ClusterAlias
    filters: Filters = ()
    begin: Literal["earliest", "latest"] = "earliest"
    max_body_bytes: int = Field(4096, ge=0, le=65536)
    corrupt_records: Literal["fail", "drop"] = "fail"
    tubemq_conn_id: str


class TubeMQMessageTrigger(BaseEventTrigger):
    """Ring for each record of `topic`, at least once.

    The group's offsets at the brokers say which records have rung. They move when Airflow has
    stored the events of a batch (from Airflow 3.3 on; before, when the triggerer has taken them
    over): what a triggerer that dies had not stored rings again, so a Dag may run twice for a
    record. Brokers and masters may be away: it waits, says so once, and goes on.

    :param topic: topic to read.
    :param group: consumer group of this watcher alone: another member would get a part of the
        records, and the group of windows has no offsets at the brokers.
    :param cluster: the connection's cluster alias; needed where that is not the connection id.
    :param filters: stream ids to read, or one, filtered by the brokers; none means all.
    :param begin: where a group without offsets begins: ``earliest`` or ``latest``.
    :param max_body_bytes: bytes of a body that the payload has, at most 65536.
    :param corrupt_records: a record fails its checksum: ``fail`` waits in front of it and says so,
        ``drop`` passes over it.
    :param tubemq_conn_id: the connection; its secrets never enter the trigger's arguments.

    Payload: ``{"topic", "group", "cluster", "partition", "offset", "message_id", "stream_id",
    "msg_time", "body", "encoding", "size", "truncated", "attributes"}``; `encoding` is ``utf-8``,
    or ``base64`` where the body is no text; attributes beyond 2 KiB are left out.
    """

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        cluster: str | None = None,
        filters: Sequence[str] | str = (),
        begin: Literal["earliest", "latest"] = "earliest",
        max_body_bytes: int = 4096,
        corrupt_records: Literal["fail", "drop"] = "fail",
        tubemq_conn_id: str = "tubemq_default",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        given = {
            "topic": topic,
            "group": group,
            "cluster": cluster or tubemq_conn_id,
            "filters": (filters,) if isinstance(filters, str) else filters,
            "begin": begin,
            "max_body_bytes": max_body_bytes,
            "corrupt_records": corrupt_records,
            "tubemq_conn_id": tubemq_conn_id,
        }
        said = parse(MessageArguments, given)
        self.topic = said.topic
        self.group = said.group
        self.cluster = said.cluster
        self.filters = sorted(said.filters)
        self.begin = said.begin
        self.max_body_bytes = said.max_body_bytes
        self.corrupt_records = said.corrupt_records
        self.tubemq_conn_id = said.tubemq_conn_id

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in MessageArguments.model_fields}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments; deterministic, as Airflow tells watchers apart by them."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self._arguments()

    def shared_stream_key(self) -> Hashable | None:
        """Watchers that are alike in everything share a member of the group. It is what makes
        Airflow say when events are stored; None where it cannot."""
        if not hasattr(BaseEventTrigger, "create_shared_stream_producer"):
            return None
        return (type(self).__qualname__, *(repr(value) for value in self._arguments().values()))

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
        """What reads, and confirms what Airflow has stored."""
        return cls(**kwargs).stream()

    def stream(self) -> MessageStream:
        """The records as payloads, from where the group is."""
        return MessageStream(
            conn_id=self.tubemq_conn_id,
            cluster=self.cluster,
            topic=self.topic,
            group=self.group,
            filters=self.filters,
            begin=self.begin,
            corrupt_records=self.corrupt_records,
            payload=self.payload,
            log=self.log,
        )

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[dict[str, Any]]
    ) -> AsyncIterator[TriggerEvent]:
        """An event for each record."""
        async for payload in shared_stream:
            yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """The same where Airflow does not say when events are stored (before 3.3): a batch is
        confirmed when the triggerer has taken its events over."""
        stream = self.stream()
        records = stream.open_stream()
        try:
            async for payload, record in records:
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                await stream.settle(record, clean=True)
        finally:
            await records.aclose()

    def payload(self, partition: Partition, message: Message) -> dict[str, Any]:
        """What an event says of a record; bounded, as it is kept in Airflow's database."""
        body = message.body[: self.max_body_bytes]
        text, encoding = _text(body, cut=len(body) < len(message.body))
        size = sum(len(k.encode()) + len(v.encode()) for k, v in message.attributes.items())
        return {
            "topic": self.topic,
            "group": self.group,
            "cluster": self.cluster,
            "partition": partition.key,
            "offset": message.offset,
            "message_id": message.message_id,
            "stream_id": message.stream_id,
            "msg_time": message.msg_time,
            "body": text,
            "encoding": encoding,
            "size": len(message.body),
            "truncated": len(body) < len(message.body),
            "attributes": dict(message.attributes) if size <= _MOST_ATTRIBUTES_BYTES else {},
        }


def _text(body: bytes, *, cut: bool) -> tuple[str, str]:
    """The body as JSON can carry it. A character that the cut went through is left out."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError as exc:
        if cut and exc.reason == "unexpected end of data":
            return body[: exc.start].decode(), "utf-8"
        return b64encode(body).decode(), "base64"
