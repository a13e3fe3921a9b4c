"""Replies that a test scripts in advance: a code, or an exception, instead of the usual reply.

Pure state, one for the master and one for each broker. A scripted reply is for one method and a
number of calls; a call that gets one has no effect on the server.
"""

from __future__ import annotations

from typing import NamedTuple

from tubemq_client.embedded.checks import Refused, RpcFault

__all__ = ["ScriptedPages", "ScriptedReplies", "WebAnswer"]


class ScriptedReplies:
    """Scripted replies by method id. The last one set for a method holds."""

    def __init__(self) -> None:
        self._orders: dict[int, tuple[Exception, int]] = {}

    def order(self, method_id: int, answer: Refused | RpcFault, times: int) -> None:
        """Answer the next `times` calls of a method with `answer`; 0 turns it off."""
        if times > 0:
            self._orders[method_id] = (answer, times)
        else:
            self._orders.pop(method_id, None)

    def check(self, method_id: int) -> None:
        """Raise the scripted reply to this call, if there is one."""
        if method_id not in self._orders:
            return
        answer, times = self._orders.pop(method_id)
        self.order(method_id, _same(answer), times - 1)
        raise answer


class WebAnswer(NamedTuple):
    """Scripted answer to an HTTP request."""

    status: int
    body: str
    headers: dict[str, str]


class ScriptedPages:
    """Scripted HTTP answers to the next requests, of any kind."""

    def __init__(self) -> None:
        self._answer: WebAnswer | None = None
        self._left = 0

    def order(self, answer: WebAnswer, times: int) -> None:
        """Give the next `times` requests this answer; 0 turns it off."""
        self._answer, self._left = answer, times

    def take(self) -> WebAnswer | None:
        """Return the scripted answer to this request, None for the usual one."""
        if self._left <= 0:
            return None
        self._left -= 1
        return self._answer


def _same(answer: Exception) -> Refused | RpcFault:
    """Return a fresh copy, because a raised exception keeps its traceback."""
    if isinstance(answer, Refused):
        return Refused(answer.code, answer.text)
    assert isinstance(answer, RpcFault), "nothing else can be ordered"
    return RpcFault(answer.name, answer.detail, fatal=answer.fatal)
