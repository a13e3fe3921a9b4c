"""Windows as rows of a database table, one transaction each.

`sink` has the sink. `address` parses the database's URL, `types`, `columns` and `values` map Arrow
columns to the dialect's, and `errors` reports what a driver says without records and logins. Only
`sink` is used from outside of this folder.
"""

from __future__ import annotations

from tubemq_provider.sinks.sql.sink import LOCK_WAIT_S, SqlSink

__all__ = ["LOCK_WAIT_S", "SqlSink"]
