"""Every command that an error prints is run by a test where it is printed, and mends it.

The table names the test of each command; those of the `tubemq` command that a task's log prints are
run here against an embedded cluster, with the error's own words.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.kit.engines import inline_engine
from tests.kit.servers import client_settings, embedded_tubemq
from tests.provider.cli.test_definition import parsed
from tests.provider.cli.test_offsets_commands import Here
from tests.provider.offsets.test_moving import Tasks
from tubemq_client import ClientSettings, OffsetRange, Partition, Producer, RangeReader, Record
from tubemq_client.cli.app import build_app
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
from tubemq_client.errors import ConfigError, CorruptRecord, NotAuthorized
from tubemq_provider.cli import checks, offsets
from tubemq_provider.hooks.failures import ErrorContext, explained
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.protocols import IngestWatch, Staging
from tubemq_provider.windows.time_resolvers.boundaries import Boundaries

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

ROOT = Path(__file__).parents[3]
TOPIC = "orders"

mq = embedded_tubemq([TOPIC], http=True, switches=Switches(flush_interval_ms=20))
settings = client_settings()

HERE = "tests/provider/cli/test_commands_of_errors.py"
OFFSETS = "tests/provider/cli/test_offsets_commands.py"
LOOKS = "tests/provider/cli/test_looks.py"
LOST = "tests/provider/sinks/test_lost_windows.py"
CLIENT = "tests/client/cli/test_commands.py"
PRINTED_BY_TUBEMQ = "tests/client/cli/test_printed_commands.py"
TESTS = {
    "airflow db migrate": ("tests/system/airflow/test_ledger_on_real_airflow.py", "migrate"),
    "airflow tubemq check": (HERE, "test_a_connection_is_checked"),
    "airflow tubemq offsets adopt": (HERE, "test_claims_of_dead_tasks_are_adopted"),
    "airflow tubemq offsets epoch": (LOST, "as_the_error_says"),
    "airflow tubemq offsets list": (
        "tests/system/airflow/test_ledger_on_real_airflow.py",
        '"offsets", "list"',
    ),
    "airflow tubemq offsets rebuild": (LOST, "rebuild"),
    "airflow tubemq offsets set": (LOST, "as_the_error_says"),
    "airflow tubemq offsets show": (LOOKS, "offsets.show"),
    "airflow tubemq windows coverage": ("tests/provider/cli/test_window_commands.py", "coverage"),
    "tubemq brokers list": (PRINTED_BY_TUBEMQ, "test_a_broker_that_is_off_line"),
    "tubemq doctor": (PRINTED_BY_TUBEMQ, "test_the_doctor_of_an_error"),
    "tubemq groups control": ("tests/client/cli/test_admin_commands.py", '"groups", "control"'),
    "tubemq groups list": (PRINTED_BY_TUBEMQ, "test_groups_that_there_are"),
    "tubemq groups names": (HERE, "test_a_group_that_may_not_read_is_let_in"),
    "tubemq produce": (HERE, "test_a_boundary_that_is_late_is_written"),
    "tubemq read-range": (HERE, "test_a_bad_record_is_printed"),
    "tubemq topics modify": (PRINTED_BY_TUBEMQ, "test_a_topic_that_exists"),
    "tubemq topics show": (PRINTED_BY_TUBEMQ, "test_a_topic_that_exists"),
    "tubemq topics list": (HERE, "test_the_topics_are_listed"),
}
PRINTED = re.compile(
    r"(?<![\w-])(airflow tubemq (?:check|plan|lag|(?:offsets|windows) [a-z]+)"
    r"|(?<!airflow )tubemq (?:consume|doctor|ends|lag|partitions|produce|read-range"
    r"|(?:brokers|groups|offsets|topics) [a-z]+)"
    r"|airflow db [a-z]+|rocketmq-snode [a-z]+)"
)
EXAMPLES = {"tubemq_client/cli/commands.py", "tubemq_provider/cli/definition.py"}
"""Files with the examples of ``--help``, which have other tests."""


def printed() -> set[str]:
    """Return the commands in the texts of the packages and of the web page, docstrings left out."""
    found = set()
    for room in ("tubemq_client", "tubemq_provider", "rocketmq_client", "pyspark_tubemq"):
        for file in (ROOT / room).rglob("*.py"):
            if str(file.relative_to(ROOT)) not in EXAMPLES:
                tree = ast.parse(file.read_text())
                found |= {match for text in texts(tree) for match in PRINTED.findall(text)}
    page = ROOT / "tubemq_provider" / "plugins" / "static" / "page.js"
    return found | set(PRINTED.findall(page.read_text()))


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module but its docstrings; what an f-string fills in is ``{}``."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            left_out.add(id(node.body[0].value))  # type: ignore[attr-defined]
        elif isinstance(node, ast.JoinedStr):
            left_out |= {id(value) for value in node.values}
            parts = (
                value.value if isinstance(value, ast.Constant) else "{}" for value in node.values
            )
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in left_out:
            yield str(node.value)


def test_every_printed_command_has_its_test() -> None:
    of_tests = {
        "airflow tubemq offsets retire": "tests/provider/cli/test_boundary_commands.py",
        "airflow tubemq offsets unfix": "tests/provider/cli/test_boundary_commands.py",
    }
    assert printed() <= {*TESTS, *of_tests}
    for file, name in [*TESTS.values(), *((file, "boundaries.") for file in of_tests.values())]:
        assert name in (ROOT / file).read_text(), (file, name)


def run(line: str, mq: EmbeddedTubeMQ) -> str:
    """Run a printed command as typed, in a shell where the cluster's addresses are set."""
    words = shlex.split(line)
    assert words.pop(0) == "tubemq"
    environment = {
        "TUBEMQ_MASTERS": mq.masters,
        "TUBEMQ_ADMIN": mq.master_web,
        "TUBEMQ_ADMIN_TOKEN": "abc",
    }
    outcome = CliRunner().invoke(build_app(), words, env=environment)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def produce(settings: ClientSettings, mq: EmbeddedTubeMQ, *bodies: bytes) -> int:
    """Send records, and return the end of the partition."""
    partition = Partition.from_key(TOPIC, "1:0")
    with Producer(settings) as producer:
        sent = list(
            producer.send_many(TOPIC, [Record(body, partition=partition) for body in bodies])
        )
    mq.broker(1).store(TOPIC, 0).flush()
    return sent[-1].offset + 28


