"""Names, texts and records of others never send control characters to the user's terminal."""

from __future__ import annotations

import io
import json
import logging
import socket
import threading
from typing import Any

import pytest

from tests.client.admin.test_hostile_servers import head, heard, web
from tests.client.cli.conftest import Run
from tubemq_client import ClientSettings, Message, Partition, Producer, Record
from tubemq_client.cli.records import Format, write_record
from tubemq_client.tdmsg import TDMsgBuilder
from tubemq_client.terminal import visible, visible_json

ESC, CSI, FLIP = "\x1b[2J", "\x9b2J", "\u202egpj.exe"
STEERING = {*map(chr, [*range(9), *range(11, 32), *range(0x7F, 0xA0)]), "\u202e", "\u2066"}


def steers(text: str) -> bool:
    return bool(STEERING & set(text))


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("output", [Format.JSONL, Format.RAW, Format.HEX])
@pytest.mark.parametrize("body", [ESC.encode(), CSI.encode(), FLIP.encode(), b"\x9b\x1b\xff"])
def test_records_on_a_terminal_do_not_steer_it(output: Format, body: bytes) -> None:
    message = Message(body, {"k" + CSI: FLIP, "e": ESC}, CSI, None, 1, 0)
    out = Terminal()
    write_record(out, message, output, Partition(1, "t", 0))
    assert not steers(out.getvalue().decode("utf-8"))
    if output is Format.JSONL:  # escaped, not changed
        row = json.loads(out.getvalue())
        assert row["attributes"] == {"k" + CSI: FLIP, "e": ESC}
        assert row["stream_id"] == CSI


def test_packed_records_do_not_steer() -> None:
    builder = TDMsgBuilder(compress=False)
    builder.add(f"groupId=g&streamId={CSI}", CSI.encode())
    out = Terminal()
    write_record(out, Message(builder.build(create_time_ms=1), {}, None, None, 1, 0), Format.TDMSG)
    assert not steers(out.getvalue().decode())
    assert json.loads(out.getvalue())["value"] == CSI


def test_raw_bodies_in_a_pipe_are_byte_by_byte() -> None:
    out = io.BytesIO()
    write_record(out, Message(b"\x1b\x9b\xff\x00", {}, None, None, 1, 0), Format.RAW)
    assert out.getvalue() == b"\x1b\x9b\xff\x00\n"


def test_what_is_consumed_does_not_steer(run: Run, fresh: str, settings: ClientSettings) -> None:
    partition = Partition(1, fresh, 0)
    with Producer(settings) as producer:
        records = [Record(CSI.encode(), attributes={"k": CSI + FLIP}, partition=partition)]
        list(producer.send_many(fresh, records))
    found = run("consume", fresh, "--from", "earliest", "--limit", 1)
    assert found.code == 0
    (row,) = found.rows()
    assert (row["value"], row["attributes"]) == (CSI, {"k": CSI + FLIP})
    assert not steers(found.out + found.err)


def answering(documents: dict[bytes, Any]) -> Any:
    """Return the document of the first method that the request names."""

    def serve(connection: socket.socket, _: threading.Event) -> None:
        found = next(answer for method, answer in documents.items() if method in heard[-1])
        body = json.dumps(found).encode()
        connection.sendall(head(len(body)) + body)

    return serve


@pytest.mark.parametrize("output", [[], ["-o", "jsonl"]])
def test_tables_of_servers_do_not_steer(output: list[str], run: Run) -> None:
    name = f"{ESC}{CSI}{FLIP}[link=http://evil]here[/link]"
    rows = [{"consumeGroup": name, "topicSet": [name], "consumerNum": 1}]
    found = {"result": True, "errCode": 0, "data": []}
    with web(answering({b"sub_info": {**found, "data": rows}, b"": found})) as url:
        found = run("groups", "list", "--admin", url, *output)
    assert found.code == 0
    assert not steers(found.out + found.err)
    shown = json.loads(found.out)["group"] if output else found.out.replace("\n", "")
    assert name == shown if output else "link=" in shown


def test_refusals_of_servers_do_not_steer(run: Run) -> None:
    with web(
        answering({b"": {"result": False, "errCode": 400, "errMsg": f"no {ESC}{CSI}"}})
    ) as url:
        found = run("groups", "list", "--admin", url)
    assert found.code == 1
    assert r"no \x1b[2J\x9b2J" in found.err
    assert not steers(found.err)


def test_warnings_of_the_library_do_not_steer(run: Run) -> None:
    run("--version")
    run("groups", "list", "--admin", "http://127.0.0.1:1")
    assert logging.lastResort is not None
    record = logging.LogRecord("tubemq_client", 30, "", 1, "said %s", (ESC + CSI,), None)
    assert logging.lastResort.format(record) == r"tubemq: said \x1b[2J\x9b2J"


def test_lines_stay_lines_where_they_are_ours() -> None:
    assert visible("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"
    assert visible("a\nb") == r"a\x0ab"
    assert visible("é ä 漢 \N{GRINNING FACE}") == "é ä 漢 \N{GRINNING FACE}"
    assert visible("\ud800").encode() == rb"\ud800"


def test_json_keeps_its_values() -> None:
    value = {"k\x9b": ["\x7f\u2028\ud83d", "\x1b\n"]}
    text = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert not steers(text)
