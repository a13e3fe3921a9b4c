"""Ends of logs for the page, asked of brokers in threads of their own and kept for some seconds.

A request never waits for a broker: it takes what is known, and starts a question where that is
old. Threads are few, and a question that finds them all busy is not asked; the browser comes again.
A cluster that does not answer is left alone for a while, so that it holds no thread for long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tubemq_client.errors import GroupInconsistent, NetworkError
from tubemq_provider.windows.spaces import Ends

__all__ = ["Answer", "LagDesk", "UnknownCluster"]

log = logging.getLogger(__name__)

_KEPT: Final = 2_000


class UnknownCluster(Exception):
    """No connection to a cluster is known here; the text is for people."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a topic's ends: ``asking`` (nothing yet), ``known``, or ``unreachable`` with
    a `note` for people, `of_cluster` where that holds for all its topics. `at` is a moment of the
    desk's clock, in seconds."""

    state: str
    at: float
    ends: Mapping[Any, Ends] = field(default_factory=dict)
    note: str = ""
    of_cluster: bool = False


@dataclass
class LagDesk:
    """Questions under way, and answers.

    - `most`: so many questions are under way at once.
    - `fresh_s`: an answer is given again for so long; `trouble_s`: the same for a cluster that
      cannot be reached, which is then the answer to every question to it.
    - `stale_s`: an answer that is older is no answer any more, also while it is asked anew:
      positions have moved on, and old ends would make their lag nothing.
    - `patience_s`: a question that takes longer is told as a failure; its thread ends by itself,
      as the clients' own requests are bounded.
    """

    most: int = 4
    fresh_s: float = 10.0
    trouble_s: float = 30.0
    stale_s: float = 60.0
    patience_s: float = 15.0
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asking: dict[Hashable, float] = field(default_factory=dict)
    _known: dict[Hashable, Answer] = field(default_factory=dict)
    _troubles: dict[Hashable, Answer] = field(default_factory=dict)

    def look(
        self, key: Hashable, cluster: Hashable, ask: Callable[[], Mapping[Any, Ends]]
    ) -> Answer:
        """What is known under `key` of a topic of `cluster`; never blocks. `ask` is called in a
        thread, if what is known is old and a thread is free."""
        now = self.clock()
        with self._lock:
            known = self._known.get(key)
            if known is not None and now - known.at < self.fresh_s:
                return known
            if known is not None and now - known.at >= self.stale_s:
                known = None
            trouble = self._troubles.get(cluster)
            if trouble is not None and now - trouble.at < self.trouble_s:
                return trouble
            since = self._asking.get(key)
            begins = since is None and len(self._asking) < self.most
            if begins:
                self._asking[key] = now
        if begins:
            try:
                self._start(lambda: self._ask(key, cluster, ask))
            except RuntimeError as exc:  # the machine has no thread left: asked again later
                log.warning("the page asked for no ends: %s", exc)
                with self._lock:
                    self._asking.pop(key, None)
        elif since is not None and now - since > self.patience_s:
            return Answer("unreachable", now, note=_slow(now - since))
        return known or Answer("asking", now)

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="tubemq-page-lag", daemon=True).start()

    def _ask(self, key: Hashable, cluster: Hashable, ask: Callable[[], Mapping[Any, Ends]]) -> None:
        answer = _answered(ask, self.clock)
        with self._lock:
            self._asking.pop(key, None)
            if answer.state == "asking":
                return
            if answer.of_cluster:
                self._troubles[cluster] = answer
                return
            self._troubles.pop(cluster, None)
            self._known.pop(key, None)
            self._known[key] = answer
            while len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]


def _answered(ask: Callable[[], Mapping[Any, Ends]], clock: Callable[[], float]) -> Answer:
    """The ends, or a failure in words that name no address: the reader of the page may have no
    right to the connection. The log has them."""
    try:
        return Answer("known", clock(), ask())
    except UnknownCluster as exc:
        return Answer("unreachable", clock(), note=str(exc), of_cluster=True)
    except GroupInconsistent:
        # Another look-up has the connection's default group right now: the browser asks again.
        return Answer("asking", clock())
    except Exception as exc:  # noqa: BLE001 - whatever it is, the rest of the page stands
        log.warning("the page asked for ends in vain: %s", exc)
        note = f"The cluster did not say how far the topic reaches ({type(exc).__name__})."
        return Answer("unreachable", clock(), note=note, of_cluster=isinstance(exc, NetworkError))


def _slow(seconds: float) -> str:
    return f"The cluster has not answered for {seconds:.0f} s."
