"""`tubemq consume`: records of a topic to the terminal or a pipe, once or as a group's member.

Without `--follow` it reads exact ranges up to the present end and moves no position. With it, it
takes all partitions itself (client balance), or joins a group (`--balanced`), and confirms a batch
when its records are written: at least once, so a crash repeats records and loses none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

import typer

from tubemq_client import AssignedConsumer, Consumer, Metadata, ReceivedBatch, errors
from tubemq_client.cli.options import Group, Masters, RpcTimeout, Topic, config_of, counted, note
from tubemq_client.cli.read import reader_of
from tubemq_client.cli.records import Format, FormatOption, RecordWriter
from tubemq_client.config import ConsumerConfig
from tubemq_client.model import (
    Message,
    OffsetRange,
    Partition,
    PartitionEnds,
)

__all__ = ["consume"]

_IDLE_S = 0.2
_RETRY_UNREACHABLE_S = 5.0
_UNREACHABLE = (
    errors.NetworkError,
    errors.RemoteException,
    errors.ServiceUnavailable,
    errors.ServerFailure,
)
_RECEIVE_MS = 500

From = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="earliest, latest, stored (with --follow: the group's position), or 1:0=OFFSET; "
        "repeatable. Default: stored with --follow, else earliest.",
    ),
]
To = Annotated[
    list[str] | None,
    typer.Option("--to", metavar="1:0=OFFSET", help="Stop a partition there; repeatable."),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", "-p", metavar="KEY", help="Only this partition; repeatable."),
]
Streams = Annotated[
    list[str] | None,
    typer.Option("--stream", "-s", metavar="ID", help="Only records of this stream; repeatable."),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Stop after N records.")]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep reading new records until Ctrl-C.")
]
Balanced = Annotated[
    bool, typer.Option("--balanced", help="Join GROUP and share partitions with its members.")
]
Seconds = Annotated[float | None, typer.Option(min=0.1, help="Stop after this many seconds.")]


@dataclass(slots=True)
class _Sink:
    """Writer of records with a limit of count or time; `written` counts."""

    writer: RecordWriter
    limit: int | None
    deadline: float | None
    written: int = 0

    @property
    def full(self) -> bool:
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return late or (self.limit is not None and self.written >= self.limit)

    def write(self, messages: Iterator[Message], partition: Partition) -> bool:
        """Write a batch and flush it; return True if all of it was written."""
        for message in messages:
            if self.limit is not None and self.written >= self.limit:
                return False
            self.writer.write(message, partition)
            self.written += 1
        self.writer.flush()
        return True


@dataclass(slots=True)
class _Offsets:
    """Value of `--from` or `--to`: a word for all partitions, offsets for some."""

    word: str | None = None
    offsets: dict[Partition, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, topic: str, texts: Sequence[str], words: Sequence[str], option: str) -> _Offsets:
        offsets = cls()
        for text in texts:
            key, is_one, value = text.partition("=")
            if not is_one and text in words:
                twice = offsets.word is not None
                offsets.word = text
            elif is_one and value.isdecimal():
                try:
                    partition, offset = Partition.from_key(topic, key), int(value)
                except ValueError as error:
                    raise errors.ConfigError(f"{option}: {error}") from None
                twice = partition in offsets.offsets
                offsets.offsets[partition] = offset
            else:
                choices = ", ".join([*words, "<partition>=<offset>"])
                raise errors.ConfigError(f"{option} {text!r} is none of: {choices}")
            if twice:
                raise errors.ConfigError(f"{option} {text!r}: given more than once")
        return offsets


def consume(
    topic: Topic,
    masters: Masters,
    group: Group = "tubemq_cli",
    start: From = None,
    end: To = None,
    partition: Partitions = None,
    stream: Streams = None,
    output: FormatOption = Format.JSONL,
    limit: Limit = None,
    seconds: Seconds = None,
    follow: FollowOption = False,
    balanced: Balanced = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
) -> None:
    """Print records of a topic.

    Without --follow: every record between the first and the present end, each once, no position
    moves. With --follow or --balanced: as GROUP, whose position moves behind what was written; a
    crash repeats records and loses none.
    """
    _check(follow=follow, balanced=balanced, start=start, end=end, partition=partition)
    config = config_of(
        ConsumerConfig, masters, rpc_timeout_ms, topic=topic, group=group, filters=stream or ()
    )
    words = ("earliest", "latest", "stored") if follow else ("earliest", "latest")
    from_ = _Offsets.parse(topic, start or (), words, "--from")
    to = _Offsets.parse(topic, end or (), (), "--to")
    if follow and not balanced and config.bound is not None:
        raise errors.ConfigError("bound: needs --balanced; with --follow use --from")
    deadline = None if seconds is None else time.monotonic() + seconds
    writer = RecordWriter(sys.stdout.buffer, output)
    sink = _Sink(writer, limit, deadline)
    try:
        # Ctrl-C is the usual end of following; elsewhere the output would be incomplete.
        with suppress(KeyboardInterrupt) if follow or balanced else nullcontext():
            if balanced:
                _balanced(config, sink)
            elif follow:
                _follow(config, sink, from_, partition)
            else:
                _read_once(config, sink, from_, to, partition)
    finally:
        writer.close()
        note(counted(sink.written))


def _check(*, follow: bool, balanced: bool, **options: list[str] | None) -> None:
    problems = []
    if balanced and options["partition"]:
        problems.append("--partition: with --balanced the master assigns partitions")
    if balanced and options["start"]:
        problems.append("--from: with --balanced the group's position decides")
    if (follow or balanced) and options["end"]:
        problems.append("--to: not with --follow or --balanced")
    if problems:
        raise errors.ConfigError(problems)


def _topic(config: ConsumerConfig) -> str:
    """Return the command's only topic."""
    return next(iter(config.subscription))


