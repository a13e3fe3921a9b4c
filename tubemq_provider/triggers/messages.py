"""`TubeMQMessageTrigger`: fire an event for each record of a topic, for Dags started by messages.

For an `AssetWatcher` on a topic that carries commands or notices, a few a second at most. It joins
a separate consumer group, and confirms records when Airflow has stored their events: at least one
event per record. For whole topics use windows, with `TubeMQLagTrigger`.
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
from tubemq_provider.triggers._firing import arguments_of, class_path
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
    """Fire an event for each record of `topic`, at least once.

    The group's offsets at the brokers are the progress. They advance when Airflow has stored the
    events of a batch (from Airflow 3.3 on; before, when the triggerer has received them): events
    that a triggerer had not stored when it died are fired again, so a Dag may run twice for a
    record. During an outage of brokers or masters it waits, logs one warning, and resumes.

    :param topic: topic to read.
    :param group: consumer group of this watcher alone: another member would receive a part of the
        records, and the group of windows has no offsets at the brokers.
    :param cluster: the connection's cluster alias; needed where that is not the connection id.
    :param filters: stream ids to read, or one, filtered by the brokers; none means all.
    :param begin: where a group without offsets begins: ``earliest`` or ``latest``.
    :param max_body_bytes: limit of body bytes in the payload, at most 65536.
    :param corrupt_records: a record fails its checksum: ``fail`` waits before it with a warning,
        ``drop`` skips it.
    :param tubemq_conn_id: the connection; its secrets never enter the trigger's arguments.

    Payload: ``{"topic", "group", "cluster", "partition", "offset", "message_id", "stream_id",
    "msg_time", "body", "encoding", "size", "truncated", "attributes"}``; `encoding` is ``utf-8``,
    or ``base64`` if the body is no text; attributes beyond 2 KiB are left out.
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
        values = {
            "topic": topic,
            "group": group,
            "cluster": cluster or tubemq_conn_id,
            "filters": (filters,) if isinstance(filters, str) else filters,
            "begin": begin,
            "max_body_bytes": max_body_bytes,
            "corrupt_records": corrupt_records,
            "tubemq_conn_id": tubemq_conn_id,
        }
        arguments = parse(MessageArguments, values)
        self.topic = arguments.topic
        self.group = arguments.group
        self.cluster = arguments.cluster
        self.filters = sorted(arguments.filters)
        self.begin = arguments.begin
        self.max_body_bytes = arguments.max_body_bytes
        self.corrupt_records = arguments.corrupt_records
        self.tubemq_conn_id = arguments.tubemq_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments; deterministic, as Airflow identifies watchers by
        them."""
        return class_path(self), arguments_of(self, TubeMQMessageTrigger)

    def shared_stream_key(self) -> Hashable | None:
        """Return the key by which equal watchers share a member of the group.

        With it Airflow reports when events are stored; None for an Airflow without shared streams.
        """
        if not hasattr(BaseEventTrigger, "create_shared_stream_producer"):
            return None
        arguments = arguments_of(self, TubeMQMessageTrigger)
        return (type(self).__qualname__, *map(repr, arguments.values()))

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
        """Return the stream that reads records and confirms those that Airflow has stored."""
        return cls(**kwargs).stream()

    def stream(self) -> MessageStream:
        """Return the records as payloads, from the group's offsets."""
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
        """Yield an event for each record."""
        async for payload in shared_stream:
            yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire events without shared streams (before Airflow 3.3).

        A batch is confirmed when the triggerer has received its events.
        """
        stream = self.stream()
        records = stream.open_stream()
        try:
            async for payload, record in records:
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                await stream.acknowledge(record, clean=True)
        finally:
            await records.aclose()

    def payload(self, partition: Partition, message: Message) -> dict[str, Any]:
        """Return the content of a record's event; bounded, as Airflow's database stores it."""
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
    """Return the body as text for JSON, and its encoding; a character cut in two is left out."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError as exc:
        if cut and exc.reason == "unexpected end of data":
            return body[: exc.start].decode(), "utf-8"
        return b64encode(body).decode(), "base64"
