"""`frame.write.format("tubemq")`: rows become records, at least once.

A task sends its rows with a bounded number in flight, and ends when every one has its receipt. A
failed task is retried from its first row, and Spark may run a task twice, so records can be
duplicated; TubeMQ has no transaction that would undo them. The commit message has counts and
offsets by partition. This module must not read, or retry by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tubemq_client.errors import ConfigError
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.spark.write_options import parse_write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tubemq_client import Record
    from tubemq_client.model import ClientSettings, SendReceipt
    from tubemq_client.sync import Producer

log = logging.getLogger(__name__)

COLUMNS: Final = {
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("string",),
    "key": ("binary", "string"),
    "stream_id": ("string",),
    "msg_time": ("timestamp", "string"),
    "attributes": ("map<string,string>",),
}
"""Columns and types that a written frame may have; `value` is required."""


@dataclass(frozen=True, slots=True)
class ProduceTask:
    """Parameters of the tasks: the client settings, the topic of rows without one, the number of
    records in flight."""

    settings: ClientSettings
    topic: str | None
    in_flight: int


def write_task_of(
    user_options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> ProduceTask:
    """Validate options and columns. Raises `ConfigError` with every problem."""
    options = parse_write_options(user_options)
    types = {item.name: item.dataType.simpleString() for item in schema.fields}
    problems = ["mode 'overwrite' is not supported: a topic is append-only"] if overwrite else []
    if "value" not in types:
        problems.append("the frame has no column 'value', which becomes the body")
    if options.topic is None and "topic" not in types:
        problems.append("topic: is needed, as an option or a column")
    for name, type_ in types.items():
        if name not in COLUMNS:
            problems.append(f"column {name!r} is none of {', '.join(COLUMNS)}; select those")
        elif type_ not in COLUMNS[name]:
            problems.append(f"column {name!r} is {type_}, not {' or '.join(COLUMNS[name])}")
    if problems:
        raise ConfigError(problems, subject='write to format("tubemq")')
    return ProduceTask(options.settings(), options.topic, options.in_flight)


@dataclass
class ProduceReport(WriterCommitMessage):
    """Commit message of one task: sent records, and the least and greatest offset, by topic and
    partition."""

    records: int = 0
    partitions: dict[str, list[int]] = field(default_factory=dict)

    def add(self, receipt: SendReceipt) -> None:
        """Count one receipt."""
        self.records += 1
        name, offset = str(receipt.partition), receipt.offset
        counts = self.partitions.setdefault(name, [0, offset, offset])
        counts[0] += 1
        counts[1], counts[2] = min(counts[1], offset), max(counts[2], offset)


class TubeMQWriter(DataSourceArrowWriter):
    """Writer of a batch."""

    def __init__(self, order: ProduceTask) -> None:
        self._order = order

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ProduceReport:
        """Send the rows of one task; returns when all have their receipts."""
        return _send(self._order, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the counts; everything is sent already."""
        _log_sent(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the counts; sent records stay."""
        _log_sent(messages, aborted=True)


class TubeMQStreamWriter(DataSourceStreamArrowWriter):
    """Writer of micro-batches; a retried batch is sent again."""

    def __init__(self, order: ProduceTask) -> None:
        self._order = order

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ProduceReport:
        """Send the rows of one task; returns when all have their receipts."""
        return _send(self._order, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the counts; everything is sent already."""
        _log_sent(messages, f" of batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the counts; sent records stay."""
        _log_sent(messages, f" of batch {batchId}", aborted=True)


def _send(order: ProduceTask, batches: Iterable[pa.RecordBatch]) -> ProduceReport:
    from tubemq_client.sync import Producer

    sent = ProduceReport()
    with Producer(order.settings) as producer:
        for batch in batches:
            for topic, records in _by_topic(batch, order.topic).items():
                _check_partitions(producer, topic, records)
                for receipt in producer.send_many(topic, records, in_flight=order.in_flight):
                    sent.add(receipt)
    return sent


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> dict[str, list[Record]]:
    """Convert rows to records, in their order. Raises `ConfigError` that names an invalid row."""
    records_by_topic: dict[str, list[Record]] = {}
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    for row in range(batch.num_rows):
        cell = {name: cells[row] for name, cells in columns.items()}
        to = cell.get("topic") or topic
        if to is None or cell["value"] is None:
            missing = "topic" if to is None else "value"
            raise _row_error(row, f"has no {missing}")
        records_by_topic.setdefault(to, []).append(_record(row, to, cell))
    return records_by_topic


def _record(row: int, topic: str, cell: Mapping[str, Any]) -> Record:
    from tubemq_client import Record

    attributes = dict(cell.get("attributes") or ())
    if nulls := [key for key, value in attributes.items() if value is None]:
        raise _row_error(row, f"has null for {nulls[0]!r} in 'attributes'")
    key = cell.get("partition")
    try:
        partition = None if key is None else SPACE.partition(topic, key)
    except ValueError as error:
        raise _row_error(row, f"has partition {key!r}, which is none ({error})") from error
    return Record(
        _bytes(cell["value"]),
        attributes or None,
        cell.get("stream_id"),
        _minute(cell.get("msg_time")),
        partition,
        cell.get("key"),
    )


def _row_error(row: int, why: str) -> ConfigError:
    return ConfigError(
        f"row {row} of a batch {why}; filter such rows out before the write",
        subject='write to format("tubemq")',
    )


def _check_partitions(producer: Producer, topic: str, records: list[Record]) -> None:
    named = {record.partition for record in records if record.partition is not None}
    unknown = sorted(named.difference(producer.partitions(topic))) if named else []
    if unknown:
        raise ConfigError(
            f"partition {unknown[0].key} of topic {topic!r} is none that accepts records",
            subject='write to format("tubemq")',
        )


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _minute(value: Any) -> str | None:
    """Format a time as producers write it: UTC minutes. An instant without a zone is UTC."""
    if value is None or isinstance(value, str):
        return value
    instant = value if value.tzinfo is None else value.astimezone(UTC)
    return f"{instant.year:04}{instant:%m%d%H%M}"  # %Y has no leading zeros on Linux


def _log_sent(messages: Iterable[Any], what: str = "", *, aborted: bool = False) -> None:
    sent = [message for message in messages if isinstance(message, ProduceReport)]
    records = sum(message.records for message in sent)
    if aborted:
        log.warning(
            "tubemq write%s failed; %d records of finished tasks stay, and some of others may: "
            "a retry will send them again",
            what,
            records,
        )
        return
    partitions = sorted({name for message in sent for name in message.partitions})
    log.info("tubemq write%s: %d records to %s", what, records, ", ".join(partitions))
