"""Positions of a broadcasting member in a file: no broker keeps them.

One file belongs to one member: it is locked while the member lives, and replaced as a whole with
each change, so a process that is killed leaves the old or the new positions. The file is JSON,
``{"group": …, "offsets": {topic: {"broker:queue": offset}}}``. Nothing here talks to a broker.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rocketmq_client import errors
from rocketmq_client.model import Queue

__all__ = ["LocalOffsets"]


class LocalOffsets:
    """File of one member of `group`. Raises `errors.ConfigError` for a file that another member
    uses, that cannot be written, or that is no such file."""

    def __init__(self, path: str | os.PathLike[str], group: str) -> None:
        self._path = Path(path)
        self._turn = threading.Lock()
        self._group = group
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._refusal(str(error.strerror)) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise self._refusal("another member uses it; give each member its own") from error

    def load(self) -> dict[Queue, int]:
        """Return the positions; none without a file."""
        try:
            document = json.loads(self._path.read_bytes())
            group, offsets = document["group"], _queues(document["offsets"])
        except FileNotFoundError:
            return {}
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            reason = getattr(error, "strerror", None) or "it is not a file of positions"
            raise self._refusal(reason) from error
        if group != self._group:
            raise self._refusal(f"it has the positions of group {group!r}")
        return offsets

    def save(self, positions: Callable[[], Mapping[Queue, int]]) -> None:
        """Replace the file with what `positions` returns once it is this call's turn, so that the
        newest are written last. Raises `errors.ConfigError`."""
        with self._turn:
            self._replace(positions())

    def _replace(self, offsets: Mapping[Queue, int]) -> None:
        topics: dict[str, dict[str, int]] = {}
        for queue, offset in sorted(offsets.items()):
            topics.setdefault(queue.topic, {})[queue.key] = offset
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            with new.open("w") as file:
                json.dump({"group": self._group, "offsets": topics}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            raise self._refusal(str(error.strerror)) from error

    def close(self) -> None:
        """Let another member use the file."""
        os.close(self._lock)

    def _refusal(self, reason: str) -> errors.ConfigError:
        return errors.ConfigError(f"offsets_file {self._path}: {reason}", subject="consumer")


def _queues(topics: Any) -> dict[Queue, int]:
    offsets: dict[Queue, int] = {}
    for topic, keys in topics.items():
        for key, offset in keys.items():
            broker, _, number = key.rpartition(":")
            if type(offset) is not int or offset < 0 or not broker:
                raise ValueError(key)
            offsets[Queue(broker, topic, int(number))] = offset
    return offsets
