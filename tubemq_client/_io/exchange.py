"""What a connection of either shell is beside its socket: whom it reaches, what it counted, why it
ended.

Base of `blocking.BlockingConnection` and `asyncio_connection.AsyncConnection`. Nothing here sends,
receives or waits; `Traffic` is kept for each address and outlives connections.
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

__all__ = ["Exchange", "HeldBack", "Traffic"]

_SERIAL_MASK = 0x7FFFFFFF


@dataclass(slots=True)
class Traffic:
    """Counts of all connections to one address; see `ConnectionStats`. Each of its two directions
    is counted by the thread or task that has it to itself; only while a connection is being
    replaced there may be two of those, and a count may be lost then."""

    opened: int = 0
    requests: int = 0
    replies: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    received_at: float | None = None
    """Seconds of the monotonic clock."""

    def view(self, *, is_open: bool, in_flight: int) -> ConnectionStats:
        """The counts of now."""
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


class HeldBack:
    """Frames that may wait for more, to be sent in one piece. A connection that shares it
    between threads has a lock."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self.size = 0

    def add(self, frames: bytes) -> None:
        self._frames.append(frames)
        self.size += len(frames)

    def take(self) -> bytes:
        """All of them, end to end."""
        frames, self._frames, self.size = b"".join(self._frames), [], 0
        return frames


class Exchange:
    """Requests and replies with one server. Times are seconds of the shell's monotonic clock.

    `host` is the IP address it leads to, `socket` what it goes over. `retired`: it is not to be
    given out any more, because it answers nothing or leads to the wrong host; requests that are
    under way may still be answered.
    """

    def __init__(self, name: str, decoder: Decoder, now: float) -> None:
        self.name = name
        self.traffic = Traffic()
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
        """Whether it may be given out."""
        return self._failure is None and not self.retired

    @property
    def in_flight(self) -> int:
        """Requests whose reply nobody has taken or given up."""
        raise NotImplementedError

    def _count_sent(self, frames: int, size: int) -> None:
        self.traffic.requests += frames
        self.traffic.bytes_sent += size

    def _next_serial(self) -> int:
        return next(self._serials) & _SERIAL_MASK

    def _next_serials(self, count: int) -> Sequence[int]:
        return [serial & _SERIAL_MASK for serial in itertools.islice(self._serials, count)]

    def _frames(self, data: Any, now: float) -> tuple[list[Any], errors.ProtocolViolation | None]:
        """The frames that `data` completes, and what is wrong after them."""
        found: list[Any] = []
        self._heard = True
        self.used_at = self.received_at = now
        traffic = self.traffic
        traffic.bytes_received += len(data)
        traffic.received_at = now
        decoder = self._decoder
        try:
            decoder.receive_data(data)
            while (frame := decoder.next_frame()) is not None:
                found.append(frame)
        except errors.ProtocolViolation as error:
            violation = errors.ProtocolViolation(f"{self.name}: {error}")
            violation.__cause__ = error
            return found, violation
        finally:
            traffic.replies += len(found)
        return found, None

    def _judge(self, deadline: float) -> None:
        """A request had no answer until `deadline`: give the connection out no more if nothing else
        came either."""
        if ConnectionRules.is_mute(self.received_at, deadline, self.patience_s):
            self.retired = True

    def _timed_out(self) -> errors.RpcTimeout:
        return errors.RpcTimeout(f"{self.name}: no answer within the deadline")

    def _lost(self, why: str, error: BaseException | None) -> errors.NetworkError:
        if is_tls_error(error):
            return refused_later(self.name, error)
        hint = "" if self._heard else no_answer(secured=self._secured)
        return errors.ConnectionLost(f"{self.name}: {why}{hint}")

    def _note_failure(self, failure: errors.TubeMQError, cause: BaseException | None) -> None:
        """The first failure is the one that everybody hears of."""
        if self._failure is None:
            self._failure = failure
            self._failure.__cause__ = cause

    def _own_failure(self) -> errors.TubeMQError:
        """A copy for each caller that learns of it: tracebacks must not pile up on one object."""
        assert self._failure is not None, "it has ended"
        copy = type(self._failure)(*self._failure.args)
        copy.__cause__ = self._failure.__cause__
        return copy

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._own_failure()
