"""Each example under plugins/examples: built as a wheel, installed, and named by its word."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider import extensions
from tubemq_provider.hooks.by_kind import hook_class
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.job import IngestJob
from tubemq_provider.ingest.validation import parse
from tubemq_provider.offsets.registry import store_for
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sinks.factory import sink_for, sink_uri
from tubemq_provider.sources.registry import config_of, open_source
from tubemq_provider.windows.protocols import Step

EXAMPLES = Path(__file__).parents[3] / "plugins" / "examples"
BASE = {"topic": "orders", "group": "lake", "cluster": "main", "source": "text_lines"}
MOST_LINES = {
    "source": 80,
    "sink": 30,
    "engine": 20,
    "offset_store": 25,
    "resolver": 8,
    "decoder": 5,
}
"""Lines of code of an example, without imports, docstrings and blank lines."""


def lines_of_code(file: Path) -> int:
    text = file.read_text()
    other: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if constant or isinstance(node, ast.Import | ast.ImportFrom):
            other.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in lines if line.strip() and number not in other)


class Silent:
    def at(self, step: Step, point: str) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all examples, as installed from their wheels."""
    folder = tmp_path_factory.mktemp("site")
    build = "from hatchling.build import build_wheel; import sys; build_wheel(sys.argv[1])"
    for example in sorted(EXAMPLES.iterdir()):
        subprocess.run(
            [sys.executable, "-c", build, str(folder)], cwd=example, check=True, capture_output=True
        )
    for wheel in folder.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture
def examples(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    extensions._points.cache_clear()
    yield
    extensions._points.cache_clear()


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    folder = tmp_path / "cluster" / "orders"
    folder.mkdir(parents=True)
    (folder / "p0").write_text("apple 1\npear 2\n")
    (folder / "p1").write_text("plum 3\n")
    return folder


def run(topic: Path, store: Any, number: int, **given: Any) -> Any:
    arguments = parse(IngestArguments, {**BASE, "engine": "logging", **given})
    names = {name: BASE[name] for name in ("topic", "group")}
    settings = config_of("text_lines").parse({"root": str(topic.parent)}).settings()
    with ExitStack() as stack:
        source = open_source("text_lines", settings, identity="main", **names)
        sink = sink_for(arguments.destination, **arguments.sink_options)
        job = IngestJob(arguments, source, sink, stack)
        return job.run(store, attempt=str(number), serialised=True, observer=Silent())


def test_one_window_uses_a_plugin_of_every_kind(
    examples: None, topic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_LAKE", str(tmp_path))
    (tmp_path / "raw").mkdir()
    monkeypatch.setenv("EXAMPLE_STORE", str(tmp_path / "store"))
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    store = store_for("files", {"ti": ti}, SimpleNamespace(name="lines:main/orders/lake"))
    given = {
        "sink": "folder:lake",
        "plugin_options": {"sink": {"below": "raw"}},
        "decode": "words",
        "offset_store": "files",
        "initial_position": "earliest",
    }

    first = run(topic, store, 1, **given)
    again = run(topic, store, 2, **given)

    assert (first.total, first.engine, again.replayed) == (3, "logging", True)
    files = sorted((tmp_path / "raw" / "lake").rglob("part*.parquet"))
    words = [row["word"] for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert sorted(words) == ["apple", "pear", "plum"]


def test_a_window_of_time_gets_its_offsets_from_a_plugin(
    examples: None, topic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_STORE", str(tmp_path / "store"))
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    store = store_for("files", {"ti": ti}, SimpleNamespace(name="lines:main/orders/lake"))
    window = {"mode": "time", "start": "1990-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}

    result = run(topic, store, 1, sink=f"folder:{tmp_path}/lake", resolver="everything", **window)

    assert result.total == 3


def test_options_are_judged_by_the_plugins_model_with_all_other_problems(examples: None) -> None:
    given = {**BASE, "engine": "loging", "sink": "folder:lake", "decode": "word"}
    with pytest.raises(ConfigError) as caught:
        parse(IngestArguments, {**given, "plugin_options": {"sink": {"belov": "raw"}}})
    text = str(caught.value)
    assert "did you mean 'logging'?" in text
    assert "decode: format: 'word' is none of" in text
    with pytest.raises(ConfigError, match=r"plugin_options: sink: belov: .*did you mean 'below'?"):
        parse(
            IngestArguments,
            {
                **BASE,
                "engine": "logging",
                "sink": "folder:lake",
                "plugin_options": {"sink": {"belov": "raw"}},
            },
        )


def test_a_sink_of_a_plugin_refuses_what_it_does_not_accept(examples: None) -> None:
    with pytest.raises(ConfigError, match="schema_evolution has no effect"):
        sink_for("folder:lake", schema_evolution="add_columns")
    assert sink_uri("folder:lake/orders") == "folder://lake/orders"


def test_the_source_of_a_plugin_has_a_hook_for_commands_and_page(examples: None) -> None:
    hook: Any = hook_class("text_lines")
    assert (hook.conn_type, hook.default_conn_name) == ("text_lines", "text_lines_default")
    assert hook_class("unheard-of") is None


@pytest.mark.parametrize("kind", MOST_LINES)
def test_an_example_is_short(kind: str) -> None:
    files = [*(EXAMPLES / kind).rglob("*.py")]
    assert sum(map(lines_of_code, files)) <= MOST_LINES[kind]
    assert all(len(file.read_text().splitlines()) <= 150 for file in files)


def test_a_decoder_travels_as_the_function_that_it_is(examples: None) -> None:
    spec = DecodeSpec.parse("words")
    assert spec.document() == {
        "format": "function",
        "function": "example_words_decoder.decode",
        "schema": "word string",
    }
