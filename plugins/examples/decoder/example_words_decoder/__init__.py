"""Decoder ``words``: the first word of each body, as the column ``word``."""

from __future__ import annotations

import pyarrow as pa


def decode(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return a row for each record."""
    bodies = records.column("value").to_pylist()
    return pa.RecordBatch.from_pydict({"word": [body.split()[0].decode() for body in bodies]})


decode.schema = "word string"
