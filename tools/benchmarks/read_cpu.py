"""CPU time per record of the range reader, by way of using it.

Run as `python -m tools.benchmarks.read_cpu`.

A second process simulates the broker: it answers every fetch with the same records at the next
offset, so that only the client is measured, its system calls included. CPU time of this process is
counted rather than elapsed time, which other work on the machine would change.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from typing import TYPE_CHECKING, Any

from tools.benchmarks.raw_fetch import raw_fetch
from tools.benchmarks.send_cpu import _listen
from tubemq_client import BrokerNode, ClientSettings, OffsetRange, Partition, RangeReader, _pb
from tubemq_client._wire import methods
from tubemq_client._wire.envelope import decode_request, encode_response
from tubemq_client._wire.framing import FrameDecoder
from tubemq_client._wire.payload import checksum, encode_payload

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from multiprocessing.connection import Connection

__all__ = ["main"]

PARTITION = Partition(1, "bench", 0)
BATCHES = {1024: 487, 100: 3_305}
"""Records of a size in one reply of a genuine broker with its default limit of 512 KiB."""
KINDS: dict[str, dict[str, str]] = {"plain": {}, "with attributes": {"key": "value"}}
ENTRY = 28


def main() -> int:
    """Parse options, measure each way with and without attributes, print lines."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmarks.read_cpu", description=__doc__
    )
    parser.add_argument("--batches", type=int, default=200, help="replies per pass (200)")
    parser.add_argument("--passes", type=int, default=5, help="passes of each way, best counts")
    options = parser.parse_args()
    for size, count in BATCHES.items():
        for kind, attributes in KINDS.items():
            here, there = multiprocessing.Pipe()
            stand_in = multiprocessing.get_context("spawn").Process(
                target=_serve, args=(there, size, count, attributes)
            )
            stand_in.start()
            broker = BrokerNode(1, "127.0.0.1", here.recv())
            try:
                title = f"{size:5} B  {kind:15}"
                _measure(broker, title, count * options.batches, options.passes)
            finally:
                here.send("stop")
                stand_in.join()
    return 0


def _measure(broker: BrokerNode, title: str, records: int, passes: int) -> None:
    settings = ClientSettings(masters=(("127.0.0.1", 1),))
    range_ = OffsetRange(PARTITION, 0, records * ENTRY)
    ways: dict[str, Callable[[], object]] = {
        "raw fetch": lambda: raw_fetch(settings, broker, range_),
        "RangeReader + CRC": lambda: _read(settings, broker, range_, len),
        "  + messages()": lambda: _read(settings, broker, range_, _messages),
        "  + Arrow": lambda: _read(settings, broker, range_, _arrow),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(passes):
        for name, run in ways.items():
            began = time.process_time()
            run()
            best[name] = min(best[name], (time.process_time() - began) / records * 1e6)
    for name, cost in best.items():
        print(f"{title}  {name:18} {cost:6.2f} us of CPU a record", flush=True)


def _read(
    settings: ClientSettings, broker: BrokerNode, range_: OffsetRange, take: Callable[[Any], int]
) -> None:
    with RangeReader(settings, group="bench", brokers={1: broker}) as reader:
        count = sum(take(batch) for batch in reader.read(range_))
    if count != range_.entries:
        raise SystemExit(f"{count} of {range_.entries} records")


def _messages(batch: Any) -> int:
    return sum(1 for _ in batch.messages())


def _arrow(batch: Any) -> int:
    import pyarrow as pa

    columns = [("partition", pa.string()), ("offset", pa.int64()), ("value", pa.binary())]
    return int(batch.to_arrow(pa.schema(columns)).num_rows)


# -- the stand-in ------------------------------------------------------------------------------


def _serve(pipe: Connection, size: int, count: int, attributes: dict[str, str]) -> None:
    """Run the broker in this process, until something comes through the pipe."""
    head = _records(size, count, attributes)
    pipe.send(_listen(lambda channel: _answer(channel, head, count)))
    pipe.recv()


def _records(size: int, count: int, attributes: dict[str, str]) -> bytes:
    """Return the beginning of every reply: success and the records."""
    system = {"stream_id": "stream", "msg_time": "202601020304"} if attributes else {}
    data, flag = encode_payload(os.urandom(size), attributes, **system)
    reply = _pb.GetMessageResponseB2C(success=True, errCode=200, errMsg="OK!")
    for number in range(count):
        reply.messages.add(
            messageId=1_795_314_366_339_874 + number,
            checkSum=checksum(data),
            payLoadData=data,
            flag=flag,
        )
    return bytes(reply.SerializeToString())


class _Bytes(bytes):
    """A business message that is already encoded."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - as protobuf's classes
        return self


def _answer(channel: socket.socket, head: bytes, count: int) -> None:
    """Serve one registration per connection; every fetch returns `count` records."""
    position = in_flight = 0
    decoder = FrameDecoder()
    while data := channel.recv(1 << 16):
        decoder.receive_data(data)
        while (frame := decoder.next_frame()) is not None:
            call = decode_request(frame.payload)
            fields = methods.BY_ID[call.method_id].request.FromString(call.body)
            if call.method_id == methods.REGISTER_PARTITION.id:
                position, in_flight = fields.currOffset, 0
            elif fields.lastPackConsumed:
                position, in_flight = position + in_flight, 0
            common = {"currOffset": position, "maxOffset": 1 << 50}
            if call.method_id == methods.GET_MESSAGES.id:
                in_flight = count * ENTRY
                tail = _pb.GetMessageResponseB2C(**common).SerializePartialToString()
                reply: Any = _Bytes(head + tail)
            else:
                cls = methods.BY_ID[call.method_id].response
                reply = cls(success=True, errCode=200, errMsg="OK!", **common)
            channel.sendall(encode_response(frame.serial, call.method_id, reply))


if __name__ == "__main__":
    raise SystemExit(main())