def test_a_bad_record_is_printed(
    settings: ClientSettings, mq: EmbeddedTubeMQ, tmp_path: Path
) -> None:
    long = b'{"id": "\x1b[2J' + b"x" * 500 + b'"}'
    end = produce(settings, mq, b'{"id": 1}', b'{"id": 2}', long, b'{"id": "bad"}')
    decode = DecodeSpec.parse({"format": "json", "schema": "id bigint"})
    plan = WindowPlan.explicit(WindowScope("test", TOPIC, "lake", "test"), {"1:0": (0, end)})
    with pytest.raises(CorruptRecord) as caught:
        inline_engine(settings, policies=Policies(), decode=decode).ingest(
            plan, Staging("w", "a", str(tmp_path)), IngestWatch()
        )
    error = str(caught.value)
    assert r'the record: {"id": "\x1b[2Jxxx' in error
    assert "x…; 2 of the 4 records decoded with it are bad; " in error
    assert len(error) < 700
    assert "policies=IngestPolicies(corrupt_records=" in error

    about = ErrorContext("tubemq_default", TOPIC, "lake", masters=lambda: mq.masters)
    text = explained(caught.value, about)
    (command,) = re.findall(r"^to see the record: (.+)$", text, re.MULTILINE)
    shown = [json.loads(line)["value"] for line in run(command, mq).splitlines()]
    assert shown[-1] == long.decode()


