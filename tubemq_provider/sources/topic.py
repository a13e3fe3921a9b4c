"""What every source of one topic is made of: whose it is, and what is closed with it.

A kind of source derives from `TopicSource` and adds how its servers are asked. This module must not
import a client or name a kind.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar, Generic, Self, TypeVar

from tubemq_provider.windows.spaces import OffsetSpace

__all__ = ["TopicSource"]

SettingsT = TypeVar("SettingsT")
WitnessT = TypeVar("WitnessT")


class TopicSource(Generic[SettingsT, WitnessT]):
    """`topic` of the cluster that `settings` reach and everybody calls `identity`, for `group`.

    `_stack` closes what was opened for planning, `_witness` among it.
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
        """Close what was opened for planning; may be called twice."""
        self._witness = None
        self._stack.close()

    @property
    def space(self) -> OffsetSpace:
        """What its offsets and keys mean."""
        return self.SPACE

    @property
    def identity(self) -> str:
        """The cluster's alias."""
        return self._identity

    @property
    def topic(self) -> str:
        """What is read."""
        return self._topic

    @property
    def group(self) -> str:
        """Whose progress it is."""
        return self._group

    def settings(self) -> SettingsT:
        """The plain settings that every client runs on."""
        return self._settings
