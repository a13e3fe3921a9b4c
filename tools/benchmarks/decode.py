"""CPU time of decoding a reply into Arrow, by kind of record: `python -m tools.benchmarks.decode`.

From the bytes of a fetch's reply to a record batch: protobuf, checksums, attributes, columns.
Nothing is read over a network. Both decoders run in turns in this process, so the ratios are what
to quote; the least time of all passes counts.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from tubemq_client import COLUMNS, MessageBatch, Partition, _pb
from tubemq_client._core.batch import DecodePolicy, RawBatch
from tubemq_client._core.columns import native_types
from tubemq_client._wire import native
from tubemq_client._wire.fetching import FetchReply
from tubemq_client._wire.payload import checksum, encode_payload

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

PARTITION = Partition(1, "bench", 0)
REPLY_BYTES = 512 << 10
"""Size of a genuine broker's reply with its default limits."""


def main() -> int:
    """Parse options, measure every kind of record with both decoders, print lines."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.decode", description=__doc__)
    parser.add_argument("--passes", type=int, default=40, help="replies decoded each way (40)")
    options = parser.parse_args()
    print(f"decoder in use: {native.describe()}; best of {options.passes}, us of CPU a record")
    print(f"{'':34} {'pure':>6} {'compiled':>9} {'ratio':>6}")
    for size in (1024, 100):
        for kind, attributes in KINDS.items():
            reply, count = _reply(size, attributes)
            for selection, columns in {"9 columns": COLUMNS, "value only": ("value",)}.items():
                _measure(
                    f"{size:5} B  {kind:15} {selection:10}", reply, count, columns, options.passes
                )
    return 0


def _measure(title: str, reply: bytes, count: int, columns: tuple[str, ...], passes: int) -> None:
    types = native_types()
    schema = pa.schema([(name, types[name]) for name in columns])
    compiled = native._scan  # noqa: SLF001 - a benchmark may look behind the switch
    ways = {"pure": None, "compiled": compiled} if compiled else {"pure": None}
    best = dict.fromkeys(ways, float("inf"))
    try:
        for _ in range(passes):
            for name, way in ways.items():
                native._scan = way  # noqa: SLF001
                began = time.process_time_ns()
                _decode(reply, count, schema)
                best[name] = min(best[name], (time.process_time_ns() - began) / count / 1000)
    finally:
        native._scan = compiled  # noqa: SLF001
    quick = best.get("compiled", float("nan"))
    print(f"{title} {best['pure']:6.2f} {quick:9.3f} {best['pure'] / quick:6.1f}", flush=True)


def _decode(reply: bytes, count: int, schema: pa.Schema) -> None:
    message = FetchReply(reply).parse()
    raw = RawBatch(message.currOffset, message.messages)
    batch = MessageBatch(
        PARTITION, raw, end=None, count=len(raw.messages), exact=True, policy=_policy
    )
    if len(batch) != count or batch.to_arrow(schema).num_rows != count:
        raise SystemExit("records are missing")


_policy = DecodePolicy()

# -- records -----------------------------------------------------------------------------------


def _few(number: int) -> dict[str, str]:
    """Return the same attributes for three of four records, like other benchmarks."""
    return {"$msgType$": "red", "$msgTime$": "202611211200"} if number % 4 else {}


def _all_differ(number: int) -> dict[str, str]:
    return {
        "$msgType$": "red",
        "$msgTime$": f"2026112112{number % 60:02}",
        "id": f"order-{number:010}",
        "at": f"{1_795_314_366_339 + number}",
    }


def _proxy(number: int) -> dict[str, str]:
    """Return attributes in the form of InLong's data proxy."""
    return {
        "$msgType$": "stream_a",
        "$msgTime$": "202611211200",
        "dt": f"{1_795_314_366_339 + number}",
        "cnt": "1",
        "NodeIP": "10.12.7.31",
        "compress": "snappy",
        "version": "1",
    }


KINDS: dict[str, Callable[[int], dict[str, str]]] = {
    "no attributes": lambda _: {},
    "few distinct": _few,
    "all differ": _all_differ,
    "data proxy": _proxy,
}


def _reply(size: int, attributes: Callable[[int], dict[str, str]]) -> tuple[bytes, int]:
    reply = _pb.GetMessageResponseB2C(success=True, errCode=200, errMsg="OK!", currOffset=2_800)
    total = count = 0
    while total < REPLY_BYTES:
        items = attributes(count)
        system = (
            {"stream_id": items.pop("$msgType$"), "msg_time": items.pop("$msgTime$")}
            if items
            else {}
        )
        data, flag = encode_payload(os.urandom(size), items, **system)
        reply.messages.add(
            messageId=1_795_314_366_339_874 + count,
            checkSum=checksum(data),
            payLoadData=data,
            flag=flag,
        )
        total += len(data) + 28
        count += 1
    return bytes(reply.SerializeToString()), count


if __name__ == "__main__":
    raise SystemExit(main())
