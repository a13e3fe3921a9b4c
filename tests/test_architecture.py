"""House rules that no linter knows: charters, no import circle, light imports, missing extras.

The allowed imports are import-linter's business (`make imports`); this file checks each module
alone and the cost of importing the packages. It reads source text or runs a fresh interpreter, so
it never depends on the imports of another test. Sizes are for review: docs/adr/0030.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.devkit.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "tubemq_client",
    "rocketmq_client",
    "rocketmq_snode",
    "tubemq_provider",
    "pyspark_rocketmq",
    "pyspark_tubemq",
)
OTHER_CODE = ("dags", "docs", "tools")
SHORTEST_CHARTER = 3


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


CODE = python_files(*PACKAGES, *OTHER_CODE)


def fresh_python(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter that knows nothing of this test session."""
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )


def loaded_by(statement: str, suspects: tuple[str, ...]) -> list[str]:
    """Return those of `suspects` that a fresh interpreter has loaded after `statement`."""
    code = f"{statement}\nimport sys\nprint(*[m for m in {suspects!r} if m in sys.modules])"
    answer = fresh_python(code)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()


@pytest.mark.parametrize("path", CODE, ids=relative)
def test_every_module_opens_with_a_charter(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""

    assert len(docstring.splitlines()) >= SHORTEST_CHARTER, (
        f"{relative(path)}: say what it is, what it must not do and how it fits"
    )


def speaks(path: Path) -> bool:
    """Return True for a module with protocol facts: all of `_wire`, and conversations that name
    methods or messages."""
    if path.name == "__init__.py" or path.parent.name not in ("_wire", "_core"):
        return False
    words = ("import _pb", "import methods", "_wire.methods", "import strings", "commands")
    return path.parent.name == "_wire" or any(word in path.read_text() for word in words)


@pytest.mark.parametrize(
    "path", [p for p in python_files("tubemq_client", "rocketmq_client") if speaks(p)], ids=relative
)
def test_a_module_that_speaks_a_protocol_says_where_it_is_written_down(path: Path) -> None:
    """That what is cited exists, `docs/check.py` looks after."""
    cited = r"`docs/(rocketmq-)?protocol/[\w-]+\.md|[Uu]pstream's|docs/adr"
    assert re.search(cited, path.read_text())


WORDS_OF_CHARTERS = {
    "_",
    "_bytes",
    "_ms",
    "add_files",
    "arrow",
    "broker_heartbeats_if_due",
    "columns",
    "devkit",
    "dry_run",
    "fast",
    "has_more",
    "history",
    "master_heartbeat_if_due",
    "message_time",
    "next",
    "partition",
    "partition_by",
    "pyspark_",
    "read_windows",
    "rename",
    "repr",
    "retry_policy",
    "samples",
    "space",
    "tubemq",
    "tubemq_client",
    "with",
    "yield",
}
"""Words that charters show as code and that are neither modules nor in the module itself."""


def names_in(path: Path) -> set[str]:
    """Words of a module's code; of a room, what its modules define."""
    source = path.read_text("utf-8").split('"""', 2)[-1]
    lines = (line for line in source.splitlines() if not re.match(r"\s*(from|import) ", line))
    names = set(re.findall(r"\w+", "\n".join(lines)))
    if path.name == "__init__.py":
        for module in path.parent.glob("*.py"):
            names |= set(re.findall(r"(?:def|class) (\w+)", module.read_text("utf-8")))
    return names


def named_but_not_there(path: Path) -> set[str]:
    charter = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    package = ROOT / path.relative_to(ROOT).parts[0]
    rooms = (path.parent, path.parent.parent, package)
    there = {found.stem for room in rooms for found in room.iterdir()} | WORDS_OF_CHARTERS
    named = set(re.findall(r"(?<!`)`([a-z_][a-z0-9_]*)`(?!`)", charter))
    return named - there - names_in(path)


@pytest.mark.parametrize("package", PACKAGES)
def test_charters_name_what_is_there(package: str) -> None:
    strays = {relative(path): named_but_not_there(path) for path in python_files(package)}
    assert {name: words for name, words in strays.items() if words} == {}


def test_modules_do_not_name_each_other_in_circles() -> None:
    """Imports in functions and for types count, too; what a package passes on does not."""
    from graphlib import CycleError, TopologicalSorter

    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in python_files(*PACKAGES, "tools/devkit", "tools/drill")
        if path.name != "__init__.py"
    }
    graph = {name: set(named_by(path, modules)) - {name} for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def named_by(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that `path` imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & modules.keys() or {node.module}


LAKE = ("deltalake", "fsspec", "obstore", "pyiceberg", "sqlalchemy")
HEAVY = ("airflow", "asyncio", "httpx", "pyarrow", "pydantic", "pyspark", "rich", "typer")

CLIENTS = ("tubemq_client.aio", "tubemq_client.sync")
IN_A_DAG_FILE = ("deltalake", "duckdb", "obstore", "pandas", "pyarrow", "pyiceberg", "pyspark")


@pytest.mark.parametrize(
    ("statement", "suspects"),
    [
        ("import tubemq_client", (*HEAVY, "google.protobuf", "socket")),
        # What a Spark executor imports before it reads its first byte.
        ("from tubemq_client import RangeReader, OffsetRange", HEAVY),
        ("import tubemq_client.sync", HEAVY),
        ("import tubemq_client.aio", tuple(name for name in HEAVY if name != "asyncio")),
        ("import tubemq_client.tdmsg", (*HEAVY, "google.protobuf", "socket")),
        ("import tubemq_client.config", ("airflow", "httpx", "pyarrow", "pyspark")),
        ("import rocketmq_client", (*HEAVY, "google.protobuf", "socket")),
        ("from rocketmq_client import RangeReader, QueueRange", HEAVY),
        ("import rocketmq_client.aio", tuple(name for name in HEAVY if name != "asyncio")),
        ("import tubemq_provider", HEAVY),
        ("import tubemq_provider.get_provider_info", HEAVY),
        ("import tubemq_provider.windows.run.kinds", ("airflow", "pyarrow", "pyspark")),
        ("import tubemq_provider.sinks.factory", (*HEAVY, *LAKE)),
        ("import tubemq_provider.spark", ("airflow", "pyarrow", "pyspark")),
        # What the Dag processor imports for each file: no engine, no sink's library, no readers.
        ("import tubemq_provider.operators.ingest", (*IN_A_DAG_FILE, *CLIENTS)),
        ("import tubemq_provider.sensors.lag", (*IN_A_DAG_FILE, *CLIENTS)),
        ("import tubemq_provider.triggers.messages", IN_A_DAG_FILE),
        ("import pyspark_tubemq", ("airflow", "pyarrow", "pyspark", "tubemq_client")),
    ],
)
def test_importing_is_light(statement: str, suspects: tuple[str, ...]) -> None:
    assert loaded_by(statement, suspects) == []


DAG_FILE = """
from airflow.sdk import DAG
from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator, TubeMQWindowIngestOperator
from tubemq_provider.operators.rocketmq import RocketMQCursorIngestOperator
from tubemq_provider.sensors.lag import TubeMQLagSensor

COLUMNS = {"format": "json", "schema": "id bigint, price decimal(10,2), tags array<string>"}
common = {"topic": "orders", "group": "lake"}
tables = {
    word: {"sink": f"delta:/lake/{word}", "decode": COLUMNS} for word in ("orders", "refunds")
}
with DAG("parsed"):
    TubeMQCursorIngestOperator(task_id="typed", sink="delta:/lake/typed", decode=COLUMNS, **common)
    TubeMQWindowIngestOperator(
        task_id="avro", sink="s3://lake/avro", decode={"format": "avro", "schema": '"long"'},
        resolver="message_time", **common,
    )
    RocketMQCursorIngestOperator(task_id="other", path="/lake/other", decode=COLUMNS, **common)
    TubeMQCursorIngestOperator(
        task_id="routed", sink="/lake/home", engine="inline",
        routes={"name": "kinds", "by": "attribute:kind", "tables": tables}, **common,
    )
    TubeMQLagSensor(task_id="waits", **common)
"""
"""Dag file with typed columns and routes."""


@pytest.mark.airflow
def test_parsing_a_dag_file_loads_no_library_of_rows_or_lakes() -> None:
    suspects = (*IN_A_DAG_FILE, *CLIENTS, "confluent_kafka", "fastavro", "numpy", "polars")
    assert loaded_by(DAG_FILE, suspects) == []


def test_every_public_name_of_the_client_can_be_loaded() -> None:
    answer = fresh_python("from tubemq_client import *; import tubemq_client as t; print(dir(t))")

    assert answer.returncode == 0, answer.stderr
    assert "RangeReader" in answer.stdout


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
{code}
"""

SERVE = "from tubemq_client.embedded import EmbeddedTubeMQ\nwith EmbeddedTubeMQ(): pass"
ADMIN = "from tubemq_client.admin import AdminClient; AdminClient(['http://127.0.0.1:1'])"
PACK = "from tubemq_client import TDMsgBuilder; TDMsgBuilder(compress=True)"
READ = "from tubemq_provider.sinks.read import read_windows; read_windows('/nowhere')"
SINK = "from tubemq_provider.sinks.factory import sink_for; sink_for"


@pytest.mark.parametrize(
    ("extra", "absent", "code"),
    [
        ("cli", ("typer", "rich"), "from tubemq_client.cli import main; main()"),
        ("admin", ("httpx",), ADMIN),
        ("embedded", ("starlette", "uvicorn"), SERVE),
        ("metrics", ("opentelemetry",), "import tubemq_client.metrics"),
        ("arrow", ("pyarrow",), READ),
        ("arrow", ("pyarrow",), PACK),
        ("lake", ("deltalake",), f"{SINK}('delta:/nowhere')"),
        ("lake", ("pyiceberg",), f"{SINK}('iceberg:lake/sales.orders')"),
        ("lake", ("obstore",), f"{SINK}('s3://bucket/prefix')"),
        ("lake", ("sqlalchemy",), f"{SINK}('sqlite:////nowhere.db?table=orders')"),
        ("spark", ("pyspark",), "from tubemq_provider.spark import register; register(None)"),
        ("spark", ("pyspark",), "import pyspark_tubemq; pyspark_tubemq.DefaultSource"),
        ("airflow", ("airflow",), "import tubemq_provider.hooks.tubemq"),
        ("airflow", ("airflow",), "import tubemq_provider.operators.ingest"),
        ("airflow", ("airflow",), "import tubemq_provider.sensors.lag"),
    ],
)
def test_a_missing_extra_answers_with_its_install_line(
    extra: str, absent: tuple[str, ...], code: str
) -> None:
    answer = fresh_python(WITHOUT.format(absent=absent, code=code))

    assert answer.returncode != 0
    assert f"pip install 'airflow-provider-tubemq[{extra}]'" in answer.stderr
