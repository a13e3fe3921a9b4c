"""Looking and reading: partitions, ends, lag, group names, exact ranges; errors in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.cli.conftest import Run
from tests.client.cli.rows import TOPIC
from tests.kit.ports import reserved_port
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, Partition, Producer, Record, __version__
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.sync import AssignedConsumer


def test_partitions_name_their_store_and_broker(run: Run, mq: EmbeddedTubeMQ) -> None:
    rows = run("partitions", TOPIC, "-o", "jsonl").rows()
    assert [(row["partition"], row["store"]) for row in rows[:4]] == [
        ("1:0", 0),
        ("1:1", 0),
        ("1:10000", 1),
        ("1:10001", 1),
    ]
    assert rows[-1]["broker"] == f"2:{mq.broker(2).address}"
    assert all(row["subscribable"] for row in rows)
    table = run("partitions", TOPIC)
    assert "1:10001" in table.out
    assert "yes" in table.out


def test_ends_are_stable_unless_the_latest_are_requested(
    run: Run, fresh: str, settings: ClientSettings, mq: EmbeddedTubeMQ
) -> None:
    with Producer(settings) as producer:
        one = Partition(2, fresh, 10_001)
        list(producer.send_many(fresh, [Record(b"x", partition=one)] * 7))
    latest = {r["partition"]: r for r in run("ends", fresh, "--latest", "-o", "jsonl").rows()}
    assert latest["2:10001"] == {"partition": "2:10001", "min": 0, "latest": 196, "entries": 7}
    assert latest["2:10000"]["latest"] == 196
    assert latest["1:10001"]["latest"] == 0
    mq.broker(2).flush()
    stable = {r["partition"]: r for r in run("ends", fresh, "-o", "jsonl").rows()}
    assert stable["2:10001"] == {"partition": "2:10001", "min": 0, "stable": 196, "entries": 7}


def test_lag_counts_each_store_once_from_the_position_brokers_keep(
    run: Run, fresh: str, settings: ClientSettings, mq: EmbeddedTubeMQ
) -> None:
    partition = Partition(1, fresh, 0)
    with Producer(settings) as producer:
        list(producer.send_many(fresh, [Record(b"x", partition=partition)] * 10))
    with AssignedConsumer(settings, "lagging", {fresh: ()}) as consumer:
        consumer.assign(partition, 84)
        consumer.release(partition)
    mq.broker(1).flush()
    options = ("--admin", f"http://{mq.master_web}", "--group", "lagging")
    rows = {r["partition"]: r for r in run("lag", fresh, *options, "-o", "jsonl").rows()}
    assert rows["1:0"] == {"partition": "1:0", "position": 84, "end": 280, "lag": 7}
    assert rows["1:1"] == {"partition": "1:1", "position": None, "end": 280, "lag": 10}
    assert rows["2:0"]["lag"] == 0
    shown = run("lag", fresh, *options)
    assert "total lag: 10" in shown.err
    assert "-" in shown.out


def test_groups_lists_every_name_that_readers_use(run: Run) -> None:
    names = [row["group"] for row in run("groups", "names", "lake", "-o", "jsonl").rows()]
    assert len(names) == len(set(names)) == 65
    assert {"lake.r00", "lake.r31", "lake.p00", "lake.p31", "lake.e"} <= set(names)
    assert run("groups", "names", "1 lake").code == 2


def test_read_range_prints_exactly_the_range(
    run: Run, fresh: str, settings: ClientSettings
) -> None:
    partition = Partition(1, fresh, 1)
    records = [Record(b"n%d" % n, {"k": "v"}, "ab"[n % 2], None, partition) for n in range(40)]
    records[8] = records[8]._replace(body=b"\xff\x00")
    with Producer(settings) as producer:
        list(producer.send_many(fresh, records))
    got = run("read-range", fresh, "1:1", 140, 560)
    bodies = [b"n%d" % n for n in range(5, 20) if n != 8]
    rows = got.rows()
    assert [row["value"].encode() for row in rows if "value" in row] == bodies
    assert [row["value_base64"] for row in rows if "value" not in row] == ["/wA="]
    assert rows[0]["offset"] == 140
    assert rows[0]["attributes"] == {"k": "v"}
    assert got.err.startswith("15 records, ")
    raw = run("read-range", fresh, "1:1", 0, 196, "--stream", "b", "-o", "raw")
    assert raw.out == "n1\nn3\nn5\n"
    assert run("read-range", fresh, "1:1", 280, 280).out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((TOPIC, "1:0", 28, 0), "beyond end"),
        ((TOPIC, "1:0", 1, 28), "multiple of 28"),
        ((TOPIC, "0", 0, 28), "is not '<broker id>:<partition id>'"),
        ((TOPIC, "9:0", 0, 28), "no broker has id 9"),
        (("no topic", "1:0", 0, 28), "topic name"),
        ((TOPIC, "1:0", "x", 28), "valid integer"),
        ((TOPIC, "1:0", 0, 28, "--group", "1x"), "group name"),
        ((TOPIC, "1:0", 0, 28, "--stream", "a b"), "stream id"),
    ],
)
def test_wrong_ranges_end_with_two(run: Run, arguments: tuple[object, ...], words: str) -> None:
    outcome = run("read-range", *arguments)
    assert outcome.code == 2, outcome
    assert words in " ".join(outcome.err.replace("│", " ").split())


def test_a_range_beyond_the_log_ends_with_one(run: Run, fresh: str) -> None:
    outcome = run("read-range", fresh, "1:0", 0, 28_000)
    assert outcome.code == 1
    assert "shorter than the planned range" in outcome.err


COMMANDS = [
    ("partitions", TOPIC),
    ("ends", TOPIC),
    ("lag", TOPIC, "--group", "lagging", "--admin", "http://127.0.0.1:1"),
    ("read-range", TOPIC, "1:0", "0", "28"),
    ("produce", TOPIC),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_dead_master_ends_with_one_in_one_line(
    run: Run, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUBEMQ_REGISTER_PAUSE_MS", "1")  # a producer tries more than once
    with reserved_port() as port:
        dead = f"127.0.0.1:{port}"
        outcome = run(*command, "--masters", dead, text='{"a": 1}\n')
    assert outcome.code == 1, outcome
    assert outcome.err.startswith(f"tubemq: cannot connect to {dead}")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("command", ["partitions", "ends", "produce"])
def test_an_unknown_topic_ends_with_one(run: Run, command: str) -> None:
    outcome = run(command, "nowhere", text="")
    assert outcome.code == 1, outcome
    assert "nowhere" in outcome.err


def test_a_master_that_stays_silent_ends_with_one_in_one_line(run: Run, mq: EmbeddedTubeMQ) -> None:
    mq.silence_master(20)
    try:
        outcome = run("partitions", TOPIC, "--rpc-timeout-ms", 1_000)
    finally:
        mq.silence_master()
    assert outcome.code == 1
    assert "within 1000 ms (option rpc_timeout_ms)" in outcome.err
    assert outcome.err.count("\n") == 1


def test_help_and_version_need_no_cluster(run: Run) -> None:
    assert run("--version").out == f"{__version__}\n"
    listing = run("--help").out
    for name in ("partitions", "ends", "lag", "groups", "produce", "read-range", "serve"):
        assert name in listing
        assert "Usage" in run(name, "--help").out
    assert run("frobnicate").code == 2


def interpreter(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_a_missing_extra_gives_its_install_line(missing: str) -> None:
    done = interpreter(
        f"import sys; sys.modules['{missing}'] = None\n"
        "from tubemq_client.cli import main\n"
        "sys.argv[1:] = ['--help']; main()"
    )
    assert done.returncode == 2
    assert "pip install 'airflow-provider-tubemq[cli]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_importing_the_client_loads_no_terminal_library() -> None:
    loaded = interpreter(
        "import sys, json, tubemq_client, tubemq_client.cli\n"
        "print(json.dumps([m for m in ('typer', 'rich', 'pydantic') if m in sys.modules]))"
    )
    assert json.loads(loaded.stdout) == []


def test_output_may_be_cut_off(mq: EmbeddedTubeMQ, fresh: str, run: Run, tmp_path: Path) -> None:
    """`tubemq read-range … | head` ends without a traceback."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"pad": "x" * 500}) + "\n" for _ in range(8_000)))
    assert run("produce", fresh, "--file", rows).code == 0
    end = run("ends", fresh, "--latest", "-o", "jsonl").rows()[0]["latest"]
    read = [sys.executable, "-m", "tubemq_client.cli", "read-range", fresh, "1:0", "0", str(end)]
    with subprocess.Popen(
        [*read, "--masters", mq.masters], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
        assert process.wait(30) == 1
