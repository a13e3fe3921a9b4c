"""Spark formats of the kinds of source: found by the kind's name, imported when needed.

The package of a kind names that module in `SPARK`, lists in `ON_EXECUTORS` which subpackages of
which packages its tasks import, and may exclude paths of these in `NOT_ON_EXECUTORS`. Nothing here
imports pyspark before a format is requested. This module must not name a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from tubemq_client.errors import ConfigError
from tubemq_provider.windows.spaces import source_package

if TYPE_CHECKING:
    from tubemq_provider.spark.reading import BatchReader
    from tubemq_provider.windows.plan import WindowPlan


class SparkFormat(Protocol):
    """Interface of a format's module. The format has the kind's name."""

    @property
    def reading(self) -> Callable[[Any, WindowPlan], AbstractContextManager[dict[str, str]]]:
        """Context manager from a source's settings and a plan to the options that read exactly it.
        Secrets are in a file while the context is open."""

    @property
    def batch_reader(self) -> Callable[[Mapping[str, str], Any], BatchReader[Any]]:
        """Factory of a planned reader from options, and a schema or None; looks up brokers."""


def format_module(kind: str) -> str | None:
    """Return the import name of a kind's format; None if Spark cannot read the kind. Raises
    `ConfigError` for an unknown kind."""
    module: str | None = getattr(import_module(source_package(kind)), "SPARK", None)
    return module


def format_of(kind: str) -> SparkFormat:
    """Return the format of a kind. Raises `ConfigError` if it has none."""
    module = format_module(kind)
    if module is None:
        raise ConfigError(
            f"there is no Spark source for {kind!r}; use engine='inline'", subject="engine"
        )
    return cast("SparkFormat", import_module(module))


def executor_rooms(kind: str) -> Mapping[str, tuple[str, ...]]:
    """Return packages, in addition to the provider's, and subpackages of them, that tasks of a kind
    import."""
    subpackages: Mapping[str, tuple[str, ...]] = getattr(
        import_module(source_package(kind)), "ON_EXECUTORS", {}
    )
    return subpackages


def not_on_executors(kind: str) -> tuple[str, ...]:
    """Return paths, and prefixes of paths, in those packages that tasks of a kind never import."""
    excluded: tuple[str, ...] = getattr(import_module(source_package(kind)), "NOT_ON_EXECUTORS", ())
    return excluded
