"""`spark.read.format("rocketmq")`: bounded, exact reads of a RocketMQ topic.

Option names are those of the other format where they mean the same; `nameServers`, `tags` and
`pullsInFlight` are specific to RocketMQ. Ranges are resolved once, on the driver, and every action
on a loaded frame reads the same ones, each record once. Nothing here holds a connection, since
Spark pickles it; heavy modules are imported where they are used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from rocketmq_client.model import (
    Address,
    ClientSettings,
    Queue,
    QueueEnds,
    QueueRange,
    ReaderSettings,
    address_text,
    tag_names,
)
from tubemq_client.errors import ConfigError, ConnectError, UnknownTopic
from tubemq_client.json_text import load_unique_json
from tubemq_provider.sources.rocketmq.columns import COLUMNS
from tubemq_provider.sources.rocketmq.reading import QueueReader
from tubemq_provider.sources.rocketmq.space import SPACE
from tubemq_provider.spark.credentials_file import access_file, refuse_unknown
from tubemq_provider.spark.offset_options import MISUSE
from tubemq_provider.spark.option_parser import Option, OptionParser, ReadShape, decode_option
from tubemq_provider.spark.reading import BatchReader, SplitPartition, check_columns, schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tubemq_provider.windows.plan import WindowPlan

FORMAT = "rocketmq"
SUBJECT = 'options of format("rocketmq")'
_WORDS = ("earliest", "stable", "latest")

OPTIONS = (
    Option("nameServers", ("masters",)),
    Option("topic"),
    Option("group"),
    Option("window"),
    Option("startingOffsets", (), "earliest"),
    Option("endingOffsets", (), "stable"),
    Option("tags", ("filters",)),
    Option("columns"),
    Option("decode"),
    Option("minPartitions"),
    Option("maxRecordsPerPartition", (), "500000"),
    Option("pullsInFlight", (), "4"),
    Option("failOnDataLoss", (), "true"),
    Option("corruptRecords", (), "fail"),
    Option("batchBytes", (), str(4 * 1024 * 1024)),
    Option("readTimeoutMs", (), "60000"),
    Option("rpcTimeoutMs", (), "10000"),
    Option("reportDir"),
    Option("configFile"),
)
_REFUSED = {
    "path": "is not used; load() takes no argument, name the topic with the option 'topic'",
    "accesskey": "is not taken, because options show in query plans; name a file: 'configFile'",
    "secretkey": "is not taken, because options show in query plans; name a file: 'configFile'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read(ReadShape):
    """Validated options. Times are ms, sizes bytes."""

    topic: str
    group: str
    tags: tuple[str, ...]
    window: str | None
    start: str
    end: str
    reader: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Planned:
    """Frozen read: its ranges, the addresses of their brokers, and the settings it was planned
    with."""

    ranges: tuple[QueueRange, ...]
    brokers: Mapping[str, Address]
    settings: ClientSettings


class RocketMQDataSource(DataSource):
    """Data source `rocketmq`. Options: `docs/rocketmq.md`; they are validated when the frame is
    loaded."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read, self._settings = _parse(options)
        self._planned: _Planned | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the selected columns; freezes the ranges."""
        self.planned()
        return schema_of(self._read, COLUMNS)

    def reader(self, schema: StructType) -> RocketMQBatchReader:
        """Return a reader of `schema`, which may be any subset of the columns in any order."""
        check_columns(self._read, COLUMNS, schema, FORMAT)
        return RocketMQBatchReader(self._read, self.planned(), schema)

    def planned(self) -> _Planned:
        """Return the frozen ranges, resolved at the brokers on first use."""
        if self._planned is None:
            self._planned = _plan(self._read, self._settings)
        return self._planned


class RocketMQBatchReader(BatchReader[_Read]):
    """Reader that plans splits on the driver and reads them in tasks."""

    COLUMNS = COLUMNS
    _planned: _Planned

    def broker_of(self, range_: QueueRange) -> Address:
        """Return the address of the broker that serves the range's queue."""
        return self._planned.brokers[range_.queue.broker]

    def open_reader(self, item: SplitPartition, **policy: Any) -> QueueReader:
        """Open the reader of one split; `policy` overrides the options. Close it."""
        read = self._options
        return QueueReader(
            self._planned.settings,
            read.group,
            tags=read.tags,
            brokers={item.split.range.queue.broker: item.broker},
            **{"corrupt_records": read.corrupt_records, **read.reader, **policy},
        )


def register(spark: SparkSession) -> None:
    """Register `format("rocketmq")` with a session that did not find it by itself."""
    spark.dataSource.register(RocketMQDataSource)


