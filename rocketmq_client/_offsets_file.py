"""The file in which a broadcasting member keeps its offsets.

One process has it at a time; it is replaced as a whole, so a crash leaves the old or the new one.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rocketmq_client import errors

__all__ = ["OffsetsFile"]


class OffsetsFile:
    """File of offsets at `path`, locked by a file beside it until `close`."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._lock: BinaryIO | None = None

    def read(self) -> bytes:
        """Lock the file and return its content, empty for a new one. Raises
        `errors.ConfigError`."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = self._path.with_name(self._path.name + ".lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                return self._path.read_bytes()
        except OSError as error:
            self.close()
            why = "another consumer has it" if isinstance(error, BlockingIOError) else str(error)
            raise errors.ConfigError(f"{self._path}: {why}", subject="offsets_file") from error
        return b""

    def write(self, content: bytes) -> None:
        """Replace the file; it is on disk afterwards. Raises `OSError`."""
        fresh = self._path.with_name(self._path.name + ".new")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)

    def close(self) -> None:
        """Let other processes have the file. Safe to call twice."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
