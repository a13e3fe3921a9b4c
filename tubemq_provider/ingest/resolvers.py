"""Build the resolver of a time window, from checked arguments.

Nothing is opened until a boundary has to be resolved: a window that is published already, or whose
boundaries are fixed, needs no look-up of times. This module must not know a kind of source.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from tubemq_provider.windows.time_resolvers.boundaries import Boundaries
from tubemq_provider.windows.time_resolvers.timeline import TimelineResolver

if TYPE_CHECKING:
    from tubemq_provider.ingest.arguments import IngestArguments
    from tubemq_provider.sources.base import Source
    from tubemq_provider.windows.planning.instants import TimeResolver
    from tubemq_provider.windows.protocols import Document

__all__ = ["make_resolver"]

_OF_SOURCE = ("late_allowance", "history_group", "message_zone")
"""Arguments of resolvers that belong to a kind of source."""


def make_resolver(
    arguments: IngestArguments, source: Source, timeline: Callable[[], Document | None]
) -> TimeResolver:
    """Return the resolver of `arguments`.

    Raises `errors.ConfigError` for boundaries that cannot be read, and for a resolver that the
    source does not have.
    """
    if arguments.by == "boundaries":
        return Boundaries.load(arguments.boundaries or {}, arguments.topic, source=arguments.source)
    if arguments.by == "timeline":
        late = arguments.late_allowance or timedelta(0)
        return TimelineResolver(
            arguments.topic,
            timeline,
            lambda: sorted(source.partitions()),
            late,
            source=arguments.source,
        )
    options = {name: getattr(arguments, name) for name in _OF_SOURCE}
    return source.resolver(
        arguments.by, {name: value for name, value in options.items() if value is not None}
    )
