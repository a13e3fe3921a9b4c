"""Record as a user passes it, and the same record in flight to a broker.

Values only; `sending` sends them, and `routing` chooses their partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tubemq_client import errors
from tubemq_client.model import Partition, SendReceipt

if TYPE_CHECKING:
    from tubemq_client._core.effects import Ticket

__all__ = [
    "InFlightRecord",
    "Record",
    "SendBatch",
    "as_record",
    "chunks",
    "outcome_unknown",
    "with_bytes",
]

_GROUP_BYTES = 2**19
"""Bytes of records written in one chunk, which exist twice for a moment."""


class Record(NamedTuple):
    """Record to send.

    `stream_id` is TubeMQ's message type, by which consumers filter; `msg_time` is `yyyyMMddHHmm`.
    `partition` names the partition, `key` lets records of one key go to one partition (it is not
    stored with the record); with neither the producer chooses.
    """

    body: bytes
    attributes: Mapping[str, str] | None = None
    stream_id: str | None = None
    msg_time: str | None = None
    partition: Partition | None = None
    key: bytes | str | None = None


def as_record(body: bytes | Record, *rest: Any) -> Record:
    """Return the record with `body` and the rest of its members, or a whole record as it is.

    Raises `errors.ConfigError` for a whole record with members beside it.
    """
    if not isinstance(body, Record):
        return Record(body, *rest)
    if any(member is not None for member in rest):
        names = [name for name, member in zip(Record._fields[1:], rest, strict=True) if member]
        raise errors.ConfigError(
            f"{', '.join(names)}: set in the Record, or send a body instead", subject="record"
        )
    return body


@dataclass(slots=True)
class InFlightRecord:
    """Record in flight.

    `since` is the time it was taken, ms of the monotonic clock; `tried` are brokers that refused
    it, `visit_token` is the token sent last.
    """

    topic: str
    record: Record
    sent_address: int
    partition: Partition
    data: bytes
    flag: int
    since: int
    ticket: Ticket | None = None
    reply: Any = None
    receipt: SendReceipt | None = None
    failure: errors.TubeMQError | None = None
    again: int = 0
    visit_token: int = 0
    tried: frozenset[int] = frozenset()

    @property
    def free(self) -> bool:
        """True if the record may go to any partition."""
        return self.record.partition is None and self.record.key is None


@dataclass(slots=True)
class SendBatch:
    """Records that were posted together.

    `posted` has the tickets of those that were sent, each with its records.
    """

    flights: Sequence[InFlightRecord]
    posted: list[tuple[Ticket, Sequence[InFlightRecord]]] = field(default_factory=list)

    def failed(self, error: Exception) -> SendBatch:
        """Fail the records that could not be sent because of `error`; return the batch.

        Records whose outcome is known already do not change.
        """
        failure = error
        if not isinstance(failure, errors.TubeMQError):
            failure = errors.LocalError(f"cannot send: {error!r}")
            failure.__cause__ = error
        posted_ids = {id(flight) for _, group in self.posted for flight in group}
        for flight in self.flights:
            if flight.reply is None and id(flight) not in posted_ids:
                flight.failure = flight.failure or failure
        return self


def with_bytes(record: Record) -> Record:
    """Return the record with an immutable body.

    Raises `errors.ConfigError` if the body has no bytes.
    """
    try:
        return record._replace(body=bytes(memoryview(record.body)))
    except TypeError:
        problem = f"body is of type {type(record.body).__name__}, not bytes; encode text first"
        raise errors.ConfigError(problem, subject="record") from None


def chunks(flights: list[InFlightRecord]) -> Iterator[list[InFlightRecord]]:
    """Yield chunks of at most `_GROUP_BYTES`; a larger record is a separate chunk."""
    chunk: list[InFlightRecord] = []
    size = 0
    for flight in flights:
        if chunk and size + len(flight.data) > _GROUP_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(flight)
        size += len(flight.data)
    if chunk:
        yield chunk


def outcome_unknown(error: errors.TubeMQError, partition: Partition) -> errors.TubeMQError:
    """Return a copy of the failure whose text states what it means for the record."""
    copy = _copied(error)
    fate = f"the record for partition {partition} may be stored, so it was not sent again"
    copy.args = (f"{error}; {fate} (option retry_unknown)",)
    return copy


def _copied(error: errors.TubeMQError) -> errors.TubeMQError:
    cls = type(error)
    copy = cls.__new__(cls, *error.args)
    copy.__dict__.update(error.__dict__)
    return copy
