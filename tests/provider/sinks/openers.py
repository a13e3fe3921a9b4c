"""Opens sinks as another process would: functions that can be pickled by name."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from tubemq_provider.sinks.delta import DeltaSink
from tubemq_provider.sinks.iceberg import IcebergSink
from tubemq_provider.sinks.object_store import ObjectStoreSink
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.sinks.sql import SqlSink


def parquet(root: Path) -> ParquetSink:
    return ParquetSink(root)


def object_store(
    url: str, staging: Path | None = None, options: dict[str, str] | None = None
) -> ObjectStoreSink:
    return ObjectStoreSink(url, storage_options=options, staging_root=staging)


def delta(
    url: str, staging: Path | None = None, options: dict[str, str] | None = None
) -> DeltaSink:
    return DeltaSink(url, storage_options=options, staging_root=staging)


def iceberg_catalog(root: Path) -> SqlCatalog:
    root.mkdir(exist_ok=True)
    return SqlCatalog("test", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/lake")


def iceberg(root: Path) -> IcebergSink:
    return IcebergSink("sales.orders", catalog=iceberg_catalog(root), staging_root=root / "staging")


def iceberg_in_place(root: Path) -> IcebergSink:
    return IcebergSink("sales.orders", catalog=iceberg_catalog(root))


def jdbc(url: str, table: str, staging: Path) -> SqlSink:
    return SqlSink(url, table, staging_root=staging)
