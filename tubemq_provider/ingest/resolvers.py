"""Build the resolver of a time window, from checked arguments.

Nothing is opened until a boundary has to be resolved: a window that is published already, or whose
boundaries are fixed, needs no look-up of times. This module must not know a kind of source.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from tubemq_client.errors import ConfigError
from tubemq_provider.extensions import call, is_known
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries
from tubemq_provider.windows.time_resolvers.timeline import TimelineResolver

if TYPE_CHECKING:
    from tubemq_provider.ingest.arguments import IngestArguments
    from tubemq_provider.sources.base import Source
    from tubemq_provider.windows.planning.instants import TimeResolver
    from tubemq_provider.windows.protocols import Document

__all__ = [
    "make_boundaries",
    "make_explicit",
    "make_of_source",
    "make_resolver",
    "make_timeline",
]

_OF_SOURCE = ("late_allowance", "history_group", "message_zone")
"""Arguments of resolvers that belong to a kind of source."""
_OF_KIND = "history"
"""Word of the factory for resolvers that only the source knows."""


def make_resolver(
    arguments: IngestArguments, source: Source, timeline: Callable[[], Document | None]
) -> TimeResolver:
    """Return the resolver of `arguments`.

    Raises `errors.ConfigError` for boundaries that cannot be read, and for a resolver that the
    source does not have.
    """
    word: TimeResolver | str = arguments.by
    if not isinstance(word, str):
        return word
    factory = word if is_known("resolver", word) else _OF_KIND
    made: TimeResolver = call("resolver", factory, arguments, source, timeline)
    return made


def make_boundaries(arguments: IngestArguments, *_: object) -> TimeResolver:
    """Return the resolver of instants that the user supplies."""
    return Boundaries.load(arguments.boundaries or {}, arguments.topic, source=arguments.source)


def make_timeline(
    arguments: IngestArguments, source: Source, timeline: Callable[[], Document | None]
) -> TimeResolver:
    """Return the resolver from samples of stable ends."""
    late = arguments.late_allowance or timedelta(0)
    return TimelineResolver(
        arguments.topic,
        timeline,
        lambda: sorted(source.partitions()),
        late,
        source=arguments.source,
    )


def make_explicit(*_: object) -> TimeResolver:
    """Refuse: windows of explicit offsets have no instants to resolve."""
    raise ConfigError("resolver='explicit' resolves no instant", subject="resolver")


def make_of_source(arguments: IngestArguments, source: Source, _: object) -> TimeResolver:
    """Return a resolver that the kind of source has by itself."""
    options = {name: getattr(arguments, name) for name in _OF_SOURCE}
    return source.resolver(
        arguments.by, {name: value for name, value in options.items() if value is not None}
    )
