"""Resources of all clients of a node together are bounded, and honest clients are served."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from rocketmq_client import Credentials, OutgoingMessage, Producer, PullConsumer, errors
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client.model import address_text
from rocketmq_snode import SnodeSettings
from rocketmq_snode.broker_connection import Relayed
from rocketmq_snode.frames import FrameCutter
from tests.kit.certificates import make_certificates
from tests.kit.ports import reserved_port
from tests.snode.raw import FIRST, PULL, Raw, answer_to, eventually, fill, heartbeat

MIB = 2**20
LOOK_UP = Command(206, 1, {})
USER = Credentials("reader01", "87654321")
HELD = {**PULL, "maxMsgNums": "1", "sysFlag": "6", "suspendTimeoutMillis": "20000"}


def gauge(node, name: str) -> float:
    value: float = node.do(node.node.gauges)[name]
    return value


def answers_of(node) -> int:
    """Return the number of successful answers of the node."""
    return int(node.do(lambda: node.node.metrics._answers[0]))


def is_cut_off(client: Raw) -> bool:
    client._socket.settimeout(0.05)
    try:
        return client._socket.recv(1 << 16) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def begin_frame(client: Raw, announced: int, sent: int) -> None:
    """Send the first `sent` bytes of a request of `announced` bytes."""
    frame = encode_command(Command(310, 1, {"b": "orders", "n": "broker-a"}, bytes(announced)))
    with suppress(OSError):
        client._socket.sendall(frame[:sent])


def test_unfinished_frames_of_all_clients_are_bounded(rocketmq, start) -> None:
    node = start(max_unfinished_bytes=32 * MIB)
    with ExitStack() as stack:
        clients = [stack.enter_context(Raw(node.address)) for _ in range(8)]
        for client in clients:
            begin_frame(client, 15 * MIB, 7 * MIB)
            assert gauge(node, "unfinished_bytes") <= 32 * MIB
        assert eventually(lambda: sum(map(is_cut_off, clients)) >= 3)
        with Raw(node.address) as honest:
            assert honest.ask(LOOK_UP).code == 0
    eventually(lambda: gauge(node, "unfinished_bytes") == 0)


def test_a_client_with_an_unfinished_frame_is_cut_off_in_time(rocketmq, start) -> None:
    node = start(frame_timeout_ms=500)
    with Raw(node.address) as slow, Raw(node.address) as honest:
        begin_frame(slow, MIB, 1_000)
        end = time.monotonic() + 20
        while not is_cut_off(slow):
            assert time.monotonic() < end
            with suppress(OSError):
                slow._socket.sendall(b"\0")
        assert honest.ask(LOOK_UP).code == 0


def test_idle_clients_are_cut_off_in_time(rocketmq, start) -> None:
    node = start(idle_ms=500, discovery_period_ms=30_000)
    with Raw(node.address) as silent:
        began = time.monotonic()
        assert eventually(lambda: is_cut_off(silent), 20)
        assert time.monotonic() - began < 5


def users_only(rocketmq, start, **options):
    return start(users=((USER.access_key, USER.secret_key),), **options)


def test_a_large_frame_is_accepted_from_users_only(rocketmq, start) -> None:
    node = users_only(rocketmq, start)
    with Raw(node.address) as stranger:
        begin_frame(stranger, MIB, 100_000)
        assert eventually(lambda: is_cut_off(stranger))
    with Raw(node.address) as stranger:
        stranger._socket.sendall((15 * MIB).to_bytes(4, "big") + b"\0\xff\xff\xff" + bytes(70_000))
        assert eventually(lambda: is_cut_off(stranger))
    with Producer(replace(node.settings, auth=USER)) as producer:
        assert producer.send("orders", os.urandom(MIB)).offset is not None


def test_a_client_that_signs_nothing_is_cut_off(rocketmq, start) -> None:
    node = users_only(rocketmq, start, idle_ms=1_000)
    with Raw(node.address) as stranger:
        end = time.monotonic() + 20
        while not is_cut_off(stranger):
            assert time.monotonic() < end
            with suppress(OSError):
                stranger.send(LOOK_UP)


def test_a_client_without_requests_is_cut_off_for_a_newcomer(rocketmq, start) -> None:
    node = start(max_clients=3)
    with ExitStack() as stack:
        busy = [stack.enter_context(Raw(node.address)) for _ in range(2)]
        assert [client.ask(LOOK_UP).code for client in busy] == [0, 0]
        silent = stack.enter_context(Raw(node.address))
        eventually(lambda: gauge(node, "clients") == 3)
        with Raw(node.address) as refused:
            assert eventually(lambda: is_cut_off(refused))
        time.sleep(1.2)
        late = stack.enter_context(Raw(node.address))
        assert late.ask(LOOK_UP).code == 0
        assert eventually(lambda: is_cut_off(silent))
        assert [client.ask(LOOK_UP).code for client in (*busy, late)] == [0, 0, 0]
        with Raw(node.address) as refused:
            time.sleep(1.2)
            assert eventually(lambda: is_cut_off(refused))


@pytest.mark.timeout(120)
def test_pages_answer_and_the_log_stays_small_without_descriptors(rocketmq, tmp_path) -> None:
    log = tmp_path / "log"
    with reserved_port() as port, reserved_port() as page, log.open("wb") as errors_to:
        options = {
            "NAME_SERVERS": address_text(rocketmq.name_server),
            "LISTEN": f"127.0.0.1:{port}",
            "METRICS_LISTEN": f"127.0.0.1:{page}",
        }
        command = f"ulimit -n 128; exec {sys.executable} -m rocketmq_snode.command serve"
        node = subprocess.Popen(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=errors_to,
            env=os.environ | {f"SNODE_{key}": value for key, value in options.items()},
        )
        try:
            assert node.stdout is not None
            assert node.stdout.readline().startswith(b"listening")
            with Raw(("127.0.0.1", port)) as first, ExitStack() as stack:
                assert first.ask(LOOK_UP).code == 0
                for _ in range(400):
                    with suppress(OSError):
                        connection = socket.create_connection(("127.0.0.1", port), 5)
                        stack.enter_context(connection)
                for place in ("healthz", "metrics"):
                    with urllib.request.urlopen(f"http://127.0.0.1:{page}/{place}") as answer:
                        assert answer.status == 200
                assert first.ask(LOOK_UP).code == 0
        finally:
            node.kill()
            node.communicate(timeout=30)
    text = log.read_text()
    assert "Traceback" not in text
    assert len(text) < 20_000


def test_clients_that_never_read_do_not_use_up_memory_or_others_turns(rocketmq, start) -> None:
    node = start(max_queued_bytes=16 * MIB)
    with Producer(rocketmq.settings) as producer:
        for _ in range(20):
            messages = [OutgoingMessage(os.urandom(10_000)) for _ in range(10)]
            producer.send_batch("orders", messages, queue=FIRST)
    fields = {**PULL, "maxMsgNums": "32", "queueOffset": "0"}
    pulls = b"".join(encode_command(Command(11, number, fields)) for number in range(64))
    with ExitStack() as stack:
        for number in range(40):
            lazy = stack.enter_context(Raw(node.address))
            lazy._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with suppress(OSError):
                if number % 2:
                    lazy.send(heartbeat(f"client-{number}"))
                lazy._socket.sendall(pulls)
        largest, slowest = 0.0, 0.0
        with Producer(node.settings) as producer, PullConsumer(node.settings, group="h") as honest:
            for _ in range(20):
                began = time.monotonic()
                producer.send("orders", b"honest", queue=FIRST)
                slowest = max(slowest, time.monotonic() - began)
                assert honest.pull(FIRST, 0, max_records=1).status == "found"
                largest = max(largest, gauge(node, "queued_bytes"))
    assert largest <= 17 * MIB
    assert slowest < 5


def test_half_closed_clients_that_do_not_read_are_cut_off(rocketmq, start) -> None:
    node = start(max_frame_bytes=MIB, max_queued_bytes=3 * MIB, max_unfinished_bytes=4 * MIB)
    with Producer(rocketmq.settings) as producer:
        messages = [OutgoingMessage(os.urandom(90_000)) for _ in range(10)]
        producer.send_batch("orders", messages, queue=FIRST)
    with ExitStack() as stack:
        for number in range(8):
            lazy = stack.enter_context(Raw(node.address))
            lazy._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.send(Command(11, 1, {**PULL, "maxMsgNums": "32", "queueOffset": "0"}))
            eventually(lambda answers=number + 1: answers_of(node) >= answers)
            lazy._socket.shutdown(socket.SHUT_WR)
        assert gauge(node, "queued_bytes") <= 3 * MIB
        with Raw(node.address) as honest:
            assert honest.ask(LOOK_UP).code == 0


def test_held_pulls_leave_room_for_sends_and_for_other_clients_pulls(rocketmq, start) -> None:
    node = start(max_pulls_per_broker=16, max_in_flight_per_broker=2)
    fill(node.settings, 1)
    with Raw(node.address) as greedy, Raw(node.address) as other:
        assert greedy.ask(LOOK_UP).code == other.ask(LOOK_UP).code == 0
        pulls = [Command(11, number, {**HELD, "queueOffset": "1"}) for number in range(40)]
        greedy.send(*pulls)
        refused = [greedy.receive() for _ in range(30)]
        assert {answer.code for answer in refused} == {2}
        assert 8 <= eventually(lambda: gauge(node, "held_pulls")) <= 12
        found = other.ask(Command(11, 7, {**HELD, "queueOffset": "0"}))
        assert found.code == 0
        fields = {"topic": "orders", "queueId": "0", "bname": "broker-a"}
        assert other.ask(Command(30, 8, fields)).code == 0


def test_what_is_not_served_is_refused_with_the_way_out(rocketmq, start) -> None:
    node = start()
    with Raw(node.address) as client:
        answer = client.ask(Command(25, 1, {}))
    assert answer.code == 3
    assert "ask the brokers themselves" in str(answer.remark)


def test_an_unfinished_header_is_accepted_up_to_a_small_frame() -> None:
    cutter = FrameCutter(16 * MIB)
    cutter.admits = lambda header: b"user" in header
    frame = encode_command(Command(310, 1, {"AccessKey": "user"}, bytes(MIB)))
    assert [whole for at in range(0, len(frame), 5) for whole in cutter.cut(frame[at : at + 5])]
    assert cutter.failure is None


def test_limits_that_no_frame_fits_into_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match=r"max_unfinished_bytes.*max_frame_bytes"):
        SnodeSettings((("ns", 9876),), max_unfinished_bytes=MIB)


def test_connections_that_never_shake_hands_count_too(rocketmq, start, tmp_path) -> None:
    server = make_certificates(tmp_path).server
    node = start(max_clients=2, tls_cert_file=server.cert, tls_key_file=server.key)
    with ExitStack() as stack:
        silent = [stack.enter_context(Raw(node.address)) for _ in range(2)]
        eventually(lambda: node.do(node.node._connections) == 2)
        with Raw(node.address) as refused:
            assert eventually(lambda: is_cut_off(refused))
        assert not any(map(is_cut_off, silent))


def only_client(node):
    """Return the node's side of the only connection."""
    return node.do(lambda: next(iter(node.node._shared.clients)))


