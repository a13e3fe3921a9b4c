"""State of a connection besides its socket: host, counters, and the failure that ended it.

Base of `blocking.BlockingConnection` and `asyncio_connection.AsyncConnection`. Nothing here sends,
receives or waits; `ConnectionCounters` is kept for each address and outlives connections.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tubemq_client import errors
from tubemq_client._core.connections import ConnectionRules
from tubemq_client._io.forks import watch
from tubemq_client._io.host import epoch_ms
from tubemq_client._io.tls import is_tls_error, no_answer, refused_later
from tubemq_client.model import ConnectionStats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tubemq_client._io.codec import Decoder

__all__ = ["ConnectionCounters", "DeferredFrames", "Exchange"]

_SERIAL_MASK = 0x7FFFFFFF


@dataclass(slots=True)
class ConnectionCounters:
    """Counts of all connections to one address; see `ConnectionStats`.

    Each direction is counted by the one thread or task that uses it; only while a connection is
    being replaced there may be two of those, and a count may be lost.
    """

    opened: int = 0
    requests: int = 0
    replies: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    received_at: float | None = None
    """Time of the last received data, seconds of the monotonic clock."""

    def view(self, *, is_open: bool, in_flight: int) -> ConnectionStats:
        """Return the counts of now."""
        at = self.received_at
        ago_s = None if at is None else time.monotonic() - at
        return ConnectionStats(
            is_open,
            in_flight,
            self.opened,
            self.requests,
            self.replies,
            self.bytes_sent,
            self.bytes_received,
            None if ago_s is None else epoch_ms() - round(ago_s * 1000),
        )


class DeferredFrames:
    """Frames held back to be sent with others.

    A connection that shares it between threads has a lock.
    """

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self.size = 0

    def add(self, frames: bytes) -> None:
        self._frames.append(frames)
        self.size += len(frames)

    def take(self) -> bytes:
        """Return all frames, concatenated, and clear."""
        frames, self._frames, self.size = b"".join(self._frames), [], 0
        return frames


class Exchange:
    """Requests and replies with one server. Times are seconds of the driver's monotonic clock.

    `host` is the IP address of the peer, `socket` the socket. `retired`: the connection must not be
    used for new requests, because it answers nothing or leads to the wrong host; requests in flight
    may still be answered.
    """

    def __init__(self, name: str, decoder: Decoder, now: float) -> None:
        self.name = name
        self.traffic = ConnectionCounters()
        self._decoder = decoder
        self._serials = itertools.count(1)
        self._failure: errors.TubeMQError | None = None
        self._heard = self._secured = False
        self.host, self.patience_s = "", float("inf")
        self.retired = False
        self.socket: Any = None
        watch(self)
        self.used_at = self.received_at = now

    def __repr__(self) -> str:
        state = "failed" if self._failure else "open"
        return f"<{type(self).__name__} {self.name} {state}, {self.in_flight} in flight>"

    @property
    def usable(self) -> bool:
        return self._failure is None

    @property
    def good(self) -> bool:
        """True if it may be used for new requests."""
        return self._failure is None and not self.retired

    @property
    def in_flight(self) -> int:
        """Number of requests whose reply was neither taken nor given up."""
        raise NotImplementedError

    def _count_sent(self, frames: int, size: int) -> None:
        self.traffic.requests += frames
        self.traffic.bytes_sent += size

    def _next_serial(self) -> int:
        return next(self._serials) & _SERIAL_MASK

    def _next_serials(self, count: int) -> Sequence[int]:
        return [serial & _SERIAL_MASK for serial in itertools.islice(self._serials, count)]

    def _frames(self, data: Any, now: float) -> tuple[list[Any], errors.ProtocolViolation | None]:
        """Return the frames that `data` completes, and a protocol violation after them or None."""
        frames: list[Any] = []
        self._heard = True
        self.used_at = self.received_at = now
        traffic = self.traffic
        traffic.bytes_received += len(data)
        traffic.received_at = now
        decoder = self._decoder
        try:
            decoder.receive_data(data)
            while (frame := decoder.next_frame()) is not None:
                frames.append(frame)
        except errors.ProtocolViolation as error:
            violation = errors.ProtocolViolation(f"{self.name}: {error}")
            violation.__cause__ = error
            return frames, violation
        finally:
            traffic.replies += len(frames)
        return frames, None

    def _judge(self, deadline: float) -> None:
        """Retire the connection if nothing was received while a request timed out at `deadline`."""
        if ConnectionRules.is_unresponsive(self.received_at, deadline, self.patience_s):
            self.retired = True

    def _timed_out(self) -> errors.RpcTimeout:
        return errors.RpcTimeout(f"{self.name}: no answer within the deadline")

    def _lost(self, why: str, error: BaseException | None) -> errors.NetworkError:
        if is_tls_error(error):
            return refused_later(self.name, error)
        hint = "" if self._heard else no_answer(secured=self._secured)
        return errors.ConnectionLost(f"{self.name}: {why}{hint}")

    def _note_failure(self, failure: errors.TubeMQError, cause: BaseException | None) -> None:
        """Keep the first failure: all callers get that one."""
        if self._failure is None:
            self._failure = failure
            self._failure.__cause__ = cause

    def _own_failure(self) -> errors.TubeMQError:
        """Return a copy of the failure: tracebacks of callers must not pile up on one object."""
        assert self._failure is not None, "the connection has ended"
        copy = type(self._failure)(*self._failure.args)
        copy.__cause__ = self._failure.__cause__
        return copy

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._own_failure()
