"""Clients in a process that was forked off while they were open: they are the parent's.

Parent and child would write frames into the same sockets, go by the same client id, and what the
child gives back or leaves would be the parent's. The child has none of the threads that beat and
send, and a lock that one of them held stays locked. So every object made before a fork refuses all
use in the child, and closing it there does nothing; the parent notices none of that. The check
costs calls nothing: when a process forks, its child gives the objects another class.
"""

from __future__ import annotations

import inspect
import os
from contextlib import suppress
from functools import cache
from typing import Any
from weakref import WeakSet

from tubemq_client import errors

__all__ = ["watch"]

_MADE_HERE: WeakSet[Any] = WeakSet()
"""What this process made and still has."""


def watch(made: Any) -> None:
    """Have `made`, and its reads and futures that are `_under_way`, refuse use in processes that
    are forked off from now on. Their copy of its `socket`, if it has one, is closed without a word
    to the peer."""
    _MADE_HERE.add(made)


def _disown() -> None:
    sockets = []
    for made in list(_MADE_HERE):
        parts = vars(made)
        if parts.get("socket") is not None:
            sockets.append(parts["socket"])
        for part in (*parts.get("_under_way", ()), made):
            if not _is_done(part):
                kind: Any = type(part)
                part.__class__ = _disowned(kind)
    _MADE_HERE.clear()
    with suppress(OSError):  # no file may be opened any more: the copies stay, unused
        _put_away(sockets)


def _is_done(part: Any) -> bool:
    """Whether it is a future with an outcome. Its own `done` takes a lock that may stay taken."""
    return getattr(part, "_state", None) in ("FINISHED", "CANCELLED", "CANCELLED_AND_NOTIFIED")


def _put_away(sockets: list[Any]) -> None:
    """Put nothing in their place, under the numbers that their owners close in their own time."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for sock in sockets:
        if (number := sock.fileno()) >= 0:
            os.dup2(nothing, number)
    os.close(nothing)


def _refuse(made: Any, name: str) -> Any:
    if name.startswith("__") or name in _ENDINGS:
        return object.__getattribute__(made, name)
    raise errors.ClosedError(
        f"this client was made before process {os.getpid()} was forked off, and is the parent's, "
        "with connections and identity: make one in each process"
    )


def _nothing(*_: object) -> None:
    """There is nothing to end here."""


async def _nothing_awaited(*_: object) -> None:
    """The same, where an ending is awaited."""


_ENDINGS = ("_release", "abandon", "close", "forget", "stop")
"""What ends objects, which also happens to those that nobody uses any more."""


@cache
def _disowned(kind: type) -> type:
    """A class like `kind` that refuses everything but its end."""
    words: dict[str, Any] = {"__module__": kind.__module__, "__getattribute__": _refuse}
    words["__repr__"] = lambda _: f"<{kind.__name__} of the parent process>"
    for name in _ENDINGS:
        awaited = inspect.iscoroutinefunction(getattr(kind, name, None))
        words[name] = _nothing_awaited if awaited else _nothing
    return type(kind.__name__, (kind,), words)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
