"""Sink ``folder:<path>``: a Parquet directory of which each deployment chooses the root."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tubemq_provider.sinks.factory import SinkOptions
from tubemq_provider.sinks.parquet import ParquetSink

interface = 1


class Options(BaseModel):
    """Options, as ``plugin_options={"sink": {"below": "raw"}}`` of an operator or asset."""

    model_config = ConfigDict(extra="forbid")
    below: str = "."


def make(address: str, options: SinkOptions) -> ParquetSink:
    """Return the sink at `address`, below the folder of the option."""
    root = Path(os.environ.get("EXAMPLE_LAKE", "/"), options.own.below)
    return ParquetSink(root / address.partition(":")[2], **options.checked)


make.Options, make.accepts = Options, ("verify", "partition_by", "max_partitions")
