"""Conversations that run at the same time, each waiting for its own replies.

A connection carries any number of requests, so hundreds of short conversations cost a few round
trips together instead of some for each. `together` runs them to their results; `Lane` is one of
them, for callers that also take what it delivers (`ahead`). All of it is itself a conversation: any
driver can run it, on one thread or task.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tubemq_client import errors
from tubemq_client._core.effects import Await, Call, Deliver, Now, Post, Sleep, advance

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tubemq_client._core.effects import Conversation

__all__ = ["WIDTH", "Lane", "run_one", "together"]

T = TypeVar("T")
LaneT = TypeVar("LaneT", bound="Lane[Any]")

WIDTH = 32
"""Conversations at a time: enough to hide a round trip, few enough for a broker's queue."""


_TURNS = count(1)


class Lane(Generic[T]):
    """One conversation, run up to its next wait by `go_on`.

    `delivered` has the values that it delivered. Once `over`, `result` or `error` is set.
    While it sleeps, `until` is the time when it wakes; `turn` is its place in the line for replies.
    """

    def __init__(self, conversation: Conversation[T]) -> None:
        self._conversation = conversation
        self.delivered: deque[Any] = deque()
        self.over = False
        self.result: T | None = None
        self.error: BaseException | None = None
        self.until: int | None = None
        self.turn = 0
        self._await: Await | None = None

    def go_on(self) -> Conversation[None]:
        """Wait for what the conversation waits for, then run it up to its next wait."""
        answer, failure = yield from self._waited()
        while True:
            try:
                effect = advance(self._conversation, answer, failure)
            except StopIteration as stop:
                self.over, self.result = True, stop.value
                return
            except Exception as error:  # noqa: BLE001 - raised when its result is taken
                self.over, self.error = True, error
                return
            answer = failure = None
            if isinstance(effect, Deliver):
                self.delivered.append(effect.value)
                return
            if isinstance(effect, Sleep):
                self.until = (yield Now()) + effect.ms
                return
            try:
                if isinstance(effect, Call):
                    effect = Await((yield Post(effect.address, effect.method, effect.request)))
                if isinstance(effect, Await):
                    self._await, self.turn = effect, next(_TURNS)
                    return
                answer = yield effect
            except errors.TubeMQError as error:
                failure = error

    def _waited(self) -> Conversation[tuple[Any, errors.TubeMQError | None]]:
        """Return the reply that the conversation waits for, or its failure; sleep to the end."""
        if self._await is not None:
            waiting, self._await = self._await, None
            try:
                return (yield waiting), None
            except errors.TubeMQError as error:
                return None, error
        if self.until is not None:
            pause, self.until = self.until - (yield Now()), None
            if pause > 0:
                yield Sleep(pause)
        return None, None

    @property
    def is_ready(self) -> bool:
        """True if it need not wait to continue."""
        return self._await is None and self.until is None

    def close(self) -> None:
        """End the conversation where it is."""
        self._conversation.close()
        self.over = True


def run_one(lanes: Collection[LaneT]) -> Conversation[LaneT | None]:
    """Continue with one of `lanes` and return it; None if all are over.

    The first that has slept long enough, or need not wait, or is in line for a reply; else the one
    that wakes first.
    """
    going = [lane for lane in lanes if not lane.over]
    if not going:
        return None
    asleep = sorted((lane for lane in going if lane.until is not None), key=_wakes_at)
    awake = [lane for lane in going if lane.until is None]
    if asleep and (not awake or _wakes_at(asleep[0]) <= (yield Now())):
        chosen = asleep[0]
    else:
        chosen = min(awake, key=_place)
    yield from chosen.go_on()
    return chosen


def _place(lane: Lane[Any]) -> int:
    return 0 if lane.is_ready else lane.turn


def _wakes_at(lane: Lane[Any]) -> int:
    return lane.until or 0


def together(conversations: Iterable[Conversation[T]], width: int = WIDTH) -> Conversation[list[T]]:
    """Run conversations, `width` at a time, and return their results in order.

    They deliver nothing. After a failure none is begun any more, those under way end, and the first
    failure is raised.
    """
    rest = iter(conversations)
    lanes: list[Lane[T]] = []
    line: deque[Lane[T]] = deque()
    while True:
        while len(line) < width and not any(lane.error for lane in lanes):
            if (conversation := next(rest, None)) is None:
                break
            lanes.append(lane := Lane(conversation))
            line.append(lane)
            yield from lane.go_on()
            if lane.over:
                line.pop()
        if (lane_run := (yield from run_one(line))) is None:
            break
        line.remove(lane_run)
        if not lane_run.over:
            line.append(lane_run)
    for lane in lanes:
        if lane.error is not None:
            raise lane.error
    return [cast("T", lane.result) for lane in lanes]
