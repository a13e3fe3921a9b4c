"""What a window run refuses to do, and why; each message ends with what to change.

Lost data and truncated logs use the client's own `DataLoss` and `LogTruncated`, so that callers
catch one class whether the loss is seen at planning or while reading. This module must not import
anything but the client's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client.errors import ProtocolViolation, TubeMQError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "BoundaryConflict",
    "CountMismatch",
    "DatabaseError",
    "DocumentError",
    "IdentityMismatch",
    "IntervalMissing",
    "MarkerConflict",
    "NoInitialPosition",
    "OtherScopeFound",
    "SinkDamaged",
    "SinkHistoryLost",
    "StoreConflict",
    "WindowError",
    "WindowNotReady",
    "is_final",
]


class WindowError(TubeMQError):
    """Base of what `windows`, `offsets` and `sinks` raise on purpose."""


class DocumentError(WindowError, ValueError):
    """A stored document (plan, cursor, marker, event) is not valid. `problems` lists everything."""

    fatal = True

    def __init__(self, subject: str, problems: list[str]) -> None:
        self.subject = subject
        self.problems = list(problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"invalid {subject}:{lines}")


class NoInitialPosition(WindowError):
    """The group has no progress anywhere and no `initial_position` was given."""

    fatal = True


class IdentityMismatch(WindowError):
    """Stored progress belongs to another cluster, topic, group, filter set, epoch or sink."""

    fatal = True


class OtherScopeFound(WindowError):
    """A scope has no windows yet, and the sink has some of the same topic and group under another
    scope. `scope` (a `WindowScope`) is the one that would begin, `found` (a `WindowPlan`) is of a
    window of the other."""

    fatal = True

    def __init__(self, message: str, scope: Any, found: Any) -> None:
        self.scope = scope
        self.found = found
        super().__init__(message)


class BoundaryConflict(WindowError):
    """An instant is given offsets that contradict boundaries which are fixed, at it or beside it,
    or a window would overlap one that is there. Nothing was fixed, read or written. `problems`
    lists what contradicts."""

    fatal = True

    def __init__(self, subject: str, problems: Sequence[str], hints: Sequence[str]) -> None:
        self.problems = list(problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"{subject}:{lines}\n" + "\n".join(hints))


class IntervalMissing(WindowError):
    """Between the window and its nearest published neighbour lies time that no published window
    has. Nothing was published. A retry cures it if a run that is under way brings that window."""

    retriable = True


class MarkerConflict(WindowError):
    """The sink holds this window with other ranges that do not continue the same position."""

    fatal = True


class SinkHistoryLost(WindowError):
    """The window counts as published, but the sink no longer has its marker: writing it again
    could store records twice."""

    fatal = True


class SinkDamaged(WindowError):
    """The sink holds something under a window's name that is not a published window."""

    fatal = True


class CountMismatch(WindowError):
    """Records staged, records counted by the engine and the plan do not agree. Nothing was made
    visible; a retry ingests again."""

    retriable = True


class DatabaseError(WindowError):
    """A database refused, failed or did not answer; a retry looks first whether the window is
    there. The text has the database's code and names of columns, and neither values of records nor
    a user's name."""

    retriable = True


class StoreConflict(WindowError):
    """Another writer has changed this progress since it was read; this write changed nothing. Read
    it again and decide anew."""

    retriable = True


class WindowNotReady(WindowError):
    """The window's end lies beyond what the brokers have on disk; try again later."""

    retriable = True


def is_final(error: TubeMQError) -> bool:
    """Whether no other try of a window can succeed unless a person changes something.

    What speaks another protocol is final here: no retry makes a TubeMQ of it.
    """
    return error.fatal or isinstance(error, ProtocolViolation)
