"""Settings with connections: the base of the sessions of both APIs.

Connections cannot cross processes; settings can, so a session is pickled as its settings.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tubemq_client.model import ClientSettings

__all__ = ["SharedSettings"]


class SharedSettings(ClientSettings):
    """Base of `sync.Session` and `aio.Session`; `connections` is the pool of one of them."""

    __slots__ = ("connections",)

    def __init__(self, settings: ClientSettings, connections: Any) -> None:
        super().__init__(*_values(settings))
        object.__setattr__(self, "connections", connections)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ClientSettings, _values(self))


def _values(settings: ClientSettings) -> tuple[Any, ...]:
    return tuple(getattr(settings, field.name) for field in fields(ClientSettings))
