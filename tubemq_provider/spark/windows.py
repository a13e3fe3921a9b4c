"""Spark half of any source: tasks read a window's ranges through the source itself.

A kind of source whose package has ``SPARK = "tubemq_provider.spark.windows"`` is read by every
Spark engine. Its distribution must be installed where tasks run, its settings must be picklable. A
task opens the source for its split and reads it with the source's own reader. Not for streams, nor
for frames that a user loads. This module must not name a kind.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError
from tubemq_client.json_text import load_unique_json
from tubemq_provider.files.columns import columns_of
from tubemq_provider.spark.credentials_file import secret_file
from tubemq_provider.spark.option_parser import Option, OptionParser, ReadShape, decode_option
from tubemq_provider.spark.reading import BatchReader, SplitPartition
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.spaces import source_package

if TYPE_CHECKING:
    from tubemq_provider.sources.base import MissingRange, RecordBatches, RecordReader

__all__ = ["batch_reader", "reading"]

_OPTIONS: Final = (
    Option("window"),
    Option("configFile"),
    Option("columns"),
    Option("decode"),
    Option("minPartitions"),
    Option("maxRecordsPerPartition", (), "500000"),
    Option("failOnDataLoss", (), "true"),
    Option("corruptRecords", (), "fail"),
    Option("batchBytes", (), str(4 * 1024 * 1024)),
    Option("reportDir"),
)


@dataclass(frozen=True, slots=True)
class _Planned:
    """Frozen read: the window, its ranges, the settings and what opens the source."""

    plan: WindowPlan
    ranges: tuple[Any, ...]
    settings: Any
    open_source: Callable[..., Any]
    gap_policy: str


class _CountingReader:
    """Reader that counts what it has read, which is its `stats` as well."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self.stats = self
        self.records = self.bytes = 0

    @property
    def corrupt(self) -> int:
        return self._reader.stats.corrupt

    @property
    def gaps(self) -> Sequence[MissingRange]:
        return self._reader.stats.gaps

    @property
    def last(self) -> Mapping[str, Any]:
        return self._reader.stats.last

    def read(self, range_: Any) -> Iterator[RecordBatches]:
        for batch in self._reader.read(range_):
            self.records += len(batch)
            self.bytes += batch.nbytes
            yield batch


class WindowReader(BatchReader[ReadShape]):
    """Reader of a window's splits through the source of its kind."""

    _planned: _Planned

    def __init__(self, options: ReadShape, planned: _Planned, schema: Any) -> None:
        super().__init__(options, planned, schema)
        self.COLUMNS = columns_of(planned.plan.source)

    def broker_of(self, range_: Any) -> str:
        """Return the name of the range's broker."""
        return self._planned.plan.space.peer_of(range_.partition.key)

    @contextmanager
    def open_reader(self, item: SplitPartition, **policy: Any) -> Iterator[Any]:  # noqa: ARG002 - the source finds its brokers
        """Open the source, and its reader for one split; `policy` overrides the options."""
        planned = self._planned
        plan = planned.plan
        source = planned.open_source(
            planned.settings,
            identity=plan.cluster,
            topic=plan.topic,
            group=plan.group,
            filters=plan.filters,
        )
        policies = Policies.of(
            gap_policy=planned.gap_policy,
            corrupt_records=policy.get("corrupt_records", self.options.corrupt_records),
        )
        quarantine = policy.get("quarantine")
        with source, source.open_reader(plan, policies, quarantine=quarantine) as reader:
            yield _CountingReader(reader)


@contextmanager
def reading(settings: Any, plan: WindowPlan) -> Iterator[dict[str, str]]:
    """Provide options that read exactly `plan`; the settings are in a file while the body runs."""
    text = b64encode(pickle.dumps(settings)).decode("ascii")
    with secret_file("settings", text) as path:
        yield {"window": plan.canonical(), "configFile": path}


def batch_reader(options: Mapping[str, str], schema: Any = None) -> WindowReader:
    """Return a planned reader of the options that `reading` made, and those of an engine.

    Raises `ConfigError` with every problem.
    """
    values = OptionParser(_OPTIONS, options, refused={})
    plan = WindowPlan.from_document(load_unique_json(values.value("window")))
    available = columns_of(plan.source).names
    columns = values.choices("columns", available) or available
    read = ReadShape(
        columns=columns,
        decode=decode_option(values, columns),
        corrupt_records=values.choice("corruptRecords", ("fail", "drop")),
        max_records=values.number("maxRecordsPerPartition", low=1),
        min_partitions=values.integer("minPartitions", low=1),
        batch_bytes=values.number("batchBytes", low=1),
        report_dir=values.text("reportDir"),
    )
    gap_policy = "fail" if values.flag("failOnDataLoss") else "skip"
    if values.problems:
        raise ConfigError(values.problems, subject=f"options of a read of {plan.source}")
    content = Path(values.value("configFile")).read_text(encoding="ascii")
    planned = _Planned(
        plan,
        tuple(plan.reads()),
        pickle.loads(b64decode(content)),  # noqa: S301 - written by `reading`, for its owner alone
        import_module(f"{source_package(plan.source)}.source").open_source,
        gap_policy,
    )
    return WindowReader(read, planned, schema)