def test_a_notice_that_members_changed_is_passed_on_once_a_tick(rocketmq, start) -> None:
    node = start()
    with Raw(node.address) as member:
        answer_to(member, heartbeat("reader"))
        assert member.receive().code == 40  # the notice after its heartbeat
        decoded: list[Command] = []
        only_client(node).member.connection_to("broker-a").line.on_request = decoded.append
        rocketmq.do(lambda broker: [broker.groups._tell("g") for _ in range(500)])
        first = member.receive()
        frames = 1
        member.send(LOOK_UP)
        while not member.receive().is_answer:
            frames += 1

    assert first.fields == {"consumerGroup": "g"}
    assert frames <= 10
    assert decoded == []


def test_requests_of_one_client_are_handled_a_few_at_a_time(rocketmq, start) -> None:
    node = start()
    with Raw(node.address) as client:
        assert client.ask(LOOK_UP).code == 0
        served = only_client(node)
        frames = encode_command(LOOK_UP) * 200

        def requests_handled_at_once() -> int:
            before = served.requests
            served.data_received(frames)
            return served.requests - before

        assert node.do(requests_handled_at_once) == 8
        assert {client.receive().opaque for _ in range(200)} == {1}
    assert eventually(lambda: gauge(node, "unfinished_bytes") == 0)


class FullTransport:
    """Transport to a client that reads nothing: every write fills its buffer."""

    def __init__(self, client) -> None:
        self._client = client

    def write(self, _data: bytes) -> None:
        self._client.pause_writing()

    def get_write_buffer_size(self) -> int:
        return 300_000

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Do nothing."""


def test_answers_that_fill_the_buffer_allow_no_further_pulls(rocketmq, start) -> None:
    node = start()
    with Raw(node.address) as lazy:
        assert lazy.ask(LOOK_UP).code == 0
        client = only_client(node)

        def pulls_allowed() -> int:
            transport, client._transport = client._transport, FullTransport(client)
            relayed = Relayed(client, 11, 1, None, 0.0, 0.0)
            for _ in range(2):
                client.answered(relayed, 0, bytes(150_000))
            client._shared.upstream.turn.end()
            client._transport = transport
            return client._pulls_ahead

        assert node.do(pulls_allowed) == 1
