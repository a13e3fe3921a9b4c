"""Decoding speed of frames and replies of 1 MiB, in GB/s.

Run from the repository's root: ``python -m tools.benchmarks.wire``. It prints the median and the
best of many rounds; on a shared machine only the best is meaningful. Nothing asserts a figure.
"""

from __future__ import annotations

import os
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from tubemq_client import _pb
from tubemq_client._wire import envelope, methods
from tubemq_client._wire.framing import FrameDecoder, encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
FRAMES = 8
ROUNDS = 40


def report(name: str, size: int, work: Callable[[], object]) -> None:
    """Print the bytes per second of `work`, one call of which handles `size` of them."""
    rates = []
    for _ in range(ROUNDS):
        start = perf_counter()
        work()
        rates.append(size / (perf_counter() - start) / 1e9)
    print(f"{name:<40} median {median(rates):6.2f}   best {max(rates):6.2f}")


def decode(chunks: list[bytes]) -> None:
    """Feed all chunks and decode all frames."""
    decoder = FrameDecoder()
    frames = 0
    for chunk in chunks:
        decoder.receive_data(chunk)
        while decoder.next_frame() is not None:
            frames += 1
    if frames != FRAMES:
        raise AssertionError(frames)


def main() -> None:
    """Measure framing at several chunk sizes, then the envelope of a fetch of 1000 × 1 KiB."""
    payload = os.urandom(MIB)
    stream = encode_frame(1, payload) * FRAMES
    for size in (4, 16, 64, 256, 1024):
        step = size * 1024
        chunks = [stream[start : start + step] for start in range(0, len(stream), step)]
        report(f"decode frames, chunks of {size} KiB", FRAMES * MIB, lambda c=chunks: decode(c))
    report("encode frame", MIB, lambda: encode_frame(1, payload))
    reply = _pb.GetMessageResponseB2C(success=True, errCode=200, currOffset=0)
    for index in range(1000):
        reply.messages.add(
            messageId=index, checkSum=0, payLoadData=payload[index * 1000 :][:1024], flag=0
        )
    decoder = FrameDecoder()
    decoder.receive_data(envelope.encode_response(1, methods.GET_MESSAGES.id, reply))
    frame = decoder.next_frame()
    if frame is None:
        raise AssertionError
    report(
        "decode reply of 1000 records",
        len(frame.payload),
        lambda: envelope.decode_response(frame.payload, methods.GET_MESSAGES),
    )


if __name__ == "__main__":
    main()
