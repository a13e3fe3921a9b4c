"""Options of `format("tubemq")`, all validated at once.

`parse_options` turns Spark's options (strings under case-insensitive names) into a frozen
`ReadOptions`, or raises one `ConfigError` that lists every problem. It contacts no server: the
meaning of a topic or an offset word is resolved by `range_planner`. No option ever takes a secret,
because options appear in query plans. This module runs on the driver and on executors and must not
import pyspark, pyarrow or pydantic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from tubemq_client.errors import ConfigError
from tubemq_client.json_text import load_unique_json
from tubemq_client.model import Address, ClientSettings, Partition, ReaderSettings, address_text
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.spark.credentials_file import needs_access, settings_of
from tubemq_provider.spark.offset_options import (
    EARLIEST,
    LATEST,
    STABLE,
    Bounds,
    parse_bounds,
    parse_instant,
    parse_instants,
    reversed_bounds,
)
from tubemq_provider.spark.option_parser import Option, OptionParser, ReadShape, decode_option
from tubemq_provider.spark.topics import TopicChoice, choose_topics

if TYPE_CHECKING:
    from tubemq_provider.windows.plan import WindowPlan

SUBJECT = 'options of format("tubemq")'


OPTIONS = (
    Option("masters", ("tubemq.masters",)),
    Option("topic"),
    Option("subscribe"),
    Option("subscribePattern"),
    Option("assign"),
    Option("admin"),
    Option("group", ("groupIdPrefix",)),
    Option("window"),
    Option("startingOffsets", (), EARLIEST),
    Option("startingTimestamp"),
    Option("startingOffsetsByTimestamp"),
    Option("startingOffsetsByTimestampStrategy", (), "error"),
    Option("endingOffsets", (), STABLE),
    Option("endingTimestamp"),
    Option("endingOffsetsByTimestamp"),
    Option("partitions"),
    Option("filters", ("streamIds",)),
    Option("columns"),
    Option("decode"),
    Option("includeAttributes", ("includeHeaders",), "true"),
    Option("minPartitions"),
    Option("maxRecordsPerPartition", (), "500000"),
    Option("maxOffsetsPerTrigger"),
    Option("failOnDataLoss", (), "true"),
    Option("unreachablePartitions", (), "fail"),
    Option("corruptRecords", (), "fail"),
    Option("batchBytes", (), str(4 * 1024 * 1024)),
    Option("readTimeoutMs", ("kafkaConsumer.pollTimeoutMs",), "60000"),
    Option("rpcTimeoutMs", (), "10000"),
    Option("planRetries", ("fetchOffset.numRetries",), "3"),
    Option("planRetryMs", ("fetchOffset.retryIntervalMs",), "200"),
    Option("connectionsPerTask", (), "1"),
    Option("poolSize", (), "32"),
    Option("reportDir"),
    Option("configFile"),
)

_KAFKA = "kafka."
_KAFKA_HINT = (
    "belongs to Kafka's clients; TubeMQ's are configured with 'masters', 'group' and 'configFile', "
    "and no option lets a client move offsets by itself"
)
_REFUSED = {
    "password": "is not taken, because options show in query plans; name a file with 'configFile'",
    "path": "is not used; load() takes no argument, name the topic with the option 'topic'",
    "minoffsetspertrigger": "is not taken: PySpark gives Python sources one limit for a batch, not "
    "two; set the interval of the trigger",
    "maxtriggerdelay": "belongs to minOffsetsPerTrigger, which is not taken",
    "kafka.bootstrap.servers": "is Kafka's word; name the masters with 'masters'",
    "kafka.group.id": "is Kafka's word; name the group with 'group'",
}
_BATCH_ONLY = ("window", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_FIXED_BY_WINDOW = (
    *("subscribe", "subscribePattern", "assign", "admin", "partitions"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(ReadShape):
    """Validated options. Times are ms, sizes bytes, `max_records` counts index entries.

    With a `window`, topic, group, filters and ranges come from the plan and `start`/`end` are
    unused. `late_start` is the policy for a start time later than all records: ``error`` or
    ``latest``.
    """

    masters: tuple[Address, ...]
    topics: TopicChoice
    group: str
    filters: tuple[str, ...]
    window: WindowPlan | None
    start: Bounds
    end: Bounds
    late_start: str
    max_per_trigger: int | None
    fail_on_data_loss: bool
    skip_unreachable: bool
    read_timeout_ms: int
    rpc_timeout_ms: int
    plan_retries: int
    plan_retry_ms: int
    connections: int
    pool_size: int
    config_file: str | None = None
    rpc_timeout_given: bool = field(default=True, compare=False)

    @property
    def topic(self) -> str:
        """Name of the topic, or all names, separated by commas."""
        return ",".join(self.topics.names)

    @property
    def partitions(self) -> tuple[Partition, ...] | None:
        """Partitions that were named, or None."""
        return self.topics.partitions

    @property
    def gap_policy(self) -> Literal["fail", "skip"]:
        """`failOnDataLoss` in the client's words."""
        return "fail" if self.fail_on_data_loss else "skip"

    def settings(self) -> ClientSettings:
        """Return the client settings for planner and tasks. Reads `configFile`, so call it on the
        driver only. Raises `ConfigError` for problems of the file."""
        return settings_of(
            self.masters, self.rpc_timeout_ms, self.config_file, said=self.rpc_timeout_given
        )


