"""Choice of the master: stand-bys, dead ones, changes that must not be sent twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.client.admin.conftest import TOKEN, Make
from tubemq_client import errors
from tubemq_client.embedded import EmbeddedTubeMQ

OK = {"result": True, "errCode": 0, "errMsg": "OK", "data": [], "count": 0}


class FakeMaster:
    """Server that answers every request alike; `asked` has (HTTP verb, path, body)."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.status, self.body, self.location = 200, json.dumps(OK), ""
        self.hang_up = False
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer("")

            def do_POST(self) -> None:
                self.answer(self.rfile.read(int(self.headers["content-length"])).decode())

            def answer(self, body: str) -> None:
                fake.asked.append((self.command, self.path, body))
                if fake.hang_up:
                    self.close_connection = True
                    return
                self.send_response(fake.status)
                if fake.location:
                    self.send_header("location", fake.location)
                content = fake.body.encode()
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def fakes() -> Iterator[list[FakeMaster]]:
    masters = [FakeMaster(), FakeMaster()]
    yield masters
    for fake in masters:
        fake.close()


def test_a_standby_is_skipped_and_its_redirect_not_followed(
    make: Make, fakes: list[FakeMaster]
) -> None:
    standby, active = fakes
    # A real stand-by names the active host with its own port: itself, on one machine.
    standby.status, standby.location = 302, f"{standby.url}/webapi.htm?method=x"
    admin = make([standby.url, active.url], token=TOKEN)
    assert admin.topics() == []
    admin.modify_broker(1)
    assert len(standby.asked) == 1
    verb, path, body = active.asked[-1]
    assert (verb, path) == ("POST", "/webapi.htm")
    assert f"confModAuthToken={TOKEN}" in body


def test_only_standbys_are_reported(make: Make, fakes: list[FakeMaster]) -> None:
    for fake in fakes:
        fake.status, fake.location = 302, fake.url
    with pytest.raises(errors.StandbyMaster, match="address of every master"):
        make([fake.url for fake in fakes]).brokers()


def test_a_dead_master_is_skipped(make: Make, mq: EmbeddedTubeMQ) -> None:
    admin = make(f"127.0.0.1:1, {mq.master_web}", token=TOKEN)
    assert admin.brokers()
    with pytest.raises(errors.ConnectError, match=r"no master answers: http://127\.0\.0\.1:1"):
        make("127.0.0.1:1").brokers()


def test_a_change_that_may_have_arrived_is_not_sent_again(
    make: Make, fakes: list[FakeMaster]
) -> None:
    first, second = fakes
    first.hang_up = True
    admin = make([first.url, second.url], token=TOKEN)
    with pytest.raises(errors.ConnectionLost):
        admin.online_brokers([1])
    assert (len(first.asked), len(second.asked)) == (1, 0)
    assert admin.brokers() == []  # a query may be sent to the next
    assert len(second.asked) == 1


def test_long_parameters_go_in_the_body(make: Make, fakes: list[FakeMaster]) -> None:
    fake = fakes[0]
    admin = make(fake.url)
    admin.topics([f"topic_with_a_long_name_{n:03}" for n in range(150)])
    assert [verb for verb, _, _ in fake.asked] == ["POST", "GET"]  # a hundred, and fifty
    assert fake.asked[0][2].count("topic_with") == 100


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, "<html>", errors.ProtocolViolation),
        (200, "[]", errors.ProtocolViolation),
        (200, '{"result":true,"data":[{"brokerId":"x"}]}', errors.ProtocolViolation),
        (200, '{"result":true}', errors.ProtocolViolation),
        (404, "", errors.ProtocolViolation),
        (500, "", errors.ServerFailure),
        (200, '{"result":false,"errCode":400,"errMsg":"no"}', errors.BadRequest),
    ],
)
def test_odd_answers_name_the_request(
    make: Make, fakes: list[FakeMaster], status: int, body: str, kind: Any
) -> None:
    fakes[0].status, fakes[0].body = status, body
    with pytest.raises(kind, match="admin_query_broker_configure"):
        make(fakes[0].url).brokers()