def test_a_boundary_that_is_late_is_written(
    settings: ClientSettings, mq: EmbeddedTubeMQ, tmp_path: Path
) -> None:
    rows, file = tmp_path / "rows.jsonl", tmp_path / "boundaries.json"
    rows.write_text('{"at": "2026-11-26T20:10:00"}\n{"at": "2026-11-26T20:50:00"}\n')
    file.write_text("{}")
    end = datetime(2026, 11, 26, 21, tzinfo=UTC)
    with pytest.raises(WindowNotReady) as caught:
        Boundaries.load(file, TOPIC).offsets_at(end)
    (command,) = re.findall(r"(tubemq produce .+)$", str(caught.value))
    run(command.replace("ROWS", str(rows)).replace("NAME", "at"), mq)
    assert Boundaries.load(file, TOPIC).offsets_at(end)


def test_a_group_that_may_not_read_is_let_in(settings: ClientSettings, mq: EmbeddedTubeMQ) -> None:
    end = produce(settings, mq, b"a")

    def read() -> int:
        range_ = OffsetRange(Partition.from_key(TOPIC, "1:0"), 0, end)
        with RangeReader(settings, group="lake") as reader:
            return sum(len(batch) for batch in reader.read(range_))

    run(f"tubemq topics modify {TOPIC} --authorisation --yes", mq)
    with pytest.raises(NotAuthorized) as caught:
        read()
    text = " ".join(explained(caught.value, ErrorContext("c", TOPIC, "lake")).split())
    command, listing = re.findall(r"'(tubemq (?:topics|groups) [^']+)'", text)
    assert "lake.r00" in run(listing, mq)
    run(f"{command} --yes", mq)
    assert read() == 1


def test_the_topics_are_listed(mq: EmbeddedTubeMQ) -> None:
    source = (ROOT / "tubemq_provider" / "hooks" / "tubemq.py").read_text()
    (command,) = re.findall(r"to list the topics: (tubemq topics list --admin )", source)
    assert TOPIC in run(f"{command}{mq.master_web}", mq)


def test_a_connection_is_checked_as_the_error_says(
    mq: EmbeddedTubeMQ, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command names the step that fails, and is green when its connection was mended."""

    @contextmanager
    def nothing() -> Iterator[Any]:
        yield []

    monkeypatch.setattr(checks, "groups", nothing)
    dead = {"conn_type": "tubemq", "host": "127.0.0.1:1", "extra": {"rpc_timeout_ms": 1000}}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(dead))
    hook = TubeMQHook("shop")
    with pytest.raises(Exception, match="cannot connect") as caught:
        hook.ends(TOPIC, "lake")
    text = explained(caught.value, ErrorContext("shop", TOPIC, "lake"))
    (command,) = re.findall(r"^to look further: airflow (.+)$", text, re.MULTILINE)
    arguments = parsed(f"{command} -o json")
    assert inspect.unwrap(checks.check)(arguments) == 1
    failed = [row for row in json.loads(capsys.readouterr().out) if row["result"] == "failed"]
    assert "127.0.0.1:1" in next(row["what"] for row in failed if row["check"] == "cluster")

    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "tubemq", "host": mq.masters}))
    inspect.unwrap(checks.check)(arguments)
    rows = {row["check"]: row["result"] for row in json.loads(capsys.readouterr().out)}
    assert (rows["connection"], rows["cluster"]) == ("ok", "ok")


def test_claims_of_dead_tasks_are_adopted_as_the_error_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = Tasks(tmp_path)
    world = tasks.world
    world.log.append("1:0", 3)
    tasks.run("ledger")
    world.log.append("1:0", 8)
    tasks.run("ledger", dies_at="plan claimed")
    tasks.run("ledger")
    with pytest.raises(ConfigError) as caught:
        tasks.run("asset_state")
    (command,) = re.findall(r"'airflow (tubemq offsets adopt [^']+)'", str(caught.value))
    group = Here(tasks.state, ledger=True)

    @contextmanager
    def opened(asset: str) -> Iterator[Here]:
        scope = world.planner(max_records=4).scope
        assert asset == f"{scope.cluster}/{scope.topic}/{scope.group}"
        yield group

    monkeypatch.setattr(offsets, "open_group", opened)
    inspect.unwrap(offsets.adopt)(parsed(f"{command} --yes"))
    tasks.run("ledger")
    while (result := tasks.run("asset_state")) is not None and not result.empty:
        pass
    assert world.sink.records() == Counter(world.log.all_records())
