"""TubeMQ's protocol as a codec for connections and drivers: frames, requests, replies.

Only names the functions of `framing` and `envelope`; `_io.codec` documents each. Stateless, so one
object serves every connection of the process.

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
        """Return the usual timeout for every request; no server holds one on purpose."""
        return usual_ms


TUBEMQ: Final = _TubeMQ()
"""Default codec of drivers and pools."""
