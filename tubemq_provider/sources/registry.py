"""Kinds of sources by name: the package that implements each.

A kind is a package with three modules: `space` (`SPACE`, light: executors import it), `columns`
(`COLUMNS`, light as well) and `source` (`CONFIG`, the options, and `open_source`). It is registered
in `windows.spaces.SOURCES`, or by an entry point in the group ``tubemq_provider.sources`` whose
name is the kind and whose value is the package. This module must not name a kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tubemq_client.errors import ConfigError
from tubemq_provider.sources.base import Source, SourceConfig
from tubemq_provider.windows.spaces import filters_of, source_module

__all__ = ["config_of", "open_source"]


def config_of(kind: str) -> type[SourceConfig]:
    """Return the options model of a kind. Raises `ConfigError` for an unknown kind."""
    config: type[SourceConfig] = _member(kind, "CONFIG")
    return config


def open_source(
    kind: str,
    settings: Any,
    *,
    identity: str,
    topic: str,
    group: str,
    filters: str | Sequence[str] = (),
) -> Source:
    """Return the source of `topic` for `group`, from settings of the kind's config.

    Text in `filters` is one filter. Connects to nothing yet; close it. Raises `ConfigError` for an
    unknown kind.
    """
    source: Source = _member(kind, "open_source")(
        settings, identity=identity, topic=topic, group=group, filters=filters_of(filters)
    )
    return source


def _member(kind: str, name: str) -> Any:
    module = source_module(kind)
    try:
        return getattr(module, name)
    except AttributeError:
        raise ConfigError(
            f"{module.__name__} has no {name}, which a source of kind {kind!r} needs",
            subject="source",
        ) from None
