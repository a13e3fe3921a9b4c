"""Results of a reader for a reply, with either decoder; and a loop that compares them.

``python -m tests.client.core.decoding --inputs 1000000`` makes that number of random replies and
stops at the first for which the decoders differ. Memory must not grow meanwhile.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from tests.client.core.replies import RandomChoices, reply
from tubemq_client import COLUMNS, MessageBatch, Partition, errors
from tubemq_client._core.batch import CorruptEntry, DecodePolicy, RawBatch
from tubemq_client._core.columns import native_types
from tubemq_client._wire import native
from tubemq_client._wire.fetching import FetchReply
from tubemq_client.model import CorruptRecords

__all__ = ["ALL", "Reading", "batch_of", "compare", "is_compiled", "main", "outcome", "pure"]

PARTITION = Partition(1, "topic", 0)
ALL = pa.schema([(name, native_types()[name]) for name in COLUMNS])
LEAST_GROWTH_KIB = 64 << 10


class Reading(NamedTuple):
    """Options of reading a reply."""

    corrupt_records: str = "quarantine"
    filters: frozenset[str] = frozenset()
    exact: bool = True
    left_out: int = 0
    schema: pa.Schema = ALL


def is_compiled() -> bool:
    return native._scan is not None


@contextmanager
def pure() -> Iterator[None]:
    """Run without the compiled decoder."""
    scan, native._scan = native._scan, None
    try:
        yield
    finally:
        native._scan = scan


def batch_of(data: bytes, policy: DecodePolicy) -> MessageBatch:
    """Return all records of a reply, read with `policy`."""
    message = FetchReply(data).parse()
    raw = RawBatch(message.currOffset, message.messages)
    count = len(raw.messages)
    return MessageBatch(PARTITION, raw, end=None, count=count, exact=True, policy=policy)


def outcome(data: bytes, reading: Reading) -> list[Any]:
    """Return all visible results: the batch in every form, corrupt entries, the error."""
    seen: list[Any] = []
    corrupt: list[CorruptEntry] = []
    policy = DecodePolicy(CorruptRecords(reading.corrupt_records), corrupt.append, reading.filters)
    try:
        message = FetchReply(data).parse()
        raw = RawBatch(message.currOffset, message.messages)
        count = max(0, len(raw.messages) - reading.left_out)
        batch = MessageBatch(
            PARTITION, raw, end=None, count=count, exact=reading.exact, policy=policy
        )
        seen += [len(raw.messages), len(batch), batch.nbytes, batch.to_arrow(reading.schema)]
        seen += [list(batch.messages()), batch.to_arrow(reading.schema)]
        seen += [native.find(raw.messages, r.messageId, r.checkSum) for r in raw.messages]
    except errors.TubeMQError as error:
        seen += [type(error), str(error)]
    return [*seen, corrupt, policy.corrupt]


def compare(data: bytes, reading: Reading) -> bool:
    """Return whether the compiled decoder accepted the reply.

    Fails where the two decoders differ.
    """
    with pure():
        expected = outcome(data, reading)
    actual = outcome(data, reading)
    assert actual == expected, (data, reading, actual, expected)
    for one, other in zip(actual, expected, strict=True):
        if isinstance(one, pa.RecordBatch):
            one.validate(full=True)
            assert one.schema.equals(other.schema, check_metadata=True)
    scanned = native.scan(data)
    return scanned is not None and scanned.messages.decode(1 << 40, frozenset()) is not None


READINGS = [
    Reading(),
    Reading(filters=frozenset({"stream"})),
    Reading(corrupt_records="fail", exact=False),
    Reading(left_out=1, schema=pa.schema([ALL.field("value"), ALL.field("msg_time")])),
]


def main() -> int:
    """Compare the given number of replies; return 1 if memory grew."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.client.core.decoding", description=__doc__
    )
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not is_compiled():
        raise SystemExit("there is no compiled decoder here")
    chance, taken, began = RandomChoices(options.seed), 0, time.monotonic()
    before = 0
    for done in range(1, options.inputs + 1):
        taken += compare(reply(chance), READINGS[done % len(READINGS)])
        if done == options.inputs // 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if done % 50_000 == 0:
            print(f"{done} replies, {taken} taken by the compiled decoder", flush=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    seconds = time.monotonic() - began
    print(f"{options.inputs} replies equal in {seconds:.0f} s, {taken} compiled, +{grown} KiB")
    return int(grown > LEAST_GROWTH_KIB)


if __name__ == "__main__":
    raise SystemExit(main())
