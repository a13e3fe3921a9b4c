"""Fork safety: client objects that were open when the process forked belong to the parent.

Parent and child would write frames into the same sockets and use the same client id, and
registrations that the child gives back would be the parent's. The child has none of the threads
that send heartbeats and records, and a lock that one of them held stays locked. So every object
made before a fork refuses all use in the child, and closing it there does nothing; the parent does
not notice. The check costs calls nothing: when a process forks, the child replaces the objects'
classes.
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
"""Objects that were created in this process and still exist."""


def watch(made: Any) -> None:
    """Make `made`, with its reads and futures `_under_way`, refuse use in children forked later.

    A child closes its copy of the object's `socket`, if any, without notice to the peer.
    """
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
    with suppress(OSError):  # out of file descriptors: the copies stay, unused
        _replace_sockets(sockets)


def _is_done(part: Any) -> bool:
    """Return whether `part` is a future with an outcome.

    `done` would take a lock that may be held.
    """
    return getattr(part, "_state", None) in ("FINISHED", "CANCELLED", "CANCELLED_AND_NOTIFIED")


def _replace_sockets(sockets: list[Any]) -> None:
    """Replace inherited sockets by /dev/null under the same descriptor."""
    null_fd = os.open(os.devnull, os.O_RDWR)
    for sock in sockets:
        if (number := sock.fileno()) >= 0:
            os.dup2(null_fd, number)
    os.close(null_fd)


def _refuse(made: Any, name: str) -> Any:
    if name.startswith("__") or name in _ENDINGS:
        return object.__getattribute__(made, name)
    raise errors.ClosedError(
        f"this client was made before process {os.getpid()} was forked off, and is the parent's, "
        "with connections and identity: make one in each process"
    )


def _nothing(*_: object) -> None:
    """Do nothing: there is nothing to end in the child."""


async def _nothing_awaited(*_: object) -> None:
    """Do nothing, where the method is awaited."""


_ENDINGS = ("_release", "abandon", "close", "forget", "stop")
"""Names of methods that end objects, and are also called for unused ones."""


@cache
def _disowned(kind: type) -> type:
    """Return a subclass of `kind` that refuses everything but its end."""
    words: dict[str, Any] = {"__module__": kind.__module__, "__getattribute__": _refuse}
    words["__repr__"] = lambda _: f"<{kind.__name__} of the parent process>"
    for name in _ENDINGS:
        awaited = inspect.iscoroutinefunction(getattr(kind, name, None))
        words[name] = _nothing_awaited if awaited else _nothing
    return type(kind.__name__, (kind,), words)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
