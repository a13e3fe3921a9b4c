"""What an attempt of a task keeps to itself: a name that no other has, and records set aside.

Spark may run a task again, or twice at once. Nothing that an attempt writes stands where another
writes, and only what the driver is told of by name is ever used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from tubemq_provider.files.locations import Location, location_at
from tubemq_provider.files.quarantine import CORRUPT, CORRUPT_SUFFIX

if TYPE_CHECKING:
    from tubemq_provider.spark.splits import Split

__all__ = ["AsidePlace", "aside_name", "attempt_name"]


def attempt_name() -> str:
    """A name that no other try of this task has, in any application: Spark's number for it, and
    chance, because numbers begin again in every application."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.taskAttemptId() if context is not None else os.getpid()
    return f"{number}-{uuid4().hex[:8]}"


def aside_name(attempt: str, split: Split) -> str:
    """Where an attempt keeps the corrupt records of a split, in the place of its files."""
    return f"{CORRUPT}/part-{attempt}-{split.index}{CORRUPT_SUFFIX}"


@dataclass(frozen=True, slots=True)
class AsidePlace:
    """Where attempts keep corrupt records: a directory that exists and that all share, or a prefix
    of an object store, which `storage` opens."""

    directory: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def location(self) -> Location:
        """To write to."""
        return location_at(self.directory, self.storage)
