"""Kinds of sources by name: from a word to the package that speaks to such a system.

A kind is a package with three modules: `space` (`SPACE`, light: executors import it), `columns`
(`COLUMNS`, light as well) and `source` (`CONFIG`, what a user may say, and `open_source`). It is
known by `windows.spaces.SOURCES`, or by an entry point in the group ``tubemq_provider.sources``
whose name is the kind and whose value is the package. This module must not name a kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tubemq_client.errors import ConfigError
from tubemq_provider.sources.base import Source, SourceConfig
from tubemq_provider.windows.spaces import filters_of, source_package

__all__ = ["config_of", "open_source"]


def config_of(kind: str) -> type[SourceConfig]:
    """The model of what a user may say of a kind. Raises `ConfigError` for an unknown kind."""
    found: type[SourceConfig] = _member(kind, "CONFIG")
    return found


def open_source(
    kind: str,
    settings: Any,
    *,
    identity: str,
    topic: str,
    group: str,
    filters: str | Sequence[str] = (),
) -> Source:
    """The source of `topic` for `group`, from settings that the kind's config gave; a text is one
    filter. Connects to nothing yet; close it. Raises `ConfigError` for an unknown kind."""
    found: Source = _member(kind, "open_source")(
        settings, identity=identity, topic=topic, group=group, filters=filters_of(filters)
    )
    return found


def _member(kind: str, name: str) -> Any:
    package = source_package(kind)
    try:
        return getattr(import_module(f"{package}.source"), name)
    except AttributeError:
        raise ConfigError(
            f"{package}.source has no {name}, which a source of kind {kind!r} needs",
            subject="source",
        ) from None
