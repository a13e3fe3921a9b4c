"""Ends of logs for the page, fetched from brokers in separate threads and cached for seconds.

A request never waits for a broker: it uses the cached answer, and starts a query if that is old.
Threads are few; if all are busy no query starts, and the browser asks again. A cluster that does
not answer is left alone for a while, so that it blocks no thread for long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tubemq_client.errors import GroupInconsistent, NetworkError
from tubemq_provider.windows.spaces import Ends

log = logging.getLogger(__name__)

_KEPT: Final = 2_000


class UnknownCluster(Exception):
    """No connection to a cluster is known; the text is shown to users."""


class Unreachable(NetworkError):
    """Failure of all connections with one alias, no server of which answers; users see the ids."""

    def __init__(self, conn_ids: Sequence[str]) -> None:
        names = ", ".join(map(repr, conn_ids))
        super().__init__(f"No server answers on any connection of this cluster: {names}.")


@dataclass(frozen=True, slots=True)
class Answer:
    """Cached answer about a topic's ends.

    `state` is ``asking`` (nothing yet), ``known``, or ``unreachable`` with a `note` for users, and
    `of_cluster` if that holds for all topics of the cluster. `at` is a time of the clock of
    `LagRequests`, in seconds.
    """

    state: str
    at: float
    ends: Mapping[Any, Ends] = field(default_factory=dict)
    note: str = ""
    of_cluster: bool = False


@dataclass
class LagRequests:
    """Running queries, and cached answers.

    - `most`: limit of concurrent queries.
    - `fresh_s`: seconds for which an answer is reused; `trouble_s`: the same for an unreachable
      cluster, for which every query gets that answer.
    - `stale_s`: seconds after which an answer is dropped, also while a new query runs: positions
      have advanced, and with old ends their lag would be zero.
    - `patience_s`: seconds after which a query is shown as failed; its thread ends by itself, as
      the clients' own requests have deadlines.
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
    _failures: dict[Hashable, Answer] = field(default_factory=dict)

    def look(
        self, key: Hashable, cluster: Hashable, ask: Callable[[], Mapping[Any, Ends]]
    ) -> Answer:
        """Return the cached answer under `key` for a topic of `cluster`; never blocks.

        `ask` is called in a thread, if the answer is old and a thread is free.
        """
        now = self.clock()
        with self._lock:
            cached = self._known.get(key)
            if cached is not None and now - cached.at < self.fresh_s:
                return cached
            if cached is not None and now - cached.at >= self.stale_s:
                cached = None
            failure = self._failures.get(cluster)
            if failure is not None and now - failure.at < self.trouble_s:
                return failure
            since = self._asking.get(key)
            starts = since is None and len(self._asking) < self.most
            if starts:
                self._asking[key] = now
        if starts:
            try:
                self._start(lambda: self._ask(key, cluster, ask))
            except RuntimeError as exc:  # no thread available: the next request tries again
                log.warning("the page could not query ends: %s", exc)
                with self._lock:
                    self._asking.pop(key, None)
        elif since is not None and now - since > self.patience_s:
            return Answer("unreachable", now, note=_slow(now - since))
        return cached or Answer("asking", now)

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="tubemq-page-lag", daemon=True).start()

    def _ask(self, key: Hashable, cluster: Hashable, ask: Callable[[], Mapping[Any, Ends]]) -> None:
        answer = _answered(ask, self.clock)
        with self._lock:
            self._asking.pop(key, None)
            if answer.state == "asking":
                return
            if answer.of_cluster:
                self._failures[cluster] = answer
                return
            self._failures.pop(cluster, None)
            self._known.pop(key, None)
            self._known[key] = answer
            while len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]


def _answered(ask: Callable[[], Mapping[Any, Ends]], clock: Callable[[], float]) -> Answer:
    """Return the ends, or a failure in words without an address.

    The user of the page may have no right to the connection. The log has the error.
    """
    try:
        return Answer("known", clock(), ask())
    except (UnknownCluster, Unreachable) as exc:
        return Answer("unreachable", clock(), note=str(exc), of_cluster=True)
    except GroupInconsistent:
        # Another look-up uses the connection's default group right now: the browser asks again.
        return Answer("asking", clock())
    except Exception as exc:  # noqa: BLE001 - the rest of the page is still shown
        log.warning("the page's query of ends failed: %s", exc)
        note = f"The cluster did not say how far the topic reaches ({type(exc).__name__})."
        return Answer("unreachable", clock(), note=note, of_cluster=isinstance(exc, NetworkError))


def _slow(seconds: float) -> str:
    return f"The cluster has not answered for {seconds:.0f} s."
