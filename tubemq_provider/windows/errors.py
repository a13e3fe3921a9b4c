"""Errors of window runs, stores and sinks; each message ends with advice.

Lost data and truncated logs raise the client's `DataLoss` and `LogTruncated`, so that callers catch
one class whether planning or reading finds the loss. This module must not import anything but the
client's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tubemq_client.errors import ProtocolViolation, TubeMQError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "BoundaryConflict",
    "ChangeOrderUnclear",
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
    "TableAltered",
    "WindowError",
    "WindowNotReady",
    "is_final",
]


class WindowError(TubeMQError):
    """Base class of errors that `windows`, `offsets` and `sinks` raise on purpose."""


class DocumentError(WindowError, ValueError):
    """A stored document (plan, cursor, marker, event) is invalid. `problems` lists everything."""

    fatal = True

    def __init__(self, subject: str, problems: list[str]) -> None:
        self.subject = subject
        self.problems = list(problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"invalid {subject}:{lines}")


class ChangeOrderUnclear(WindowError):
    """Nothing says which of several changes of a key is the last, or of which key a change is."""

    fatal = True


class TableAltered(WindowError):
    """A change stream has DDL, or empties its table, and nobody has said what is to happen."""

    fatal = True


class NoInitialPosition(WindowError):
    """The group has no progress anywhere and no `initial_position` was given."""

    fatal = True


class IdentityMismatch(WindowError):
    """Stored progress belongs to another cluster, topic, group, filter set, epoch or sink."""

    fatal = True


class OtherScopeFound(WindowError):
    """The sink has windows of the same topic and group under another scope, and none of this one.

    `scope` (a `WindowScope`) is the one that would begin, `found` (a `WindowPlan`) the plan of a
    window of the other."""

    fatal = True

    def __init__(self, message: str, scope: Any, found: Any) -> None:
        self.scope = scope
        self.found = found
        super().__init__(message)


class BoundaryConflict(WindowError):
    """Offsets given for an instant contradict fixed boundaries at or next to it, or a window would
    overlap a published one. Nothing was fixed, read or written. `problems` lists the conflicts."""

    fatal = True

    def __init__(self, subject: str, problems: Sequence[str], hints: Sequence[str]) -> None:
        self.problems = list(problems)
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"{subject}:{lines}\n" + "\n".join(hints))


class IntervalMissing(WindowError):
    """An interval between the window and its nearest published neighbour is in no published window.
    Nothing was published. A retry succeeds once another run has published that interval."""

    retriable = True


class MarkerConflict(WindowError):
    """The sink has this window with ranges that do not begin at the same position."""

    fatal = True


class SinkHistoryLost(WindowError):
    """The sink has lost the marker of a window that counts as published: writing it again could
    store records twice."""

    fatal = True


class SinkDamaged(WindowError):
    """The sink has something under a window's name that is not a published window."""

    fatal = True


class CountMismatch(WindowError):
    """Staged records, the engine's counts and the plan do not agree. Nothing was made visible; a
    retry ingests again."""

    retriable = True


class DatabaseError(WindowError):
    """A database refused, failed or did not answer. A retry first checks whether the window is
    published. The text has the database's code and column names, but no values and no user name."""

    retriable = True


class StoreConflict(WindowError):
    """Another writer has changed the progress since it was read; this write changed nothing. A
    retry reads it again."""

    retriable = True


class WindowNotReady(WindowError):
    """The window ends beyond the stable end of a log; try again later."""

    retriable = True


def is_final(error: TubeMQError) -> bool:
    """Return True if no retry of a window can succeed until a user changes something.

    A `ProtocolViolation` is final here: the server does not speak TubeMQ.
    """
    return error.fatal or isinstance(error, ProtocolViolation)
