"""From a path or URL to the place it means.

Apart from `_places`, so that what a place is does not depend on the places there are; object stores
are imported only when one is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from tubemq_provider.sinks._places import LocalPlace, Place, scheme_of

__all__ = ["place_at"]


def place_at(url: str, storage_options: Mapping[str, str]) -> Place:
    """The place that a path or URL means. Raises `ConfigError` for what no sink can use, and
    `MissingExtraError` without the extra that object stores need."""
    if scheme_of(url) in ("", "file"):
        from tubemq_provider.sinks.parquet import local_root

        return LocalPlace(local_root(url))
    from tubemq_provider.sinks._objects import ObjectPlace

    return ObjectPlace(url, storage_options)
