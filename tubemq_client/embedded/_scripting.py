"""Telling a server what to answer next: the part that a broker's handle and the whole server share.

Like every call of a handle it runs on the server's own thread. What has been ordered is kept in
`scripted_replies`; this module keeps nothing.
"""

from __future__ import annotations

from tubemq_client.embedded.checks import Refused, RpcFault
from tubemq_client.embedded.loop_thread import LoopThread
from tubemq_client.embedded.scripted_replies import ScriptedReplies

__all__ = ["ScriptableReplies"]


class ScriptableReplies:
    """A server of RPCs, told what to answer next."""

    _thread: LoopThread

    @property
    def _scripted(self) -> ScriptedReplies:
        """Where orders are kept; asked on the server's thread."""
        raise NotImplementedError

    def refuse(self, method_id: int, code: int, text: str = "", *, times: int = 1) -> None:
        """Answer the next calls of a method with this code and text; ``times=0`` ends it."""
        answer = Refused(code, text)
        self._thread.do(lambda: self._scripted.order(method_id, answer, times))

    def fail(
        self,
        method_id: int,
        exception: str,
        detail: str = "",
        *,
        fatal: bool = False,
        times: int = 1,
    ) -> None:
        """Answer the next calls of a method with an RPC exception of this Java class."""
        answer = RpcFault(exception, detail, fatal=fatal)
        self._thread.do(lambda: self._scripted.order(method_id, answer, times))
