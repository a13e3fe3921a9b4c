"""Windows in an Iceberg table, one snapshot each.

`sink` has the sink. `spec`, `columns` and `rules` bring a window's columns and partitions into the
table's, `files` describes its data files, and `history` expires snapshots that nothing needs. Only
`sink` is used from outside of this folder.
"""

from __future__ import annotations

from tubemq_provider.sinks.iceberg.sink import IcebergSink

__all__ = ["IcebergSink"]
