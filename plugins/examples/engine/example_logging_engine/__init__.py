"""Engine ``logging``: the inline engine, which logs the counts of each window."""

from __future__ import annotations

import logging
from typing import Any

from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.rows.spec import DecodeSpec


class LoggingEngine(InlineEngine):
    """Inline engine that logs what it has read."""

    name = "logging"

    def ingest(self, *arguments: Any, **more: Any) -> Any:
        """Ingest a window, and log its counts."""
        counts = super().ingest(*arguments, **more)
        logging.getLogger(__name__).info("read %s", dict(counts.records))
        return counts


def make(arguments: Any, source: Any, policies: Any, stack: Any) -> LoggingEngine:
    """Return the engine that reads `source`; `stack` would close what it opens."""
    decode = None if arguments.decode is None else DecodeSpec.parse(arguments.decode)
    return LoggingEngine.for_source(source, policies=policies, decode=decode)