def batch_reader(options: Mapping[str, str], schema: Any = None) -> RocketMQBatchReader:
    """Return a planned reader; asks a name server for the brokers."""
    read, settings = _parse(options)
    return RocketMQBatchReader(read, _plan(read, settings), schema)


@contextmanager
def reading(settings: ClientSettings, plan: WindowPlan) -> Iterator[dict[str, str]]:
    """Provide options that read exactly `plan`. Keys and TLS settings are in a file while the body
    runs."""
    options = {
        "nameServers": ",".join(map(address_text, settings.name_servers)),
        "window": plan.canonical(),
        "rpcTimeoutMs": str(settings.rpc_timeout_ms),
    }
    if isinstance(settings, ReaderSettings):
        options |= {
            "readTimeoutMs": str(settings.deadline_ms),
            "pullsInFlight": str(settings.in_flight),
        }
    with access_file(settings) as path:
        yield options if path is None else {**options, "configFile": path}


def _parse(options: Mapping[str, str]) -> tuple[_Read, ClientSettings]:
    """Validate options and settings. Raises `ConfigError` with every problem."""
    values = OptionParser(OPTIONS, options, refused=_REFUSED)
    plan = _window(values)
    topic, group = (plan.topic, plan.group) if plan else (values.value(n) for n in _NAMES)
    if not topic or not group:
        values.problems.append("topic, group: name both, or give a 'window'")
    fails = values.flag("failOnDataLoss")
    reader = {
        "gap_policy": "fail" if fails else "skip",
        "deadline_ms": values.number("readTimeoutMs", low=1_000),
        "in_flight": values.number("pullsInFlight", low=1, high=64),
    }
    columns = values.choices("columns", COLUMNS.names) or COLUMNS.names
    read = _Read(
        topic=topic,
        group=group,
        tags=plan.filters if plan else _tags(values),
        columns=columns,
        decode=decode_option(values, columns),
        corrupt_records=values.choice("corruptRecords", ("fail", "drop")),
        window=values.text("window"),
        start=values.value("startingOffsets"),
        end=values.value("endingOffsets"),
        min_partitions=values.integer("minPartitions", low=1),
        max_records=values.number("maxRecordsPerPartition", low=1),
        batch_bytes=values.number("batchBytes", low=1),
        report_dir=values.text("reportDir"),
        reader=reader,
    )
    servers = values.addresses("nameServers", default_port=9876)
    timeout_ms = values.number("rpcTimeoutMs", low=1_000)
    if values.problems:
        raise ConfigError(values.problems, subject=SUBJECT)
    timeout_given = values.text("rpcTimeoutMs") is not None
    return read, _settings(
        servers, timeout_ms, values.text("configFile"), timeout_given=timeout_given
    )


_NAMES = ("topic", "group")


def _tags(values: OptionParser) -> tuple[str, ...]:
    try:
        return tag_names(values.words("tags"))
    except ConfigError as error:
        values.problems += [
            f"tags: {problem} (separate tags by commas)" for problem in error.problems
        ]
        return ()


def _window(values: OptionParser) -> WindowPlan | None:
    from tubemq_provider.windows.plan import WindowPlan

    text = values.text("window")
    if text is None:
        return None
    for name in ("startingOffsets", "endingOffsets", "tags"):
        if values.text(name):
            values.problems.append(f"{name}: has no effect beside 'window'")
    try:
        plan = WindowPlan.from_document(load_unique_json(text))
    except ValueError as error:
        values.problems.append(f"window: {error}")
        return None
    for name, fixed in zip(_NAMES, (plan.topic, plan.group), strict=True):
        if values.text(name) not in (None, fixed):
            problem = f"{values.text(name)!r} differs from the window's {fixed!r}"
            values.problems.append(f"{name}: {problem}")
    if plan.source != FORMAT:
        values.problems.append(f"window: it is of a source of kind {plan.source!r}")
    return plan


def _settings(
    servers: tuple[Address, ...], timeout_ms: int, config_file: str | None, *, timeout_given: bool
) -> ClientSettings:
    """Return the settings; options win over the file, the timeout only if it was set."""
    if config_file is None:
        return ClientSettings(servers, rpc_timeout_ms=timeout_ms)
    from rocketmq_client.config import ClientConfig, ProducerConfig
    from tubemq_client.config import from_file

    options = from_file(config_file)
    refuse_unknown(options, config_file, ClientConfig, ProducerConfig)
    client_options = {key: options[key] for key in _FILE_OPTIONS if key in options}
    client_options["name_servers"] = ";".join(map(address_text, servers))
    if timeout_given:
        client_options["rpc_timeout_ms"] = timeout_ms
    return ClientConfig.parse(client_options).settings()


_FILE_OPTIONS = tuple(item.name for item in fields(ClientSettings))
"""Options of the file that a reader uses."""


