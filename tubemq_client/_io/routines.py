"""Courses of a client that both shells take: written once, as generators of steps.

A conversation (`_core.effects`) is one exchange with servers; a routine is what a client does
around conversations: receive until there is something, call a handler, beat until it is closed. It
yields steps, and a shell takes each in its own way: a thread blocks where a task awaits. Whatever a
step raises is raised at its `yield`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation

__all__ = ["Apply", "Do", "Finish", "Routine", "Step", "Wait"]

T = TypeVar("T")


class Do(NamedTuple):
    """Run a conversation; the answer is its result. `to_end`: what it has on the wire is waited for
    even if the caller is cancelled, and a result that comes too late goes to `put_back`."""

    conversation: Conversation[Any]
    put_back: Callable[[Any], object] | None = None
    to_end: bool = True


class Finish(NamedTuple):
    """Run what must be said last, even if the caller is cancelled."""

    conversation: Conversation[Any]


class Wait(NamedTuple):
    """Until `bell` has rung since its count was `seen`, at most so long; None: for ever."""

    bell: Any
    seen: int
    timeout_s: float | None


class Apply(NamedTuple):
    """Call what the user gave; the answer is what it returns."""

    function: Callable[[Any], object]
    argument: object


Step = Do | Finish | Wait | Apply
Routine = Generator[Step, Any, T]
