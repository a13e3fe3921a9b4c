"""Base of the sources of one topic: identity, and cleanup.

A kind of source derives from `TopicSource` and adds its queries. This module must not import a
client or name a kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, ClassVar, Generic, Self, TypeVar

from tubemq_provider.sources.consumer_config import consumer_options_of
from tubemq_provider.windows.spaces import OffsetSpace

__all__ = ["TopicSource"]

SettingsT = TypeVar("SettingsT")
WitnessT = TypeVar("WitnessT")


class TopicSource(Generic[SettingsT, WitnessT]):
    """Source of `topic` for `group`, on the cluster of `settings` with the alias `identity`.

    `_stack` closes connections opened for planning, such as `_witness`.
    """

    SPACE: ClassVar[OffsetSpace]

    def __init__(self, settings: SettingsT, *, identity: str, topic: str, group: str) -> None:
        self._settings = settings
        self._identity = identity
        self._topic, self._group = topic, group
        self._witness: WitnessT | None = None
        self._stack = ExitStack()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._identity}/{self._topic}/{self._group})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections opened for planning; may be called twice."""
        self._witness = None
        self._stack.close()

    @property
    def space(self) -> OffsetSpace:
        """Meaning of its offsets and keys."""
        return self.SPACE

    @property
    def identity(self) -> str:
        """Alias of the cluster."""
        return self._identity

    @property
    def topic(self) -> str:
        """Topic to read."""
        return self._topic

    @property
    def group(self) -> str:
        """Group that the progress belongs to."""
        return self._group

    def configure(self, options: Mapping[str, Any]) -> None:
        """Apply a task's `consumer_config` to the settings, before a broker is asked.

        Raises `ConfigError` with every problem.
        """
        consumer = consumer_options_of(self.space.source)
        self._settings = consumer.applied(self._settings, options)

    def settings(self) -> SettingsT:
        """Return the plain settings of every client."""
        return self._settings
