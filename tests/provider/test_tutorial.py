"""The tutorial and the README's first Dag, run as they are printed.

A TubeMQ is embedded, and tasks run outside of a scheduler: `airflow` and `pip` are not called. What
they set up (connection, metadata database) is the fixture's. Directories below /tmp are moved into
the test's own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions._internal.contextmanager import DagContext
from typer.testing import CliRunner

from tests.kit.printed import Block, blocks, commands, prints
from tests.provider.contexts import accept, data_interval, fake_context
from tubemq_client import Producer
from tubemq_client.cli.app import build_app
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
from tubemq_provider.sinks.read import published_windows

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
SETS_UP = ("python3 -m venv", ". lake", "pip ", "git ", "make ", "tubemq serve", "export ", "rm ")
"""Commands whose work the fixture does, or whose work cannot be asserted here."""


class Reader:
    """User who types what a page prints."""

    def __init__(self, mq: EmbeddedTubeMQ, folder: Path) -> None:
        self.mq = mq
        self.folder = folder
        self.kept: dict[Any, Any] = {}
        self.runs = 0
        self.ran: list[str] = []

    def read(self, page: str) -> None:
        for block in blocks(ROOT / page):
            if block.language == "python":
                self._python(block)
            elif block.language == "console":
                for number, command in enumerate(commands(block), 1):
                    failing = block.fails and number == len(commands(block))
                    self._command(command.line, command.output, failing=failing)

    def moved(self, text: str) -> str:
        return text.replace("/tmp/lake", str(self.folder / "lake"))

    def _python(self, block: Block) -> None:
        if block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.moved(block.text))
        else:
            exec(compile(block.text, "page", "exec"), {})

    def _command(self, line: str, output: str, *, failing: bool) -> None:
        if line.startswith(SETS_UP):
            return
        self.ran.append(line)
        if line.startswith("airflow dags test "):
            _, _, _, dag_id, *at = line.split()
            if failing:
                with pytest.raises(Exception, match=r"\w") as caught:
                    self._run_dag(dag_id, *at)
                assert prints(output, str(caught.value)), f"{line} printed {caught.value}"
            else:
                self._run_dag(dag_id, *at)
        elif not line.startswith("airflow "):
            printed = self._shell(line)
            assert prints(output, printed), f"{line} printed {printed}"

    def _shell(self, line: str) -> str:
        text = None
        program, bar, rest = line.partition("| tubemq ")
        if bar:
            text, line = self._shell(program), f"tubemq {rest}"
        if line.startswith("tubemq "):
            found = CliRunner().invoke(
                build_app(), self.moved(line).split()[1:], input=text, env=self._environment()
            )
            assert found.exit_code == 0, found.output
            if line.startswith("tubemq produce "):
                self.mq.broker(1).store(line.split()[2], 0).flush()
            return found.output
        python = line.replace("python3 ", f"{sys.executable} ")
        return subprocess.run(
            ["bash", "-c", self.moved(python)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def _environment(self) -> dict[str, str]:
        admin = {"TUBEMQ_ADMIN": self.mq.master_web or "", "TUBEMQ_ADMIN_TOKEN": "abc"}
        return {"TUBEMQ_MASTERS": self.mq.masters, **admin}

    def _run_dag(self, dag_id: str, at: str | None = None) -> None:
        """Run the tasks of a Dag in the folder `dags`, as the next run of theirs."""
        self.runs += 1
        dag = self._dags()[dag_id]
        interval = {}
        if at is not None:
            # As Airflow does for a run by hand of an hourly Dag: the hour that ends at its date.
            end = datetime.fromisoformat(at)
            interval = data_interval(end - timedelta(hours=1), end)
        for task in dag.tasks:
            context = fake_context(task, self.kept, run=f"run {self.runs}", **interval)
            type(task).execute.__wrapped__(task, context)
            accept(context, self.kept)

    def _dags(self) -> dict[str, DAG]:
        """Return the Dags of the folder, collected as Airflow does: no name keeps them."""
        collected = DagContext.autoregistered_dags
        collected.clear()
        DagContext.current_autoregister_module_name = "builtins"
        try:
            for path in (self.folder / "dags").glob("*.py"):
                exec(compile(path.read_text(), str(path), "exec"), {})
            return {dag.dag_id: dag for dag, _ in collected}
        finally:
            DagContext.current_autoregister_module_name = None
            collected.clear()


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    switches = Switches(flush_interval_ms=20)
    with EmbeddedTubeMQ(1, ["orders"], http=True, switches=switches) as mq:
        connection = {"conn_type": "tubemq", "host": mq.masters}
        monkeypatch.setenv("AIRFLOW_CONN_TUBEMQ_DEFAULT", json.dumps(connection))
        yield Reader(mq, tmp_path)


def test_the_tutorial_runs_as_printed(reader: Reader) -> None:
    reader.read("docs/tutorial.md")
    assert len(reader.ran) > 15


def test_the_chinese_pages_print_the_same_commands_and_programs() -> None:
    tutorial = [block.text for block in blocks(ROOT / "docs" / "tutorial.md")]
    assert [block.text for block in blocks(ROOT / "docs" / "zh" / "tutorial.md")] == tutorial
    readme = [block.text for block in blocks(ROOT / "README.md")]
    for block in blocks(ROOT / "README.zh-CN.md"):
        assert block.text in readme


def test_the_first_dag_of_the_readme_runs_as_printed(reader: Reader) -> None:
    """Its Dag block has no file name: it is saved as one here."""
    (dag,) = [b for b in blocks(ROOT / "README.md") if "with DAG(" in b.text]
    path = reader.folder / "dags" / "first.py"
    path.parent.mkdir()
    path.write_text(reader.moved(dag.text))
    for block in blocks(ROOT / "README.md"):
        for command in commands(block) if block.language == "console" else ():
            reader._command(command.line, command.output, failing=False)
    assert {"mkdir -p /tmp/lake", "airflow dags test orders_to_lake"} <= {*reader.ran}
    lake = str(reader.folder / "lake" / "orders")
    assert sum(marker.counts.total for marker in published_windows(lake)) == 2


def test_the_clients_of_the_readme_run_as_printed(reader: Reader) -> None:
    """The consumer's loop has no end; everything before it is run."""
    settings = ClientConfig.parse({"masters": reader.mq.masters}).settings()
    with Producer(settings) as producer:
        for body in (b"one", b"two"):
            producer.send("orders", body)
    reader.mq.broker(1).store("orders", 0).flush()
    first, second = [
        block.text.replace("127.0.0.1:8715", reader.mq.masters)
        for block in blocks(ROOT / "README.md")
        if block.language == "python" and "from tubemq_client import" in block.text
    ]
    names: dict[str, Any] = {}
    exec(compile(first, "README", "exec"), names)
    assert names["message"].body == b"two"
    exec(compile(second.partition("with Consumer(")[0], "README", "exec"), names)
    assert names["receipt"]
