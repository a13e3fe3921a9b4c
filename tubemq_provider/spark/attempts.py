"""Names that are unique per task attempt, and the quarantine of an attempt.

Spark may retry a task, or run it twice at once. No attempt overwrites files of another, and only
files whose names reach the driver are ever used.
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


def attempt_name() -> str:
    """Return a name that no other attempt of this task has, in any application: Spark's attempt id
    and a random part, because ids start again in every application."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.taskAttemptId() if context is not None else os.getpid()
    return f"{number}-{uuid4().hex[:8]}"


def quarantine_name(attempt: str, split: Split) -> str:
    """Return the name of an attempt's quarantine file for a split, in the place of its files."""
    return f"{CORRUPT}/part-{attempt}-{split.index}{CORRUPT_SUFFIX}"


@dataclass(frozen=True, slots=True)
class QuarantineLocation:
    """Place of quarantine files: a shared directory that exists, or a prefix of an object store,
    with the options that open it (`storage`)."""

    directory: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def location(self) -> Location:
        """Return the location to write to."""
        return location_at(self.directory, self.storage)
