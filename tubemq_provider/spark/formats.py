"""The Spark half of each kind of source: found by the kind's name, imported when it is needed.

The package of a kind says in `SPARK` which module that is, in `ON_EXECUTORS` which rooms of which
packages its tasks import, and may say in `NOT_ON_EXECUTORS` what of these they do not. Nothing here
imports pyspark before a format is asked for. This module must not name a kind.
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

__all__ = ["SparkFormat", "executor_rooms", "format_module", "format_of", "not_on_executors"]


class SparkFormat(Protocol):
    """What the module of a format has. The word of the format is the kind's name."""

    @property
    def reading(self) -> Callable[[Any, WindowPlan], AbstractContextManager[dict[str, str]]]:
        """From a source's settings and a plan to the options that read exactly it. What options
        must not carry is in a file while the context is open."""

    @property
    def batch_reader(self) -> Callable[[Mapping[str, str], Any], BatchReader[Any]]:
        """From options, and a schema or None, to a planned reader; looks up where brokers are."""


def format_module(kind: str) -> str | None:
    """The import name of a kind's format; None if Spark cannot read the kind. Raises `ConfigError`
    for an unknown kind."""
    found: str | None = getattr(import_module(source_package(kind)), "SPARK", None)
    return found


def format_of(kind: str) -> SparkFormat:
    """The format of a kind. Raises `ConfigError` if it has none."""
    module = format_module(kind)
    if module is None:
        raise ConfigError(
            f"there is no Spark source for {kind!r}; use engine='inline'", subject="engine"
        )
    return cast("SparkFormat", import_module(module))


def executor_rooms(kind: str) -> Mapping[str, tuple[str, ...]]:
    """Packages beside the provider's, and rooms of them, that tasks of a kind import."""
    found: Mapping[str, tuple[str, ...]] = getattr(
        import_module(source_package(kind)), "ON_EXECUTORS", {}
    )
    return found


def not_on_executors(kind: str) -> tuple[str, ...]:
    """Paths in those packages, and beginnings of such, that tasks of a kind never import."""
    found: tuple[str, ...] = getattr(import_module(source_package(kind)), "NOT_ON_EXECUTORS", ())
    return found
