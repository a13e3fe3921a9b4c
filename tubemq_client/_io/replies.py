"""Replies to requests: kept until they are taken, decoded, and explained if they failed.

Nothing here waits: drivers and connections do.
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
"""Grace after a deadline, in seconds, to drain a reply that arrived in time while the caller was
busy."""


class Replies:
    """Replies that arrived and were not taken yet, and the serials that are awaited.

    Other replies are dropped. A connection that shares it between threads has a lock.
    """

    def __init__(self) -> None:
        self._wanted: set[int] = set()
        self._found: dict[int, Any] = {}

    def __len__(self) -> int:
        """Return the number of awaited replies."""
        return len(self._wanted)

    def __contains__(self, serial: int) -> bool:
        """Return whether the reply has arrived."""
        return serial in self._found

    def want(self, serials: Iterable[int]) -> None:
        self._wanted.update(serials)

    def put(self, frames: Iterable[Any]) -> None:
        """Keep the replies that are awaited."""
        for frame in frames:
            if frame.serial in self._wanted:
                self._found[frame.serial] = frame.payload

    def take(self, serial: int) -> Any:
        """Return the payload, or None if it has not arrived and is still awaited."""
        payload = self._found.pop(serial, None)
        if payload is not None:
            self._wanted.discard(serial)
        return payload

    def take_in_order(self, serials: Sequence[int], found: list[Any]) -> None:
        """Append replies to `found` in order, up to the first missing one."""
        for serial in islice(serials, len(found), None):
            payload = self.take(serial)
            if payload is None:
                return
            found.append(payload)

    def forget(self, serial: int) -> None:
        """Drop the reply when it arrives: no caller waits for it any more."""
        self._wanted.discard(serial)
        self._found.pop(serial, None)


def read_replies(
    codec: Codec,
    found: Iterable[bytes | errors.TubeMQError],
    method: Method,
    peer: str,
    timeout_ms: int,
) -> list[Any]:
    """Return for each payload or error of a group of requests its reply, or the error to report."""
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
    """Return the same failure; the text of a timeout names the option."""
    if not isinstance(error, errors.RpcTimeout):
        return error
    return errors.RpcTimeout(
        f"{peer}: no answer to {method.name} within {timeout_ms} ms (option rpc_timeout_ms)"
    )
