"""The older name of the sink for SQL databases."""

from __future__ import annotations

import importlib
import sys

import pytest

from tubemq_provider.sinks.sql import SqlSink


def test_the_older_name_is_the_same_sink_and_warns() -> None:
    sys.modules.pop("tubemq_provider.sinks.jdbc", None)
    with pytest.warns(DeprecationWarning, match="SqlSink"):
        module = importlib.import_module("tubemq_provider.sinks.jdbc")
    assert module.JdbcSink is SqlSink
