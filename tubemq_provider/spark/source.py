"""Data source `tubemq` as Spark sees it: options in, Arrow batches out.

Spark runs the parts in different processes (constructor, planner, tasks) and pickles them in
between, so nothing here holds a connection, and anything heavy is imported where it is used. Spark
also imports this module when it looks for formats: it must stay light. `pushFilters` is left out on
purpose; Spark 4.3 lets a pushed filter leak into other scans of the same frame and lose rows.

Delivery: every action on a loaded frame reads the same ranges, each record once. Offsets are never
confirmed to the broker from here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from tubemq_client.errors import ConfigError, DataLoss
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.spark.batch_reader import TubeMQBatchReader
from tubemq_provider.spark.options import parse_options, spark_options
from tubemq_provider.spark.reading import (
    check_columns,
    schema_of,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from tubemq_client.model import ClientSettings
    from tubemq_provider.spark.options import ReadOptions
    from tubemq_provider.spark.range_planner import PlannedRead
    from tubemq_provider.windows.plan import WindowPlan

log = logging.getLogger(__name__)


class TubeMQDataSource(DataSource):
    """`spark.read.format("tubemq")`: bounded reads of a TubeMQ topic. Options: `docs/spark.md`.

    Options are validated when the frame is loaded. The ranges are resolved at that moment too, or
    at the first action if the user provided a schema, and never again.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read_options, self._refusal = _read_options(options)
        self._planned: PlannedRead | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "tubemq"

    def schema(self) -> str:
        """Return the selected columns; freezes the ranges. Spark skips it for a user's schema."""
        options = self._read_options
        if options is None:
            raise self._refused()
        if self._refusal is None:
            self._freeze(options)
        return schema_of(options, RECORDS)

    def reader(self, schema: StructType) -> TubeMQBatchReader:
        """Return a reader of `schema`, which may be any subset of the columns in any order."""
        options = self._read_options
        if options is None or self._refusal is not None:
            raise self._refused()
        if options.max_per_trigger is not None:
            log.warning("maxOffsetsPerTrigger is for streams; this batch read ignores it")
        check_columns(options, RECORDS, schema, self.name())
        return TubeMQBatchReader(options, self.planned(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of micro-batches; see `stream`. Needs PySpark 4.2."""
        try:
            from tubemq_provider.spark.stream import TubeMQStreamReader
        except ImportError as error:
            raise ConfigError(
                "readStream needs PySpark 4.2 or newer, for limits of batches", subject="Spark"
            ) from error
        options = parse_options(self.options, streaming=True)
        check_columns(options, RECORDS, schema, self.name())
        return TubeMQStreamReader(options, options.settings(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that sends rows as records; see `writing`."""
        from tubemq_provider.spark.writing import TubeMQWriter, write_task_of

        return TubeMQWriter(write_task_of(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the same writer for micro-batches."""
        from tubemq_provider.spark.writing import TubeMQStreamWriter, write_task_of

        return TubeMQStreamWriter(write_task_of(self.options, schema, overwrite=overwrite))

    def _refused(self) -> ConfigError:
        return self._refusal or ConfigError("nothing is read", subject="tubemq")

    def _freeze(self, options: ReadOptions) -> None:
        """Resolve the ranges. Explicit starting offsets may belong to a stream that has long passed
        them and resumes from its checkpoint: then only the first action of a batch read reports the
        problem."""
        try:
            self.planned()
        except (ConfigError, DataLoss):
            if isinstance(options.start, str):
                raise

    def planned(self) -> PlannedRead:
        """Return the frozen ranges, resolved against the cluster on first use. `configFile` is read
        only here: its contents accompany the ranges."""
        if self._planned is None:
            from tubemq_provider.spark.range_planner import plan_read

            options = self._read_options
            if options is None:
                raise self._refused()
            self._planned = plan_read(options, options.settings())
        return self._planned


def _read_options(options: Mapping[str, str]) -> tuple[ReadOptions | None, ConfigError | None]:
    """Validate options before Spark tells what the source is for. Options are refused at once only
    if they fit neither a batch read, nor a stream, nor a write: with the error of the batch read,
    or of the write if an option is specific to writes."""
    try:
        return parse_options(options), None
    except ConfigError as error:
        refusal = error
    try:
        return parse_options(options, streaming=True), refusal
    except ConfigError:
        from tubemq_provider.spark.write_options import for_writing, parse_write_options

    try:
        parse_write_options(options)
    except ConfigError as error:
        raise (error if for_writing(options) else refusal) from None
    return None, refusal


@contextmanager
def reading(settings: ClientSettings, plan: WindowPlan) -> Iterator[dict[str, str]]:
    """Provide options that read exactly `plan`. Users and TLS are in a file while the body runs."""
    from tubemq_provider.spark.credentials_file import access_file

    with access_file(settings) as path:
        yield spark_options(settings, plan, config_file=path)


def batch_reader(options: Mapping[str, str], schema: Any = None) -> TubeMQBatchReader:
    """Return a planned reader; asks the master for the brokers."""
    from tubemq_provider.spark.range_planner import plan_read

    parsed = parse_options(options)
    return TubeMQBatchReader(parsed, plan_read(parsed, parsed.settings()), schema)
