"""A tiny blocking client of the raw protocol: one call, one reply, no retries, no state.

Tests of the embedded server speak through it, so that they depend on `_wire` alone and see every
field of every reply.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

from tubemq_client import _pb
from tubemq_client._wire import envelope, methods, payload
from tubemq_client._wire.framing import FrameDecoder

TIMEOUT_S = 5.0


class Wire:
    """One connection to ``host:port``; a missing answer raises `TimeoutError`."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._decoder = FrameDecoder()
        self._serial = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def call(self, method: methods.Method, request: Any, timeout_ms: int = 10_000) -> Any:
        self._serial += 1
        self.sock.sendall(envelope.encode_request(self._serial, method, request, timeout_ms))
        return envelope.decode_response(self.receive(self._serial), method)

    def receive(self, serial: int | None = None) -> bytes:
        while True:
            frame = self._decoder.next_frame()
            if frame is None:
                data = self.sock.recv(1 << 16)
                if not data:
                    raise ConnectionError("the server closed the connection")
                self._decoder.receive_data(data)
            elif serial is None or frame.serial == serial:
                return frame.payload


class BrokerWire(Wire):
    """A consumer and producer that holds no state but its names."""

    client_id = "g_127.0.0.1-1-1-1-Pull-test"
    group = "g"

    def send(self, topic: str, body: bytes, partition: int = 0, **fields: Any) -> Any:
        stream_id = fields.pop("stream_id", None)
        data, flag = payload.encode_payload(body, stream_id=stream_id)
        if stream_id is not None:
            fields["msgType"] = stream_id
        request = {
            "clientId": "127.0.0.1-1-1-1-test",
            "topicName": topic,
            "partitionId": partition,
            "data": data,
            "flag": flag,
            "checkSum": -1,
            "sentAddr": 0x7F000001,
        } | fields
        return self.call(methods.SEND_MESSAGE, _pb.SendMessageRequestP2B(**request))

    def send_all(self, topic: str, count: int, partition: int = 0, **fields: Any) -> list[int]:
        """Offsets of `count` small records."""
        return [
            self.send(topic, b"m%d" % number, partition, **fields).appendOffset
            for number in range(count)
        ]

    def send_size(self, topic: str, size: int, partition: int = 0, **fields: Any) -> Any:
        """Send one record of `size` bytes."""
        return self.send(topic, bytes(size), partition, **fields)

    def register(self, topic: str, partition: int = 0, **fields: Any) -> Any:
        return self._registration(methods.OP_REGISTER, topic, partition, fields)

    def unregister(self, topic: str, partition: int = 0, **fields: Any) -> Any:
        return self._registration(methods.OP_UNREGISTER, topic, partition, fields)

    def _registration(self, op: int, topic: str, partition: int, fields: dict[str, Any]) -> Any:
        request = {
            "opType": op,
            "clientId": self.client_id,
            "groupName": self.group,
            "topicName": topic,
            "partitionId": partition,
            "readStatus": 0,
        } | fields
        return self.call(methods.REGISTER_PARTITION, _pb.RegisterRequestC2B(**request))

    def heartbeat(self, *places: str, **fields: Any) -> Any:
        request = {
            "clientId": self.client_id,
            "groupName": self.group,
            "readStatus": 0,
            "partitionInfo": places,
        } | fields
        return self.call(methods.HEARTBEAT_BROKER, _pb.HeartBeatRequestC2B(**request))

    def get(self, topic: str, partition: int = 0, **fields: Any) -> Any:
        request = {
            "clientId": self.client_id,
            "groupName": self.group,
            "topicName": topic,
            "partitionId": partition,
        } | fields
        return self.call(methods.GET_MESSAGES, _pb.GetMessageRequestC2B(**request))

    def commit(self, topic: str, partition: int = 0, **fields: Any) -> Any:
        request = {
            "clientId": self.client_id,
            "groupName": self.group,
            "topicName": topic,
            "partitionId": partition,
        } | fields
        return self.call(methods.COMMIT_OFFSET, _pb.CommitOffsetRequestC2B(**request))


def bodies(reply: Any) -> list[bytes]:
    """Record bodies of a fetch."""
    return [payload.split_payload(m.payLoadData, m.flag)[1] for m in reply.messages]
