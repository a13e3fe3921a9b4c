"""Offsets of one broadcasting member, which keeps them itself: what is in its file, and what goes
into it.

Pure bookkeeping: the shells read and write the file (`_offsets_file`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rocketmq_client import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rocketmq_client.model import Queue

__all__ = ["LocalOffsets"]

_VERSION: Final = 1


class LocalOffsets:
    """Offsets of a group on this machine. `content` is the file's, empty for a new one; `write`
    replaces it. Raises `errors.ConfigError` for a file of another kind or group."""

    def __init__(self, group: str, content: bytes, write: Callable[[bytes], object]) -> None:
        self._group, self._write = group, write
        self._offsets = _parse(group, content) if content else {}

    def get(self, queue: Queue) -> int | None:
        """Return the queue's offset, None without one."""
        return self._offsets.get(queue.topic, {}).get(queue.key)

    def store(self, positions: Iterable[tuple[Queue, int]]) -> None:
        """Store positions, all in one step. Raises `OSError`."""
        for queue, position in positions:
            self._offsets.setdefault(queue.topic, {})[queue.key] = position
        document = {"version": _VERSION, "group": self._group, "offsets": self._offsets}
        self._write(json.dumps(document, indent=1, sort_keys=True).encode())


def _parse(group: str, content: bytes) -> dict[str, dict[str, int]]:
    problem = "it is not a file of offsets"
    try:
        document = json.loads(content)
        if document["version"] != _VERSION:
            problem = f"it has version {document['version']!r}, and {_VERSION} is known"
        elif document["group"] != group:
            problem = f"it belongs to group {document['group']!r}, not to {group!r}"
        else:
            return {
                str(topic): {str(key): int(offset) for key, offset in offsets.items()}
                for topic, offsets in document["offsets"].items()
            }
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise errors.ConfigError(f"{problem}; name another file or remove it", subject="offsets_file")
