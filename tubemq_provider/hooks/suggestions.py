"""Hints for a mistyped topic name: the existing topics.

Asks the administration over HTTP, briefly and at best effort: an error must not turn into another
one, nor wait for servers that do not answer. Moves and registers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from tubemq_client import errors

if TYPE_CHECKING:
    from tubemq_provider.hooks.connection import ConnectionConfig

__all__ = ["offering_topics", "topics_hint"]

_TIMEOUT_MS = 2_000
_SHOWN = 10


@contextmanager
def offering_topics(topic: str, config: Callable[[], ConnectionConfig]) -> Iterator[None]:
    """Add the existing topics, and near matches, to an `errors.UnknownTopic`."""
    try:
        yield
    except errors.UnknownTopic as exc:
        hint = topics_hint(topic, _names(config()))
        raise errors.UnknownTopic(exc.code, f"{exc.detail}{hint}", where=exc.where) from exc


def topics_hint(topic: str, names: list[str] | None) -> str:
    """Return lines to add; `names` is None if no server could be asked."""
    if names is None:
        return (
            "\nto list the topics: tubemq topics list --admin http://<master>:8080 (set the "
            "connection's admin_url to have them named here)"
        )
    near = get_close_matches(topic, names, n=3, cutoff=0.6)
    shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
    existing = f"\nthere are: {shown or 'no topics'}"
    return f"\ndid you mean {' or '.join(map(repr, near))}?{existing}" if near else existing


def _names(config: ConnectionConfig) -> list[str] | None:
    from tubemq_client.admin import AdminClient

    try:
        with AdminClient(
            config.admin_urls(), timeout_ms=_TIMEOUT_MS, **config.admin_tls()
        ) as client:
            return sorted(topic.name for topic in client.topics())
    except Exception:  # noqa: BLE001 - the error at hand is the one to report
        return None
