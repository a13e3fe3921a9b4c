"""CPU time per record of the producer, by way of sending: `python -m tools.benchmarks.send_cpu`.

A second process simulates master and broker: it answers every send with the same receipt and stores
nothing, so that only the client is measured. CPU time of this process, all its threads together, is
counted rather than elapsed time, which other work on the machine would change.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from tools.benchmarks.produce import ways
from tubemq_client import ClientSettings, _pb
from tubemq_client._wire import methods
from tubemq_client._wire.envelope import decode_request, encode_response
from tubemq_client._wire.framing import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

__all__ = ["main"]

TOPIC = "bench"
_HEADER = struct.Struct(">Iii")
_LENGTH = struct.Struct(">i")


def main() -> int:
    """Parse options, start the simulated servers, measure each way, print a line each."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmarks.send_cpu", description=__doc__
    )
    parser.add_argument("--records", type=int, default=65_536, help="per pass (65536)")
    parser.add_argument("--passes", type=int, default=3, help="passes of each way, best counts")
    parser.add_argument("--in-flight", type=int, default=256, help="unanswered records (256)")
    parser.add_argument("--only", default="", help="ways whose name contains this text")
    options = parser.parse_args()
    here, there = multiprocessing.Pipe()
    stand_in = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,))
    stand_in.start()
    settings = ClientSettings(masters=(("127.0.0.1", here.recv()),))
    try:
        for size in (1024, 100):
            body, count = os.urandom(size), options.records
            for name, run in ways(settings, TOPIC, body, count, options.in_flight).items():
                if options.only in name:
                    costs = [_cpu_us(run, count) for _ in range(options.passes)]
                    print(f"{size:5} B  {name:24} {min(costs):6.1f} us of CPU a record", flush=True)
    finally:
        here.send("stop")
        stand_in.join()
    return 0


def _cpu_us(run: Callable[[], None], count: int) -> float:
    began = time.process_time()
    run()
    return (time.process_time() - began) / count * 1e6


# -- the stand-in ------------------------------------------------------------------------------


def _serve(pipe: Connection) -> None:
    """Run master and broker in this process, until something comes through the pipe."""
    broker = _listen(_answer_sends)
    pipe.send(_listen(lambda channel: _answer_master(channel, broker)))
    pipe.recv()


def _listen(serve: Callable[[socket.socket], None]) -> int:
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            channel, _ = listener.accept()
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=serve, args=(channel,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listener.getsockname()[1])


def _answer_master(channel: socket.socket, broker_port: int) -> None:
    brokers = [f"1:127.0.0.1:{broker_port}"]
    common: dict[str, Any] = {"success": True, "errCode": 200, "errMsg": "OK!"}
    heart = _pb.HeartResponseM2P(
        **common, brokerCheckSum=1, brokerInfos=brokers, topicInfos=[f"{TOPIC}#1:1:1"]
    )
    replies = {
        methods.REGISTER_PRODUCER.id: _pb.RegisterResponseM2P(
            **common, brokerCheckSum=1, brokerInfos=brokers
        ),
        methods.HEARTBEAT_PRODUCER.id: heart,
        methods.CLOSE_PRODUCER.id: _pb.CloseResponseM2P(**common),
    }
    decoder = FrameDecoder()
    while data := channel.recv(1 << 16):
        decoder.receive_data(data)
        while (frame := decoder.next_frame()) is not None:
            method = decode_request(frame.payload).method_id
            channel.sendall(encode_response(frame.serial, method, replies[method]))


def _answer_sends(channel: socket.socket) -> None:
    """Skip over requests without parsing them; requests that arrive together are answered
    together."""
    now = time.time_ns() // 1_000_000
    message_id = 123_456_789_012_345_678
    receipt = _pb.SendMessageResponseB2P(
        success=True,
        errCode=200,
        errMsg=str(message_id),
        requireAuth=False,
        messageId=message_id,
        appendTime=now,
        appendOffset=2_800_000,
    )
    reply = encode_response(0, methods.SEND_MESSAGE.id, receipt)
    before, after = reply[:4], reply[8:]
    waiting = b""
    while data := channel.recv(1 << 18):
        waiting += data
        serials, done = _serials(waiting)
        waiting = waiting[done:]
        channel.sendall(b"".join(before + serial + after for serial in serials))


def _serials(data: bytes) -> tuple[list[bytes], int]:
    """Return the serial numbers of the whole frames in `data`, and the end of the last one."""
    serials: list[bytes] = []
    done = 0
    while len(data) - done >= _HEADER.size:
        pos = done + _HEADER.size
        for _ in range(_HEADER.unpack_from(data, done)[2]):
            if pos + _LENGTH.size > len(data):
                return serials, done
            pos += _LENGTH.size + _LENGTH.unpack_from(data, pos)[0]
        if pos > len(data):
            break
        serials.append(data[done + 4 : done + 8])
        done = pos
    return serials, done


if __name__ == "__main__":
    raise SystemExit(main())