def parse_options(options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """Validate all options. Raises `ConfigError` with all problems, one line each. A stream has no
    end and, as with Kafka, begins at the current end by default."""
    values = OptionParser(OPTIONS, options, refused=_REFUSED, refused_prefix=(_KAFKA, _KAFKA_HINT))
    plan = _window(values)
    topics, group, filters = _subject(values, plan)
    start, end = (_stream_start if streaming else _bounds)(
        values, topics.known, windowed=plan is not None
    )
    columns = _columns(values)
    parsed = ReadOptions(
        masters=masters_of(values),
        topics=topics,
        group=group,
        filters=filters,
        window=plan,
        start=start,
        end=end,
        late_start=values.choice("startingOffsetsByTimestampStrategy", ("error", LATEST)),
        columns=columns,
        decode=decode_option(values, columns),
        min_partitions=values.integer("minPartitions", low=1, high=100_000),
        max_records=values.number("maxRecordsPerPartition", low=1),
        max_per_trigger=values.integer("maxOffsetsPerTrigger", low=1),
        fail_on_data_loss=values.flag("failOnDataLoss"),
        skip_unreachable=values.choice("unreachablePartitions", ("fail", "skip")) == "skip",
        corrupt_records=values.choice("corruptRecords", ("fail", "drop")),
        batch_bytes=values.number("batchBytes", low=1, high=1 << 30),
        read_timeout_ms=values.number("readTimeoutMs", low=1),
        rpc_timeout_ms=values.number("rpcTimeoutMs", low=1),
        plan_retries=values.number("planRetries", low=0, high=1000),
        plan_retry_ms=values.number("planRetryMs", low=0),
        connections=_connections(values),
        pool_size=values.number("poolSize", low=1, high=1000),
        report_dir=values.text("reportDir"),
        config_file=values.text("configFile"),
        rpc_timeout_given=values.text("rpcTimeoutMs") is not None,
    )
    if values.problems:
        raise ConfigError(values.problems, subject=SUBJECT)
    return parsed


def spark_options(
    settings: ClientSettings, plan: WindowPlan, *, config_file: str | None = None
) -> dict[str, str]:
    """Return options that read exactly `plan`: ``spark.read.format("tubemq").options(**these)``.

    Users and TLS are not passed in options: settings that have any need `config_file`, a file of
    options on the driver's host (see `credentials_file.access_file`). Raises `ConfigError` without.
    """
    if config_file is None and needs_access(settings):
        raise ConfigError(
            "users and TLS are not written into options, which show in query plans: name a file "
            "that has them with config_file (option 'configFile')",
            subject="Spark options",
        )
    options = {
        "masters": ",".join(map(address_text, settings.masters)),
        "window": plan.canonical(),
        "rpcTimeoutMs": str(settings.rpc_timeout_ms),
    }
    if isinstance(settings, ReaderSettings):
        options |= {
            "readTimeoutMs": str(settings.deadline_ms),
            "poolSize": str(settings.pool_size),
        }
    return options if config_file is None else {**options, "configFile": config_file}


def masters_of(values: OptionParser) -> tuple[Address, ...]:
    """Return the masters of the options; empty if `configFile` has them."""
    if values.text("configFile") is not None and values.text("masters") is None:
        return ()
    return values.addresses("masters", default_port=8715)


def _connections(values: OptionParser) -> int:
    """Return the connections per task: at most `poolSize`, because each reads under its own
    group."""
    pool = values.value("poolSize")
    most = max(1, int(pool)) if pool.isascii() and pool.isdecimal() else None
    return values.number("connectionsPerTask", low=1, high=most)


def _window(values: OptionParser) -> WindowPlan | None:
    text = values.text("window")
    if text is None:
        return None
    from tubemq_provider.windows.errors import DocumentError
    from tubemq_provider.windows.plan import WindowPlan

    for other in _FIXED_BY_WINDOW:
        if values.text(other) is not None:
            values.problems.append(f"{other}: cannot be combined with 'window', which fixes ranges")
    try:
        return WindowPlan.from_document(load_unique_json(text))
    except DocumentError as error:
        values.problems.extend(f"window: {problem}" for problem in error.problems)
    except (ValueError, RecursionError) as error:
        values.problems.append(f"window: not valid JSON ({error}); give the JSON of a window plan")
    return None


def _subject(
    values: OptionParser, plan: WindowPlan | None
) -> tuple[TopicChoice, str, tuple[str, ...]]:
    """Return topics, group and filters; with a window they come from its plan, and options may only
    repeat them."""
    topic, group = values.text("topic"), values.text("group")
    filters = tuple(sorted(values.words("filters")))
    if values.text("window") is None:
        choice = choose_topics(values)
        if not group:
            values.problems.append("group: is needed")
        return choice, group or "", filters
    if plan is None:
        return TopicChoice((topic or "",)), group or "", filters
    planned = tuple(sorted(plan.filters))
    for name, value, fixed in (
        ("topic", topic, plan.topic),
        ("group", group, plan.group),
        ("filters", ",".join(filters) or None, ",".join(planned)),
    ):
        if value not in (None, fixed):
            values.problems.append(f"{name}: {value!r} differs from the window's {fixed!r}")
    return TopicChoice((plan.topic,)), plan.group, planned


def _columns(values: OptionParser) -> tuple[str, ...]:
    named, attributes = values.choices("columns", RECORDS.names), values.flag("includeAttributes")
    if attributes:
        return named or RECORDS.names
    if "attributes" in named:
        values.problems.append("columns: names 'attributes', but includeAttributes is false")
    return named or tuple(name for name in RECORDS.names if name != "attributes")


def _stream_start(
    values: OptionParser,
    topics: Collection[str] | None,
    *,
    windowed: bool,  # noqa: ARG001 - windows are refused
) -> tuple[Bounds, Bounds]:
    """Return the start of a stream; it has no end."""
    values.problems += [f"{n}: a stream has no end" for n in _BATCH_ONLY if values.text(n)]
    if values.value("unreachablePartitions") == "skip":
        values.problems.append(
            "unreachablePartitions: a stream would start skipped partitions elsewhere; leave 'fail'"
        )
    return _side(values, "starting", topics, streaming=True), STABLE


def _bounds(
    values: OptionParser, topics: Collection[str] | None, *, windowed: bool
) -> tuple[Bounds, Bounds]:
    if windowed:
        return EARLIEST, STABLE
    start, end = _side(values, "starting", topics), _side(values, "ending", topics)
    values.problems.extend(reversed_bounds(start, end))
    return start, end


def _side(
    values: OptionParser, side: str, topics: Collection[str] | None, *, streaming: bool = False
) -> Bounds:
    """Parse one of three options: offsets, one time, or times by partition."""
    offsets, instant, instants = f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    options = [name for name in (offsets, instant, instants) if values.text(name) is not None]
    report = values.problems.append
    if len(options) > 1:
        report(f"{options[1]}: cannot be combined with {options[0]!r}, which says the same")
    if instant in options:
        return parse_instant(instant, values.value(instant), report) or {}
    if instants in options:
        return parse_instants(instants, values.value(instants), topics, report)
    text = LATEST if streaming and not options else values.value(offsets)
    return parse_bounds(offsets, text, topics, report, streaming=streaming)
