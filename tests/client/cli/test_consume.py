"""`tubemq consume`: looks, following, joining; formats; what happens to positions."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.client.cli.conftest import Run
from tests.system.behaviour.sites import eventually
from tools.devkit.patience import PATIENCE
from tubemq_client import AssignedConsumer, ClientSettings, Partition, Producer, Record, errors
from tubemq_client.cli import main
from tubemq_client.cli.consume import _pull, _Sink
from tubemq_client.cli.options import confirmed
from tubemq_client.cli.records import Format, RecordWriter
from tubemq_client.cli.rows import RowSource, Selection
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.tdmsg import TDMsgBuilder


@pytest.fixture
def filled(fresh: str, settings: ClientSettings) -> str:
    """Twenty records, alternately of two streams, ten in each of two partitions of one store."""
    send(settings, fresh, [b"n%d" % n for n in range(20)])
    return fresh


def send(settings: ClientSettings, topic: str, bodies: list[bytes]) -> None:
    with Producer(settings) as producer:
        records = [
            Record(body, stream_id="ab"[n % 2], partition=Partition(1, topic, n % 2))
            for n, body in enumerate(bodies)
        ]
        list(producer.send_many(topic, records))


def test_consume_prints_everything_once_and_moves_no_position(run: Run, filled: str) -> None:
    for _ in range(2):
        rows = run("consume", filled).rows()
        assert sorted(row["value"] for row in rows) == sorted(f"n{n}" for n in range(20))
        assert {row["partition"] for row in rows} == {"1:0", "1:1"}


def test_consume_is_bounded_by_offsets_count_stream_and_partition(run: Run, filled: str) -> None:
    def raw(*options: object) -> list[str]:
        return run("consume", filled, "-o", "raw", *options).out.split()

    assert raw("--from", "1:0=280", "--to", "1:0=392", "-p", "1:0") == ["n10", "n12"]
    assert raw("--limit", 3, "-p", "1:1") == ["n1", "n3", "n5"]
    assert raw("--stream", "b", "-n", 2) == ["n1", "n3"]
    assert raw("--from", "latest") == []
    hexed = run("consume", filled, "-n", 1, "-o", "hex")
    assert hexed.out == b"n0".hex() + "\n"


def test_packed_bodies_are_unpacked(run: Run, fresh: str, settings: ClientSettings) -> None:
    builder = TDMsgBuilder(compress=False)
    for body in (b"one", b"\xff"):
        builder.add("groupId=g&streamId=s", body)
    send(settings, fresh, [builder.build(create_time_ms=1), b"plain"])
    rows = run("consume", fresh, "-o", "tdmsg", "-p", "1:0").rows()
    assert [(r["record"], r.get("value"), r.get("value_base64")) for r in rows] == [
        (0, "one", None),
        (1, None, "/w=="),
    ]
    assert rows[0]["attributes"]["streamId"] == "s"
    unreadable = run("consume", fresh, "-o", "tdmsg", "-p", "1:1")
    assert (unreadable.code, unreadable.err.count("Traceback")) == (1, 0)


def test_following_moves_the_position_behind_what_was_written(run: Run, filled: str) -> None:
    options = ("consume", filled, "--follow", "--group", "cli_follow", "-o", "raw", "--seconds")
    first = run(*options, 1.5)
    assert sorted(first.out.split()) == sorted(f"n{n}" for n in range(20))
    assert run(*options, 0.5).out == ""
    again = run(*options, 0.5, "--from", "1:0=504", "-p", "1:0")
    assert again.out.split() == ["n18"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_with_a_signal_and_zero(
    mq: EmbeddedTubeMQ, filled: str, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "tubemq_client.cli", "consume", filled, "--follow"]
    with subprocess.Popen(
        [*command, "--group", "cli_stopped", "--masters", mq.masters],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(20)]
        os.kill(process.pid, number)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()
    assert len({line["value"] for line in lines}) == 20
    assert not mq.broker(1).revoke_lease("cli_stopped", filled, 0), "it was given back"


def test_an_interrupted_consume_is_not_a_success(
    run: Run, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tubemq_client.cli.records.write_record", interrupted)
    outcome = run("consume", filled)
    assert (outcome.code, outcome.err) == (130, "0 records\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--from", "somewhere"), "none of: earliest, latest, <partition>"),
        (("--from", "stored"), "none of"),
        (("--from", "1:0=5"), "multiple of 28"),
        (("--from", "earliest", "--from", "latest"), "given more than once"),
        (("--to", "1:0=28", "--to", "1:0=56"), "given more than once"),
        (("--from", "9:9=0"), "partition 9:9"),
        (("--to", "1=0"), "--to"),
        (("--partition", "x"), "--partition"),
        (("--balanced", "--partition", "1:0", "--to", "1:0=0"), "--to"),
        (("--follow", "--to", "1:0=0"), "--to"),
        (("--group", "1x"), "group name"),
    ],
)
def test_wrong_options_end_with_two(
    run: Run, filled: str, options: tuple[str, ...], words: str
) -> None:
    outcome = run("consume", filled, *options)
    assert outcome.code == 2, outcome
    assert words in outcome.err


def test_joining_shares_partitions_and_moves_the_position(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUBEMQ_HEARTBEAT_PERIOD_MS", "1000")  # partitions come with heartbeats
    switches = Switches(balance_period_ms=50)
    with EmbeddedTubeMQ(1, [TopicSpec("shared", partitions=2)], switches=switches) as server:
        settings = ClientSettings(masters=(address_of(server.masters),))
        send(settings, "shared", [b"n%d" % n for n in range(20)])
        options = ("--masters", server.masters, "--group", "cli_joined", "-o", "raw")
        found = run("consume", "shared", "--balanced", *options, "--limit", 20, "--seconds", 30)
        assert sorted(found.out.split()) == sorted(f"n{n}" for n in range(20))
        assert "assigned: 1:0" in found.err
        again = run("consume", "shared", "--follow", *options, "--seconds", 0.5)
        assert again.out == ""


def address_of(masters: str) -> tuple[str, int]:
    host, _, port = masters.partition(":")
    return host, int(port)


def test_following_obeys_the_options_of_a_file(
    run: Run, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUBEMQ_CONSUME_POSITION", "latest")
    following = ("consume", filled, "--follow", "--seconds", 0.5, "-o", "raw", "--group")
    assert run(*following, "cli_latest").out == ""
    monkeypatch.delenv("TUBEMQ_CONSUME_POSITION")
    assert len(run(*following, "cli_stored").out.split()) == 20


def test_a_batch_that_is_out_too_long_is_delivered_again(
    settings: ClientSettings, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A blocked pipe delays the confirmation; here the partition is taken again while it is
    written."""
    partition = Partition(1, filled, 0)

    class SlowPipe(io.BytesIO):
        def flush(self) -> None:
            if not again:
                again.append(consumer.pull(partition))

    again: list[object] = []
    out = SlowPipe()
    with AssignedConsumer(settings, "slow", {filled: ()}) as consumer:
        consumer.assign(partition)
        sink = _Sink(RecordWriter(out, Format.RAW), limit=None, deadline=None)
        assert _pull(consumer, partition, sink)
        assert "will be delivered again" in capsys.readouterr().err
        for _ in range(20):  # a broker answers from its file in parts
            if not _pull(consumer, partition, sink):
                break
    assert out.getvalue().split().count(b"n0") == 2