def _partitions(config: ConsumerConfig, keys: Sequence[str]) -> list[Partition]:
    try:
        return [Partition.from_key(_topic(config), key) for key in keys]
    except ValueError as error:
        raise errors.ConfigError(f"--partition: {error}") from None


def _ends(config: ConsumerConfig, keys: Sequence[str] | None) -> dict[Partition, PartitionEnds]:
    partitions = _partitions(config, keys) if keys else None
    with Metadata(config.settings()) as metadata:
        return metadata.ends(_topic(config), config.group, partitions, stable=False)


def _read_once(
    config: ConsumerConfig,
    sink: _Sink,
    from_: _Offsets,
    to: _Offsets,
    keys: Sequence[str] | None,
) -> None:
    """Read exact ranges, partition by partition, up to the present ends of the logs."""
    ends = _ends(config, keys)
    _refuse_unknown(ends, from_, to)
    with reader_of(config) as reader:
        for partition, bounds in sorted(ends.items()):
            first = bounds.max_offset if from_.word == "latest" else bounds.min_offset
            first = from_.offsets.get(partition, first)
            last = to.offsets.get(partition, max(first, bounds.max_offset))
            try:
                range_ = OffsetRange(partition, first, last)
            except ValueError as error:
                raise errors.ConfigError(str(error), subject="range") from None
            with closing(reader.read(range_)) as batches:  # type: ignore[type-var]
                for batch in batches:
                    if sink.full or not sink.write(batch.messages(), partition):
                        return
            if sink.full:
                return


def _refuse_unknown(
    ends: Mapping[Partition, PartitionEnds],
    *places: _Offsets,
    unreachable: Iterable[Partition] = (),
) -> None:
    """Raise for offsets of partitions that are not read, and for starts behind a log's end."""
    partitions = {*ends, *unreachable}
    unknown = sorted({p.key for where in places for p in where.offsets if p not in partitions})
    problems = [
        f"partition {key}: not among {', '.join(p.key for p in sorted(partitions))}"
        for key in unknown
    ]
    from_ = places[0]
    problems += [
        f"--from {p.key}={offset}: its log ends at {ends[p].max_offset}"
        for p, offset in sorted(from_.offsets.items())
        if p in ends and offset > ends[p].max_offset
    ]
    if problems:
        raise errors.ConfigError(problems)


