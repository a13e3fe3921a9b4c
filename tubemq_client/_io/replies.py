"""From what arrived for requests, or went wrong, to what their conversation is told.

Both drivers wait in their own way and come here with what they got.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tubemq_client import errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tubemq_client._core.effects import Method
    from tubemq_client._io.codec import Codec

__all__ = ["LATE_GRACE_S", "explained", "read_replies"]

LATE_GRACE_S = 0.05
"""A caller may come late for a reply that arrived in time (it was busy with the record before, say)
and of which not all could be taken yet. So much time there is after any deadline."""


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