def _plan(read: _Read, settings: ClientSettings) -> _Planned:
    """Resolve the ranges. Raises `ConnectError` while a broker of a window is unreachable,
    `ConfigError` for named queues that cannot be read: a read without them would lose their records
    silently."""
    from rocketmq_client.sync import Metadata

    with Metadata(settings) as metadata:
        try:
            route = metadata.topic(read.topic)
        except UnknownTopic as error:
            if read.window is None:
                raise
            raise ConnectError(
                f"no broker of topic {read.topic!r} is registered now; its window can be read when "
                "they are back"
            ) from error
        planned = _Planned(_ranges(read, metadata, route), dict(route.masters()), settings)
    missing = {range_.queue.broker for range_ in planned.ranges} - planned.brokers.keys()
    if missing:
        raise ConnectError(
            f"no master of {', '.join(sorted(missing))} is in the route of topic {read.topic!r} "
            "now; the window can be read when it is back"
        )
    return planned


def _ranges(read: _Read, metadata: Any, route: Any) -> tuple[QueueRange, ...]:
    if read.window is not None:
        from tubemq_provider.windows.plan import WindowPlan

        return tuple(WindowPlan.from_document(load_unique_json(read.window)).reads())
    start = _bounds("startingOffsets", read.start, read.topic)
    end = _bounds("endingOffsets", read.end, read.topic)
    stable = any("stable" in (b if isinstance(b, str) else b.values()) for b in (start, end))
    ends = metadata.ends(read.topic, stable=stable, route=route)
    _check_named({"startingOffsets": start, "endingOffsets": end}, ends, read.topic)
    ranges, problems = [], []
    for queue, queue_ends in sorted(ends.items(), key=lambda item: SPACE.order(item[0].key)):
        words = {
            "earliest": queue_ends.min_offset,
            "stable": queue_ends.max_offset,
            "latest": queue_ends.latest_offset,
        }
        first, last = (_offset(bound, queue, words) for bound in (start, end))
        if problem := _problem(queue, first, last, queue_ends):
            problems.append(problem)
        else:
            ranges.append(QueueRange(queue, first, last))
    if problems:
        raise ConfigError(problems, subject=SUBJECT)
    return tuple(ranges)


def _problem(queue: Queue, first: int, last: int, ends: QueueEnds) -> str | None:
    """Return the reason why nothing can be read between two offsets, which would otherwise look
    like no new records."""
    where = f"of queue {queue.key} of topic {queue.topic!r}"
    if last > ends.latest_offset:
        return f"endingOffsets: {last} {where} is beyond the broker's end {ends.latest_offset}"
    if first > last:
        return (
            f"startingOffsets: {first} {where} is beyond the end {last}; if the broker lost "
            "records in a crash or they are not on its disk yet, start lower or read later"
        )
    return None


def _check_named(
    bounds: Mapping[str, str | Mapping[str, int | str]], queues: Collection[Queue], topic: str
) -> None:
    keys = {queue.key for queue in queues}
    problems = [
        f"{option}: {key} is no queue of topic {topic!r} that can be read now (while its broker is "
        f"away a queue is in no route); known: {', '.join(sorted(keys, key=SPACE.order))}"
        for option, bound in bounds.items()
        if not isinstance(bound, str)
        for key in bound
        if key not in keys
    ]
    if problems:
        raise ConfigError(problems, subject=SUBJECT)


def _bounds(option: str, text: str, topic: str) -> str | Mapping[str, int | str]:
    """Parse a word for all queues, or offsets and words by queue."""
    if text in _WORDS:
        _refuse_misused(option, (text,))
        return text
    from tubemq_provider.windows.policies import parse_offsets

    try:
        document = load_unique_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{option}: {text!r} is none of {_WORDS}, nor JSON ({error})", subject=SUBJECT
        ) from error
    parsed = parse_offsets(document, topic, subject=SUBJECT, space=SPACE)
    typed: Mapping[str, int | str] = document[topic]
    _refuse_misused(option, [typed[key] for key in parsed])
    return typed


def _refuse_misused(option: str, bounds: Collection[int | str]) -> None:
    misused = [word for word in _WORDS if word in bounds and (option, word) in MISUSE]
    if misused:
        raise ConfigError(
            [f"{option}: {word!r} makes no sense here, {MISUSE[option, word]}" for word in misused],
            subject=SUBJECT,
        )


def _offset(bound: str | Mapping[str, int | str], queue: Queue, words: Mapping[str, int]) -> int:
    value = bound if isinstance(bound, str) else bound.get(queue.key)
    if value is None:
        raise ConfigError(f"partition {queue.key} is not named", subject=SUBJECT)
    return words[value] if isinstance(value, str) else value
