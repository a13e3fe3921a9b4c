"""What arrived for requests, or went wrong: kept until it is taken, and told to conversations.

Nothing here waits: both drivers and connections do so in their own way.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from tubemq_client import errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tubemq_client._core.effects import Method
    from tubemq_client._io.codec import Codec

__all__ = ["LATE_GRACE_S", "Replies", "explained", "read_replies"]

LATE_GRACE_S = 0.05
"""A caller may come late for a reply that arrived in time (it was busy with the record before, say)
and of which not all could be taken yet. So much time there is after any deadline."""


class Replies:
    """Replies that came and were not taken yet, and which are waited for at all: others are
    dropped. A connection that shares it between threads has a lock."""

    def __init__(self) -> None:
        self._wanted: set[int] = set()
        self._found: dict[int, Any] = {}

    def __len__(self) -> int:
        """How many are waited for."""
        return len(self._wanted)

    def __contains__(self, serial: int) -> bool:
        """Whether it has come."""
        return serial in self._found

    def want(self, serials: Iterable[int]) -> None:
        self._wanted.update(serials)

    def put(self, frames: Iterable[Any]) -> None:
        """Keep what came, as far as it is waited for."""
        for frame in frames:
            if frame.serial in self._wanted:
                self._found[frame.serial] = frame.payload

    def take(self, serial: int) -> Any:
        """The payload, None if it has not come; then it is still waited for."""
        payload = self._found.pop(serial, None)
        if payload is not None:
            self._wanted.discard(serial)
        return payload

    def take_in_order(self, serials: Sequence[int], found: list[Any]) -> None:
        """Add what has come to `found`, as far as none is missing."""
        for serial in islice(serials, len(found), None):
            payload = self.take(serial)
            if payload is None:
                return
            found.append(payload)

    def forget(self, serial: int) -> None:
        """Nobody will wait for this one any more; drop it when it comes."""
        self._wanted.discard(serial)
        self._found.pop(serial, None)


def read_replies(
    codec: Codec,
    found: Iterable[bytes | errors.TubeMQError],
    method: Method,
    peer: str,
    timeout_ms: int,
) -> list[Any]:
    """For each payload or error of a group of requests its reply, or the error to report."""
    where = f"{method.name} at {peer}"
    replies: list[Any] = []
    for payload in found:
        try:
            if isinstance(payload, errors.TubeMQError):
                replies.append(explained(payload, method, peer, timeout_ms))
            else:
                replies.append(codec.decode(payload, method, where))
        except errors.TubeMQError as error:
            replies.append(error)
    return replies


def explained(
    error: errors.TubeMQError, method: Method, peer: str, timeout_ms: int
) -> errors.TubeMQError:
    """The same failure; a deadline is explained."""
    if not isinstance(error, errors.RpcTimeout):
        return error
    return errors.RpcTimeout(
        f"{peer}: no answer to {method.name} within {timeout_ms} ms (option rpc_timeout_ms)"
    )
