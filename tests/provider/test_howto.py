"""Every page of docs/how-to runs as it is printed, against an embedded TubeMQ and a real Airflow.

One server, one Airflow database and one process with Airflow serve all pages. A page has its own
folder, its own topics, and its own Dags. What a block prints is compared; a block that no test can
run says why (``not-run="…"``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.printed import Block, commands, prints, steps
from tests.provider.sinks.object_server import object_server
from tests.provider.sinks.postgres import postgres_server, socket_of
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
SETS_UP = ("python3 -m venv", "pip ", "tubemq serve")
"""Commands whose work the fixture does."""


class Shell:
    """User who types what pages print."""

    def __init__(self, mq: EmbeddedTubeMQ, root: Path) -> None:
        self.mq = mq
        self.root = root
        self.replaced = {
            "127.0.0.1:8715": mq.masters,
            "127.0.0.1:8081": str(mq.master_web).removeprefix("http://"),
        }
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(root / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(root / "dags"),
            "AIRFLOW_CONN_TUBEMQ_DEFAULT": json.dumps({"conn_type": "tubemq", "host": mq.masters}),
            "TUBEMQ_MASTERS": mq.masters,
            "TUBEMQ_ADMIN": str(mq.master_web),
            "TUBEMQ_ADMIN_TOKEN": "abc",
            "COLUMNS": "250",
            "NO_COLOR": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.page_shell"],
            cwd=ROOT,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, do: str, **more: Any) -> tuple[int, str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"do": do, **more}), file=self.process.stdin, flush=True)
        found = json.loads(self.process.stdout.readline())
        return found["code"], found["output"]

    def read(self, page: Path) -> int:
        """Run a page; return the number of blocks that were run."""
        folder = self.root / page.stem
        (folder / "lake").mkdir(parents=True)
        shutil.rmtree(self.root / "dags", ignore_errors=True)
        (self.root / "dags").mkdir()
        (folder / "dags").symlink_to(self.root / "dags")
        self.replaced["/tmp/lake"] = str(folder / "lake")
        self.ask("page", folder=str(folder))
        printed, ran = "", 0
        for block in steps(page):
            if block.not_run:
                continue
            ran += 1
            if block.language == "hidden":
                exec(block.text, {"mq": self.mq, "shell": self})
            elif block.title:
                path = folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.moved(block.text))
            elif block.language == "python":
                code, printed = self.ask("python", text=self.moved(block.text))
                assert not code, printed[-3000:]
            elif block.language == "text":
                assert prints(self.moved(block.text), printed), printed
            elif block.language == "console":
                self.console(block)
        return ran

    def console(self, block: Block) -> None:
        typed = commands(block)
        for number, command in enumerate(typed, 1):
            if command.line.startswith(SETS_UP):
                continue
            code, printed = self.ask("command", line=self.moved(command.line))
            if "tubemq produce " in command.line:
                self.mq.broker(1).flush()
            fails = block.fails and number == len(typed)
            assert bool(code) == fails, f"{command.line} ended with {code}: {printed[-3000:]}"
            expected = self.moved(command.output)
            assert prints(expected, printed), f"{command.line} printed {printed[-3000:]}"

    def moved(self, text: str) -> str:
        for word, other in self.replaced.items():
            text = text.replace(word, other)
        return text

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    root = tmp_path_factory.mktemp("how-to")
    with EmbeddedTubeMQ(1, [], http=True, switches=Switches(flush_interval_ms=20)) as mq:
        shell = Shell(mq, root)
        try:
            code, printed = shell.ask("command", line="airflow db migrate")
            assert not code, printed
            yield shell
        finally:
            shell.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_as_printed(page: Path, shell: Shell) -> None:
    with ExitStack() as servers:
        if page.stem == "s3":
            options = servers.enter_context(object_server())
            shell.replaced["http://127.0.0.1:9000"] = options["endpoint"]
        if page.stem == "postgresql":
            socket = socket_of(servers.enter_context(postgres_server()))
            shell.replaced["//warehouse/lake?"] = f"///postgres?host={socket}&"
            shell.replaced['"host": "warehouse"'] = f'"host": "{socket}"'
        assert shell.read(page) > 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_about_one_screen(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 110
