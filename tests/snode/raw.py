"""A client that sends any bytes, and small helpers of the tests of nodes."""

from __future__ import annotations

import json
import socket
import time

from rocketmq_client import OutgoingMessage, Producer, Queue, QueueRange, RangeReader
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client._wire.framing import CommandDecoder
from tools.devkit.patience import PATIENCE

FIRST = Queue("broker-a", "orders", 0)


class Raw:
    """Client that sends any commands."""

    def __init__(self, address) -> None:
        self._socket = socket.create_connection(address, 30)
        self._socket.settimeout(30)
        self._decoder = CommandDecoder()

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def send(self, *commands: Command) -> None:
        self._socket.sendall(b"".join(map(encode_command, commands)))

    def receive(self) -> Command:
        while (command := self._decoder.next_command()) is None:
            data = self._socket.recv(65536)
            assert data, "cut off"
            self._decoder.receive_data(data)
        return command

    def ask(self, command: Command) -> Command:
        self.send(command)
        return self.receive()


def answer_to(client: Raw, command: Command) -> Command:
    """Send a command; return its answer and skip notices before it."""
    client.send(command)
    while not (answer := client.receive()).is_answer:
        pass
    return answer


def fill(settings, count=300, queue=FIRST):
    with Producer(settings) as producer:
        messages = [OutgoingMessage(b"%d" % n) for n in range(count)]
        return producer.send_batch("orders", messages, queue=queue)


def read(settings, start, end, queue=FIRST):
    with RangeReader(settings, group="g") as reader:
        batches = reader.read(QueueRange(queue, start, end))
        return [m.body for batch in batches for m in batch.messages()]


def eventually(question, patience=30.0):
    deadline = time.monotonic() + patience * PATIENCE
    while not (result := question()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return result


def heartbeat(client: str) -> Command:
    body = {"clientID": client, "consumerDataSet": [{"groupName": "g"}]}
    return Command(34, 5, {}, json.dumps(body).encode())


PULL = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": "0",
    "bname": "broker-a",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
    "subscription": "*",
}
