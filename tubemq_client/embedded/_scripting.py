"""Script the next replies of a server: the part shared by a broker's handle and the whole server.

Like every call of a handle it runs on the server's own thread. Scripted replies are kept in
`scripted_replies`; this module has no state.
"""

from __future__ import annotations

from tubemq_client.embedded.checks import Refused, RpcFault
from tubemq_client.embedded.loop_thread import LoopThread
from tubemq_client.embedded.scripted_replies import ScriptedReplies

__all__ = ["ScriptableReplies"]


class ScriptableReplies:
    """A server of RPCs whose next replies can be scripted."""

    _thread: LoopThread

    @property
    def _scripted(self) -> ScriptedReplies:
        """Scripted replies of the server; access them on the server's thread only."""
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
