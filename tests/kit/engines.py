"""Engines over clusters that tests have started.

Nothing here starts a server or closes what it opens: readers live as long as an ingest.
"""

from __future__ import annotations

from typing import Any

from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.sources.registry import open_source
from tubemq_provider.windows.spaces import FIRST_SOURCE

__all__ = ["inline_engine"]


def inline_engine(settings: Any, *, kind: str = FIRST_SOURCE, **options: Any) -> InlineEngine:
    """Return the inline engine for plans of the kind `kind`, on the cluster behind `settings`."""
    source = open_source(kind, settings, identity="test", topic="", group="")
    return InlineEngine.for_source(source, **options)
