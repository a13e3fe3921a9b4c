"""Engines over clusters that tests have started.

Nothing here starts a server or closes what it opens: readers live as long as an ingest.
"""

from __future__ import annotations

from typing import Any

from tubemq_client.model import ClientSettings
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.sources.tubemq.source import TubeMQSource

__all__ = ["inline_engine"]


def inline_engine(settings: ClientSettings, **options: Any) -> InlineEngine:
    """The inline engine, reading plans from the cluster behind `settings`."""
    source = TubeMQSource(settings, identity="test", topic="", group="")
    return InlineEngine.for_source(source, **options)
