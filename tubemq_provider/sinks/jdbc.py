"""The older name of `sql`, for code that imports `JdbcSink`; it goes with the next minor release.

What this package itself imports is `sql`. Importing this module warns, so that nothing here may.
"""

from __future__ import annotations

import warnings

from tubemq_provider.sinks.sql import SqlSink as JdbcSink

__all__ = ["JdbcSink"]

warnings.warn(
    "tubemq_provider.sinks.jdbc.JdbcSink is tubemq_provider.sinks.sql.SqlSink now",
    DeprecationWarning,
    stacklevel=2,
)
