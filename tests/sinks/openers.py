"""Opens sinks as another process would: functions that can be pickled by name."""

from __future__ import annotations

from pathlib import Path

from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink


def parquet(root: Path) -> ParquetSink:
    return ParquetSink(root)


def object_store(url: str, staging: Path, options: dict[str, str] | None = None) -> ObjectStoreSink:
    return ObjectStoreSink(url, storage_options=options, staging_root=staging)
