"""Every block of the README and of the pages of docs/ runs as it is printed.

A page is one session: its blocks share their names, its servers are embedded, and hosts and
directories that it names are moved there. Dags and operators run their tasks. What a page supposes,
or calls of functions that it only defines, are its comments ``<!-- run: … -->``. A block that
cannot run here says why (``not-run="…"``, ``only-built="…"``). The tutorial, the how-to pages and
blocks on Spark have separate tests.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions._internal.contextmanager import DagContext
from typer.testing import CliRunner

from rocketmq_client.embedded import EmbeddedRocketMQ
from tests.kit.printed import Block, commands, prints, steps
from tests.provider.contexts import accept, fake_context
from tubemq_client import Consumer, Producer, Record
from tubemq_client.cli.app import build_app
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
SWITCHES = Switches(flush_interval_ms=20)
FROM_EMPTY = {"README.md", "dagster.md"}
"""Pages whose topic has nothing but what the page sends."""
ELSEWHERE = {"tutorial.md"}
LANGUAGES = {"python", "console", "shell"}
PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if path.name not in ELSEWHERE and any(step.language in LANGUAGES for step in steps(path))
]
TOPICS = ("orders", "refunds", "alerts", "inlong", "flights")
HOST = r"(?:127\.0\.0\.1|m\d|master\d)"
MASTERS = re.compile(rf"{HOST}:87\d\d(?:,{HOST}:87\d\d)*")
WEB = re.compile(rf"http://{HOST}:80\d\d")
FOLDERS = re.compile(r"(?<=[\"':])(/tmp/lake|/data|/lake|/shared)(?=[/\"'])|/tmp/lake")
SETS_UP = re.compile(
    r"(?:pip|git|make|kill|tubemq serve|airflow d(?:b|ags test)|python -m tools\.)\b"
)
"""Commands whose work the fixtures do, or that need genuine servers."""
PARTITION_RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
"""Tags of a run for a range of partitions."""


class Page:
    """User who types the blocks of one page."""

    def __init__(self, mq: EmbeddedTubeMQ, folder: Path, servers: ExitStack) -> None:
        self.mq = mq
        self.folder = folder
        self.servers = servers
        self.names: dict[str, Any] = {"__name__": "page", "page": self, "mq": mq, "folder": folder}
        self.kept: dict[Any, Any] = {}
        self.runs = 0
        self.rocketmq = ""

    def read(self, page: Path) -> int:
        """Run the blocks; return how many were run."""
        ran = 0
        for step in steps(page):
            if step.language not in {*LANGUAGES, "hidden"} or step.not_run or step.on_spark:
                continue
            ran += 1
            try:
                self.run(step)
            except Exception as error:
                error.add_note(f"in {page.name}:\n{step.text}")
                raise
        return ran

    def run(self, step: Block) -> None:
        if step.language in {"console", "shell"}:
            self.type(step)
            return
        connection: dict[str, Any] = {"conn_type": "tubemq", "host": self.mq.masters}
        if 'cluster="prod"' in step.text:
            connection["extra"] = {"cluster": "prod"}
        os.environ["AIRFLOW_CONN_TUBEMQ_DEFAULT"] = json.dumps(connection)
        if step.title:
            Path(step.title).write_text(self.moved(step.text))
        code = compile(self.moved(step.text), "page", "exec")
        if "Operator(" in step.text or "DAG(" in step.text:
            for dag in self.dags(code):
                if not step.only_built:
                    self.run_tasks(dag)
        else:
            exec(code, self.names)

    def type(self, block: Block) -> None:
        """Run the commands of a console block; each line of a shell block is one."""
        text = block.text if block.language == "console" else re.sub(r"(?m)^", "$ ", block.text)
        for command in commands(Block("console", "", text)):
            line = command.line.partition(" #")[0].strip()
            if not line or SETS_UP.match(line):
                continue
            printed = self.typed(self.moved(line))
            assert prints(command.output, printed), f"{line} printed {printed}"
            self.mq.broker(1).flush()

    def typed(self, line: str) -> str:
        """Run a command, a pipe into `tubemq` too; return what it prints."""
        program, bar, rest = line.partition("| tubemq ")
        text = self.typed(program) if bar else None
        line = f"tubemq {rest}" if bar else line
        if line.startswith("tubemq "):
            found = CliRunner().invoke(build_app(), shlex.split(line)[1:], input=text)
            assert not found.exit_code, f"{line}: {found.output}"
            return found.output
        if line.startswith("export "):
            for name, _, value in (word.partition("=") for word in shlex.split(line)[1:]):
                os.environ[name] = value
            return ""
        if line.startswith("dagster asset materialize "):
            return materialized(line, self.dagster)
        if line.startswith("python3 -c "):
            with redirect_stdout(StringIO()) as printed:
                exec(shlex.split(line)[2], {})
            return printed.getvalue()
        found = subprocess.run(
            ["bash", "-c", line.replace("python3 ", f"{sys.executable} ")],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return found.stdout

    @cached_property
    def dagster(self) -> dg.DagsterInstance:
        """Instance of Dagster for the whole page: its tables take a second to make."""
        return dg.DagsterInstance.ephemeral()

    def fails(self, line: str) -> str:
        """Run a command of Dagster that must fail; return what its step says."""
        with pytest.raises(dg.Failure) as caught:
            self.typed(line)
        return str(caught.value.description)

    def materialize(self, *assets: Any, **resources: Any) -> None:
        """Materialize assets of the page, whose address has been moved."""
        assert dg.materialize(assets, resources=resources, instance=self.dagster).success

    def moved(self, text: str) -> str:
        text = MASTERS.sub(self.mq.masters, text)
        text = WEB.sub(str(self.mq.master_web), text)
        if re.search(r"ns1:9876|127\.0\.0\.1\", 9876", text):
            address = self.at_rocketmq()
            text = re.sub(r"ns1:9876(;ns2:9876)?", address, text)
            text = text.replace('127.0.0.1", 9876', '", '.join(address.split(":")))
        text = re.sub(r"timeout_ms=\d+_000", "timeout_ms=500", text).replace(
            'token="…"', 'token="abc"'
        )
        return FOLDERS.sub(lambda found: f"{self.folder}{found[1] or '/tmp/lake'}", text)

    def at_rocketmq(self) -> str:
        if not self.rocketmq:
            server = self.servers.enter_context(EmbeddedRocketMQ(topics={"orders": 2}))
            ((host, port), *_) = server.settings.name_servers
            self.rocketmq = f"{host}:{port}"
        return self.rocketmq

    def settings(self) -> Any:
        return ClientConfig.parse({"masters": self.mq.masters}).settings()

    def briefly(self, function: Callable[[Any], None]) -> None:
        """Call a function that consumes until it is stopped, and stop it."""
        made: list[Consumer] = []

        class Stopped(Consumer):
            def __enter__(self) -> Any:
                made.append(self)
                threading.Timer(0.3, self.stop).start()
                return super().__enter__()

        function.__globals__["Consumer"] = Stopped
        function(self.settings())
        function.__globals__["Consumer"] = Consumer
        assert made

    def dags(self, code: Any) -> list[DAG]:
        """Run a block; return its Dags, and one of the operators that are in none."""
        collected = DagContext.autoregistered_dags
        collected.clear()
        DagContext.current_autoregister_module_name = "builtins"
        try:
            with DAG("page", schedule=None) as loose:
                exec(code, self.names)
            return [dag for dag, _ in collected if dag is not loose] + [loose]
        finally:
            DagContext.current_autoregister_module_name = None
            collected.clear()

    def run_tasks(self, dag: DAG) -> None:
        """Run the tasks that the provider has the operators of; sensors wait elsewhere."""
        self.runs += 1
        for task in dag.topological_sort():
            if type(task).__module__.startswith("tubemq_provider.operators"):
                context = fake_context(task, self.kept, run=f"run {self.runs}")
                type(task).execute.__wrapped__(task, context)
                accept(context, self.kept)


def materialized(line: str, instance: dg.DagsterInstance) -> str:
    """Do what `dagster asset materialize` does, in this process, which saves half a minute."""
    words = shlex.split(line)
    given = dict(zip(words[3::2], words[4::2], strict=True))
    asset = dg.AssetKey(given["--select"])
    job = runpy.run_path(given["-f"])["defs"].resolve_implicit_global_asset_job_def()
    first, _, last = given.get("--partition-range", "").partition("...")
    of_range = dict(zip(PARTITION_RANGE, (first, last), strict=True))
    result = job.execute_in_process(
        instance=instance,
        asset_selection=[asset],
        partition_key=given.get("--partition"),
        tags=of_range if first else None,
    )
    assert result.get_asset_materialization_events(), line
    return ""


@pytest.fixture(scope="module")
def mq() -> Iterator[EmbeddedTubeMQ]:
    topics = [TopicSpec(topic, partitions=2) for topic in (*TOPICS, "shop_changes")]
    with EmbeddedTubeMQ(1, topics, http=True, switches=SWITCHES) as mq:
        with Producer(ClientConfig.parse({"masters": mq.masters}).settings()) as producer:
            for topic in TOPICS:
                for _ in producer.send_many(topic, [Record(b'{"id": 1}', stream_id="paid")] * 300):
                    pass
        mq.broker(1).flush()
        yield mq


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs_as_printed(
    page: Path, mq: EmbeddedTubeMQ, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AIRFLOW_CONN_TUBEMQ_DEFAULT": "",
        "TUBEMQ_MASTERS": mq.masters,
        "TUBEMQ_ADMIN": str(mq.master_web),
        "TUBEMQ_ADMIN_TOKEN": "abc",
        "ROCKETMQ_SECRET_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    if page.stem == "security":
        monkeypatch.setenv("TUBEMQ_AUTH_PASSWORD", "secret")
    for name in ("data", "lake/report", "lake/done", "tmp/lake", "shared"):
        (tmp_path / name).mkdir(parents=True)
    with ExitStack() as servers:
        if page.name in FROM_EMPTY:
            empty = EmbeddedTubeMQ(1, [TopicSpec("orders")], http=True, switches=SWITCHES)
            mq = servers.enter_context(empty)
            monkeypatch.setenv("TUBEMQ_MASTERS", mq.masters)
        ran = Page(mq, tmp_path, servers).read(page)
    skipped = [step for step in steps(page) if step.not_run or step.on_spark]
    assert ran or skipped
