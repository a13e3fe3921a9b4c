"""Routines of a client that both APIs perform: written once, as generators of steps.

A conversation (`_core.effects`) is one exchange with servers; a routine is the loop of a client
around conversations: receive until there is a batch, call a handler, send heartbeats until closed.
It yields steps, and each API performs them: a thread blocks where a task awaits. An exception of a
step is raised at its `yield`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation

__all__ = ["Apply", "Do", "Finish", "Routine", "Step", "Wait"]

T = TypeVar("T")


class Do(NamedTuple):
    """Run a conversation; the answer is its result.

    `to_end`: its requests in flight are awaited even if the caller is cancelled, and a result that
    is too late goes to `put_back`.
    """

    conversation: Conversation[Any]
    put_back: Callable[[Any], object] | None = None
    to_end: bool = True


class Finish(NamedTuple):
    """Run a final conversation, even if the caller is cancelled."""

    conversation: Conversation[Any]


class Wait(NamedTuple):
    """Wait until `notifier` has rung since its count was `seen`, or until the timeout.

    None: no timeout.
    """

    notifier: Any
    seen: int
    timeout_s: float | None


class Apply(NamedTuple):
    """Call a function of the user; the answer is its result."""

    function: Callable[[Any], object]
    argument: object


Step = Do | Finish | Wait | Apply
Routine = Generator[Step, Any, T]
