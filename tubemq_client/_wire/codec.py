"""TubeMQ's protocol as connections and drivers take it: frames, requests in, replies out.

Only names what `framing` and `envelope` do; `_io.codec` says what each is for. Holds no state, so
one value serves every connection of the process.

Source: `docs/protocol/wire.md`.
"""

from __future__ import annotations

from typing import Any, Final

from tubemq_client._wire.envelope import decode_response, encode_request, encode_requests
from tubemq_client._wire.framing import FrameDecoder

__all__ = ["TUBEMQ"]


class _TubeMQ:
    decoder = staticmethod(FrameDecoder)
    encode = staticmethod(encode_request)
    encode_all = staticmethod(encode_requests)
    decode = staticmethod(decode_response)

    @staticmethod
    def timeout_ms(_request: Any, usual_ms: int) -> int:
        """Every request has the same time; none is held by a server on purpose."""
        return usual_ms


TUBEMQ: Final = _TubeMQ()
"""What drivers and pools speak unless they are given another codec."""