def _follow(
    config: ConsumerConfig,
    sink: _Sink,
    from_: _Offsets,
    keys: Sequence[str] | None,
) -> None:
    """Read all partitions, or the selected ones, in this process alone."""
    ends, unreachable = _reachable(config, keys)
    _refuse_unknown(ends, from_, unreachable=unreachable)
    starts = _starts(from_, ends, unreachable)
    for reason in dict.fromkeys(unreachable.values()):
        note(f"{reason}; retrying")
    with _assigned(config) as consumer:
        following = _FollowedPartitions(consumer, sink, starts)
        followed, look_at = sorted(starts), 0.0
        following.take(sorted(ends))
        while not sink.full:
            if not keys and time.monotonic() >= look_at:
                followed = _grown(consumer, followed)
                look_at = time.monotonic() + config.metadata_period_ms / 1000
            moved = [following.pull_on(partition) for partition in followed]
            if not any(moved) and not sink.full:
                time.sleep(_IDLE_S)


def _reachable(
    config: ConsumerConfig, keys: Sequence[str] | None
) -> tuple[dict[Partition, PartitionEnds], dict[Partition, str]]:
    """Return ends of the partitions, and the error text for those whose broker is unreachable."""
    partitions = _partitions(config, keys) if keys else None
    with Metadata(config.settings()) as metadata:
        topic = metadata.topic(_topic(config), config.group)
        topic = replace(
            topic, partitions={p: topic.partitions[p] for p in topic.select(partitions)}
        )
        ends = metadata.reachable_ends(topic.topic, config.group, stable=False, metadata=topic)
    return dict(ends), ends.away


def _starts(
    from_: _Offsets, ends: Mapping[Partition, PartitionEnds], unreachable: Iterable[Partition]
) -> dict[Partition, _Start]:
    """Return the start of each partition; brokers move offset 0 to the beginning of their log."""
    starts: dict[Partition, _Start] = {}
    for partition in (*ends, *unreachable):
        offset = from_.offsets.get(partition)
        if offset is None and from_.word == "earliest":
            offset = ends[partition].min_offset if partition in ends else 0
        elif offset is None and from_.word == "latest":
            offset = ends[partition].max_offset if partition in ends else None
        to_end = offset is None and from_.word == "latest"
        starts[partition] = _Start(offset, "always_latest" if to_end else None)
    return starts


def _grown(consumer: AssignedConsumer, followed: list[Partition]) -> list[Partition]:
    """Return the followed partitions and new ones of the topic. An unreachable master is retried
    later."""
    try:
        new = consumer.partitions().keys() - set(followed)
    except errors.TubeMQError as error:
        if not error.retriable:
            raise
        return followed
    if new:
        note(f"new: {_keys(list(new))}")
    return sorted([*followed, *new])


def _assigned(config: ConsumerConfig) -> AssignedConsumer:
    return AssignedConsumer(
        config.settings(),
        config.group,
        config.subscription,
        consumer=config.consumer_settings(),
        corrupt_records=_fail_or_drop(config),
    )


def _fail_or_drop(config: ConsumerConfig) -> Literal["fail", "drop"]:
    if config.corrupt_records == "quarantine":
        raise errors.ConfigError(
            "corrupt_records: a group's member has no place to quarantine records: fail or drop"
        )
    return config.corrupt_records


class _Start(NamedTuple):
    """Start of a partition."""

    offset: int | None = None
    position: Literal["earliest", "always_latest"] | None = None


