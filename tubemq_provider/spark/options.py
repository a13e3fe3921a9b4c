"""Every option of `format("tubemq")`, checked once and all together.

`parse_options` turns what Spark hands over (strings under case-insensitive names) into a frozen
`ReadOptions`, or raises one `ConfigError` that lists every problem. It contacts nobody: what a
topic or an offset word means at the broker is `planning`'s work. No option ever takes a secret,
because options show in query plans. This module runs on the driver and on executors and must not
import pyspark, pyarrow or pydantic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError
from tubemq_client.model import Address, ClientSettings, Partition
from tubemq_provider.files.columns import RECORDS
from tubemq_provider.spark.offsets_json import (
    EARLIEST,
    STABLE,
    Bounds,
    parse_bounds,
    reversed_bounds,
)
from tubemq_provider.spark.option_values import Option, OptionValues

if TYPE_CHECKING:
    from tubemq_provider.windows.plan import WindowPlan

__all__ = ["OPTIONS", "SUBJECT", "Option", "ReadOptions", "parse_options"]

SUBJECT = 'options of format("tubemq")'


OPTIONS = (
    Option("masters", ("tubemq.masters",)),
    Option("topic"),
    Option("group"),
    Option("window"),
    Option("startingOffsets", (), EARLIEST),
    Option("endingOffsets", (), STABLE),
    Option("partitions"),
    Option("filters", ("streamIds",)),
    Option("columns"),
    Option("minPartitions"),
    Option("maxOffsetsPerPartition", (), "500000"),
    Option("failOnDataLoss", (), "true"),
    Option("corruptRecords", (), "fail"),
    Option("batchBytes", (), str(4 * 1024 * 1024)),
    Option("readTimeoutMs", (), "60000"),
    Option("rpcTimeoutMs", (), "10000"),
    Option("poolSize", (), "32"),
    Option("reportDir"),
    Option("configFile"),
)

_REFUSED = {
    "password": "is not taken, because options show in query plans; name a file with 'configFile'",
    "path": "is not used; load() takes no argument, name the topic with the option 'topic'",
    "subscribe": "is Kafka's word; name one topic with 'topic'",
    "kafka.bootstrap.servers": "is Kafka's word; name the masters with 'masters'",
}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A checked set of options. Times are ms, sizes bytes, `max_entries` counts index entries.

    With a `window`, topic, group, filters and ranges come from the plan and `start`/`end` mean
    nothing.
    """

    masters: tuple[Address, ...]
    topic: str
    group: str
    filters: tuple[str, ...]
    window: WindowPlan | None
    start: Bounds
    end: Bounds
    partitions: tuple[Partition, ...] | None
    columns: tuple[str, ...]
    min_partitions: int | None
    max_entries: int
    fail_on_data_loss: bool
    corrupt_records: str
    batch_bytes: int
    read_timeout_ms: int
    rpc_timeout_ms: int
    pool_size: int
    report_dir: str | None
    config_file: str | None = None

    @property
    def gap_policy(self) -> str:
        """The client's word for `failOnDataLoss`."""
        return "fail" if self.fail_on_data_loss else "skip"

    def settings(self) -> ClientSettings:
        """The client settings that planner and tasks run on. Reads `configFile`, so ask on the
        driver only. Raises `ConfigError` for what the file says."""
        if self.config_file is None:
            return ClientSettings(masters=self.masters, rpc_timeout_ms=self.rpc_timeout_ms)
        from tubemq_provider.spark.access import settings_from

        return settings_from(
            self.config_file, masters=self.masters or None, rpc_timeout_ms=self.rpc_timeout_ms
        )


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Check everything, then answer; raises `ConfigError` with all problems, one line each."""
    values = OptionValues(OPTIONS, given, refused=_REFUSED)
    config_file = values.text("configFile")
    if config_file is not None and values.text("masters") is None:
        masters: tuple[Address, ...] = ()  # the file names them
    else:
        masters = values.addresses("masters", default_port=8715)
    plan = _window(values)
    topic, group, filters = _subject(values, plan)
    start, end = _bounds(values, topic or None, windowed=plan is not None)
    parsed = ReadOptions(
        masters=masters,
        topic=topic,
        group=group,
        filters=filters,
        window=plan,
        start=start,
        end=end,
        partitions=_partitions(values, topic),
        columns=values.choices("columns", RECORDS.names) or RECORDS.names,
        min_partitions=values.integer("minPartitions", low=1, high=100_000),
        max_entries=values.number("maxOffsetsPerPartition", low=1),
        fail_on_data_loss=values.flag("failOnDataLoss"),
        corrupt_records=values.choice("corruptRecords", ("fail", "drop")),
        batch_bytes=values.number("batchBytes", low=1, high=1 << 30),
        read_timeout_ms=values.number("readTimeoutMs", low=1),
        rpc_timeout_ms=values.number("rpcTimeoutMs", low=1),
        pool_size=values.number("poolSize", low=1, high=1000),
        report_dir=values.text("reportDir"),
        config_file=config_file,
    )
    if values.problems:
        raise ConfigError(values.problems, subject=SUBJECT)
    return parsed


def _window(values: OptionValues) -> WindowPlan | None:
    text = values.text("window")
    if text is None:
        return None
    from tubemq_provider.windows.errors import DocumentError
    from tubemq_provider.windows.plan import WindowPlan

    for other in ("startingOffsets", "endingOffsets", "partitions"):
        if values.text(other) is not None:
            values.problems.append(f"{other}: cannot be combined with 'window', which fixes ranges")
    try:
        return WindowPlan.from_document(json.loads(text))
    except DocumentError as error:
        values.problems.extend(f"window: {problem}" for problem in error.problems)
    except (ValueError, RecursionError) as error:
        values.problems.append(f"window: not valid JSON ({error}); give the JSON of a window plan")
    return None


def _subject(values: OptionValues, plan: WindowPlan | None) -> tuple[str, str, tuple[str, ...]]:
    """Topic, group and filters: from the window, which other options may only repeat."""
    topic, group = values.text("topic"), values.text("group")
    filters = tuple(sorted(values.words("filters")))
    if values.text("window") is None:
        for name, value in (("topic", topic), ("group", group)):
            if not value:
                values.problems.append(f"{name}: is needed")
        return topic or "", group or "", filters
    if plan is None:
        return topic or "", group or "", filters
    planned = tuple(sorted(plan.filters))
    for name, value, fixed in (
        ("topic", topic, plan.topic),
        ("group", group, plan.group),
        ("filters", ",".join(filters) or None, ",".join(planned)),
    ):
        if value not in (None, fixed):
            values.problems.append(f"{name}: {value!r} differs from the window's {fixed!r}")
    return plan.topic, plan.group, planned


def _bounds(values: OptionValues, topic: str | None, *, windowed: bool) -> tuple[Bounds, Bounds]:
    if windowed:
        return EARLIEST, STABLE
    report = values.problems.append
    start = parse_bounds("startingOffsets", values.value("startingOffsets"), topic, report)
    end = parse_bounds("endingOffsets", values.value("endingOffsets"), topic, report)
    values.problems.extend(reversed_bounds(start, end))
    return start, end


def _partitions(values: OptionValues, topic: str) -> tuple[Partition, ...] | None:
    found = set()
    for key in values.words("partitions"):
        try:
            found.add(Partition.from_key(topic, key))
        except ValueError as error:
            values.problems.append(f"partitions: {error}")
    return tuple(sorted(found)) or None
