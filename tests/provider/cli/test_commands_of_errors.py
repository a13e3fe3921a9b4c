"""Every command that an error prints is run by a test where it is printed, and mends it.

The table names the test of each command; those of the `tubemq` command that a task's log prints are
run here against an embedded cluster, with the error's own words.
"""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.kit.engines import inline_engine
from tests.kit.servers import client_settings, embedded_tubemq
from tubemq_client import ClientSettings, OffsetRange, Partition, Producer, RangeReader, Record
from tubemq_client.cli.app import build_app
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
from tubemq_client.errors import CorruptRecord, NotAuthorized
from tubemq_provider.hooks.failures import ErrorContext, explained
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
TESTS = {
    "airflow tubemq check": (LOOKS, "checks.check"),
    "airflow tubemq offsets adopt": ("tests/provider/offsets/test_ledger.py", "adopt"),
    "airflow tubemq offsets epoch": (LOST, "as_the_error_says"),
    "airflow tubemq offsets rebuild": (LOST, "rebuild"),
    "airflow tubemq offsets set": (LOST, "as_the_error_says"),
    "airflow tubemq offsets show": (LOOKS, "offsets.show"),
    "airflow tubemq windows coverage": ("tests/provider/cli/test_window_commands.py", "coverage"),
    "tubemq doctor": (CLIENT, "test_a_dead_master_names_the_doctor"),
    "tubemq groups names": (HERE, "test_a_group_that_may_not_read_is_let_in"),
    "tubemq produce": (HERE, "test_a_boundary_that_is_late_is_written"),
    "tubemq read-range": (HERE, "test_a_bad_record_is_printed"),
    "tubemq topics modify": (HERE, "test_a_group_that_may_not_read_is_let_in"),
    "tubemq topics list": (HERE, "test_the_topics_are_listed"),
}
PRINTED = re.compile(
    r"[\"' :](airflow tubemq (?:check|(?:offsets|windows) [a-z]+)"
    r"|tubemq (?:produce|read-range|doctor|(?:groups|topics) [a-z]+))(?=[ '\"])"
)


def printed() -> set[str]:
    """Return the commands in the texts of errors and of tasks' logs."""
    rooms = [ROOT / "tubemq_provider" / room for room in ("hooks", "windows", "operators")]
    files = [file for room in rooms for file in room.rglob("*.py")]
    files += (ROOT / "tubemq_provider" / "offsets").rglob("*.py")
    found = set()
    for file in files:
        joined = re.sub(r'"\n\s*f?"', "", file.read_text())
        found |= {match for match in PRINTED.findall(joined) if "--help" not in match}
    return found


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