def test_closed_streams_are_reported_in_one_line(
    filled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdin", None)
        with pytest.raises(errors.ConfigError, match="standard input is closed"):
            RowSource(None, None, None, Selection.parse(None, None, None)).overview()
        with pytest.raises(errors.ConfigError, match="not confirmed"):
            confirmed("go on?", yes=False)
        closed.setattr(sys, "stdout", None)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 2
    assert "standard output is closed" in capsys.readouterr().err


def test_a_full_disk_ends_the_command_in_one_line(mq: EmbeddedTubeMQ, filled: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tubemq_client.cli", "consume", filled, "-m", mq.masters],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60 * PATIENCE,
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr.splitlines()[-1]


def test_following_continues_after_a_retriable_error(
    run: Run, mq: EmbeddedTubeMQ, filled: str
) -> None:
    """A confirmation and a fetch that fail, and a partition that its broker has forgotten."""
    broker = mq.broker(1)
    broker.fail(18, "java.lang.IllegalStateException", "confirm", times=1)
    broker.refuse(17, 500, "fetch", times=1)
    broker.refuse(17, 411, "forgotten", times=1)
    options = ("consume", filled, "--follow", "--group", "cli_troubled", "-o", "raw")
    found = run(*options, "--limit", 20, "--seconds", 20)
    assert found.code == 0, found
    assert set(found.out.split()) == {f"n{n}" for n in range(20)}
    assert "retrying" in found.err
    assert "its records will be delivered again" in found.err


def test_following_reads_partitions_that_the_topic_gets(
    run: Run,
    mq: EmbeddedTubeMQ,
    filled: str,
    settings: ClientSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def grow() -> None:
        eventually(lambda: "cli_grown" in mq.broker(1).groups() or None)
        mq.add_topic(TopicSpec(filled, stores=2, partitions=3))
        with Producer(settings) as producer:
            producer.send(filled, b"in a new one", partition=Partition(1, filled, 2))

    monkeypatch.setenv("TUBEMQ_METADATA_PERIOD_MS", "0")
    options = ("consume", filled, "--follow", "--group", "cli_grown", "-o", "raw")
    later = threading.Timer(0.0, grow)
    later.start()
    found = run(*options, "--from", "latest", "--limit", 1, "--seconds", 10)
    later.join()
    assert found.out == "in a new one\n"


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("stored", ["1-0", "2-0", "2-1"]),
        ("earliest", ["1-0", "2-0", "2-1"]),
        ("latest", ["1-0", "2-1"]),
    ],
)
def test_following_begins_while_a_broker_is_away(
    start: str,
    wanted: list[str],
    run: Run,
    fresh: str,
    mq: EmbeddedTubeMQ,
    settings: ClientSettings,
) -> None:
    """Reachable brokers are read meanwhile, and the rest from the position of the command."""
    group = f"cli_away_{start}"

    def send_to(broker_id: int, body: bytes) -> None:
        eventually(lambda: group in mq.broker(broker_id).groups() or None)
        with Producer(settings) as producer:
            producer.send(fresh, body, partition=Partition(broker_id, fresh, 0))

    def come_back() -> None:
        send_to(1, b"1-0")
        mq.broker(2).restart()
        send_to(2, b"2-1")

    with Producer(settings) as producer:
        producer.send(fresh, b"2-0", partition=Partition(2, fresh, 0))
    mq.broker(2).stop()
    later = threading.Timer(0.0, come_back)
    later.start()
    options = ("consume", fresh, "--follow", "--group", group, "-o", "raw")
    found = run(*options, "--from", start, "--limit", len(wanted), "--seconds", 20)
    later.join()
    assert (found.code, found.out.split()) == (0, wanted), found
    assert "retrying" in found.err


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_a_start_behind_the_end_is_refused(follow: tuple[str, ...], run: Run, filled: str) -> None:
    """An offset with one digit too many read no record, as if the partition were empty."""
    found = run("consume", filled, *follow, "--from", "1:0=56000", "--seconds", 5)
    assert (found.code, found.out) == (2, "")
    assert "--from 1:0=56000: its log ends at 560" in found.err