@dataclass(slots=True)
class _FollowedPartitions:
    """Partitions that are taken one by one, and again where they were lost. `starts` has those that
    were not taken yet. A retriable error is reported once and does not end the command."""

    consumer: AssignedConsumer
    sink: _Sink
    starts: dict[Partition, _Start]
    _reported: dict[Partition, str] = field(default_factory=dict)
    _retry_at: dict[int, float] = field(default_factory=dict)
    """Time to retry an unreachable broker, by broker id: others are read meanwhile."""

    def take(self, partitions: Sequence[Partition]) -> None:
        """Take every partition that is free. Errors other than an unreachable broker are raised: at
        the start they are mistakes, such as a second process with the group's name."""
        for partition in partitions:
            try:
                self._take(partition)
            except _UNREACHABLE as error:
                if not error.retriable:
                    raise
                self._report(partition, error)

    def pull_on(self, partition: Partition) -> bool:
        """Write one batch; return False if there was none."""
        held = False
        try:
            if partition not in self.consumer.assignment and not self._take(partition):
                return False
            held = True
            moved = _pull(self.consumer, partition, self.sink)
        except errors.TubeMQError as error:
            lost = held and partition not in self.consumer.assignment  # whatever the error
            if not (lost or error.retriable):
                raise
            self._report(partition, error)
            return False
        if moved:
            self._reported.pop(partition, None)
        return moved

    def _take(self, partition: Partition) -> bool:
        if time.monotonic() < self._retry_at.get(partition.broker_id, 0.0):
            return False
        # A new partition has no old records.
        start = self.starts.get(partition, _Start(position="earliest"))
        try:
            self.consumer.assign(partition, start.offset, position=start.position)
        except errors.NetworkError:
            self._retry_at[partition.broker_id] = time.monotonic() + _RETRY_UNREACHABLE_S
            raise
        self.starts.pop(partition, None)
        return True

    def _report(self, partition: Partition, error: errors.TubeMQError) -> None:
        if self._reported.get(partition) != type(error).__name__:
            note(f"{error}; retrying")
        self._reported[partition] = type(error).__name__


def _pull(consumer: AssignedConsumer, partition: Partition, sink: _Sink) -> bool:
    """Write and confirm one batch; a batch cut by the limit is rejected, to be delivered again."""
    if sink.full:
        return False
    batch = consumer.pull(partition)
    if batch is None:
        return False
    _finish(consumer, batch, written=sink.write(batch.messages(), partition))
    return True


def _finish(consumer: AssignedConsumer | Consumer, batch: ReceivedBatch, *, written: bool) -> None:
    """Confirm or reject a batch; a batch that timed out or an unreachable broker is only
    reported."""
    try:
        consumer.confirm(batch) if written else consumer.reject(batch)
    except errors.StaleBatch as error:
        note(f"{error}; its records will be delivered again")
    except errors.TubeMQError as error:
        if not error.retriable:
            raise
        note(
            f"{error}; it is confirmed with the next fetch, or its records will be delivered again"
        )


def _balanced(config: ConsumerConfig, sink: _Sink) -> None:
    """Read as a member of the group, whose master assigns partitions."""
    with Consumer(
        config.settings(),
        config.group,
        config.subscription,
        consumer=config.consumer_settings(),
        bound=config.bound_start,
        corrupt_records=_fail_or_drop(config),
        on_assigned=lambda partitions: note(f"assigned: {_keys(partitions)}"),
        on_revoked=lambda partitions: note(f"revoked: {_keys(partitions)}"),
        on_lost=lambda partitions: note(f"lost: {_keys(partitions)}"),
    ) as consumer:
        while not sink.full:
            batch = consumer.receive(_RECEIVE_MS)
            if batch is None:
                continue
            _finish(consumer, batch, written=sink.write(batch.messages(), batch.partition))


def _keys(partitions: Sequence[Partition]) -> str:
    return ", ".join(p.key for p in sorted(partitions))
