"""Synchronisation of one client's threads: serialised conversations, a notifier, routines.

`asyncio_sync` is the counterpart for tasks, which need no serialisation: between
two awaits a task runs alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from tubemq_client import errors
from tubemq_client._core.effects import advance

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client._io.routines import Routine, Step

__all__ = ["Notifier", "play", "serialized"]

T = TypeVar("T")


class Notifier:
    """Condition that wakes all waiters.

    Read `count` before checking whether to wait: `wait` then notices a call of `notify` in between.
    """

    def __init__(self) -> None:
        self.count = 0
        self._condition = threading.Condition()

    def notify(self) -> None:
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def wait(self, seen: int, timeout_s: float | None) -> None:
        """Return when `notify` was called since `count` was `seen`, or after the timeout."""
        with self._condition:
            self._condition.wait_for(lambda: self.count != seen, timeout_s)


def play(routine: Routine[T], take: Callable[[Step], Any]) -> T:
    """Return the result of `routine`, whose steps are performed by `take`."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = routine.send(answer) if failure is None else routine.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            answer = failure = None  # its traceback has this frame: that would be a reference cycle
        try:
            answer = take(step)
        except BaseException as error:  # noqa: BLE001 - raised in the routine
            failure = error


def serialized(conversation: Conversation[T], lock: AbstractContextManager[Any]) -> Conversation[T]:
    """Run `conversation` under `lock` while it decides, but never while it waits for an effect."""
    answer: Any = None
    failure: errors.TubeMQError | None = None
    try:
        while True:
            with lock:
                try:
                    effect = advance(conversation, answer, failure)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
            answer = failure = None
            try:
                answer = yield effect
            except errors.TubeMQError as error:
                failure = error
    finally:
        with lock:
            conversation.close()
