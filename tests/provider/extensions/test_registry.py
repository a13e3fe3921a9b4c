"""The registry of plug-ins: what is found, what is imported, and what bad ones cost."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider import extensions
from tubemq_provider.extensions import (
    BUILT_IN,
    GROUPS,
    call,
    installed,
    load,
    options_problems,
    problem_of,
)
from tubemq_provider.ingest.arguments import IngestArguments
from tubemq_provider.ingest.validation import parse
from tubemq_provider.rows.spec import FORMATS
from tubemq_provider.sinks._database_address import DATABASES

ROOT = Path(__file__).parents[3]
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with one entry point and one module."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installing(name: str, kind: Any, word: str, code: str) -> None:
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{GROUPS[kind]}]\n{word} = {name}_module:make\n")
        (tmp_path / f"{name}_module.py").write_text(code)
        monkeypatch.delitem(sys.modules, f"{name}_module", raising=False)
        extensions._points.cache_clear()

    yield installing
    extensions._points.cache_clear()


@pytest.mark.parametrize(
    ("kind", "word"), [(kind, word) for kind, words in BUILT_IN.items() for word in words]
)
def test_every_built_in_word_is_loaded_by_the_registry(kind: Any, word: str) -> None:
    assert load(kind, word) is not None


def test_the_built_in_words_are_entry_points_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {kind: project["entry-points"][group] for kind, group in GROUPS.items()} == BUILT_IN


def test_every_format_and_database_is_registered() -> None:
    assert set(BUILT_IN["decoder"]) == set(FORMATS)
    assert set(DATABASES) < set(BUILT_IN["sink"])


def test_listing_imports_no_plugin(install: Install) -> None:
    install("bad", "sink", "bad", "raise RuntimeError('boom')")
    assert "bad 1.0" in {plugin.distribution for plugin in installed("sink")}


def test_a_plugin_that_cannot_be_imported_names_its_distribution(install: Install) -> None:
    install("bad", "engine", "bad", "raise RuntimeError('boom')")
    with pytest.raises(ConfigError, match=r"engine 'bad' of bad 1\.0 cannot be imported.*boom"):
        load("engine", "bad")
    assert load("engine", "inline")


def test_a_word_that_two_claim_is_refused_with_both(install: Install) -> None:
    install("one", "sink", "twice", "make = print")
    install("two", "sink", "twice", "make = print")
    with pytest.raises(ConfigError, match=r"claimed by one 1\.0 and two 1\.0"):
        load("sink", "twice")
    install("three", "sink", "delta", "make = print")
    with pytest.raises(ConfigError, match=r"claimed by airflow-provider-tubemq and three 1\.0"):
        load("sink", "delta")


def test_another_interface_is_refused(install: Install) -> None:
    install("new", "resolver", "new", "interface = 2\ndef make(*_): pass")
    with pytest.raises(ConfigError, match=r"new 1\.0 was written for interface 2"):
        load("resolver", "new")


def test_what_is_wrong_with_a_plugin_is_found_without_a_task(install: Install) -> None:
    install("bad", "engine", "bad", "raise RuntimeError('boom')")
    install("new", "engine", "new", "interface = 2\ndef make(*_): pass")
    install("good", "engine", "good", "def make(*_): pass")
    install("thief", "engine", "inline", "def make(*_): pass")
    problems = {
        (plugin.word, plugin.distribution): problem_of(plugin) or ""
        for plugin in installed("engine")
    }
    assert "boom" in problems.pop(("bad", "bad 1.0"))
    assert "interface 2" in problems.pop(("new", "new 1.0"))
    for owner in ("airflow-provider-tubemq", "thief 1.0"):
        assert "claimed by" in problems.pop(("inline", owner))
    assert ("good", "good 1.0") in problems
    assert set(problems.values()) == {""}


def test_a_factory_that_raises_names_its_distribution(install: Install) -> None:
    install("weak", "offset_store", "weak", "def make(*_): raise OSError('full')")
    with pytest.raises(ConfigError, match=r"'weak' of weak 1\.0 failed: OSError: full"):
        call("offset_store", "weak", {}, None)


def test_a_secret_is_refused_in_a_dag(install: Install) -> None:
    code = """
from pydantic import BaseModel, SecretStr
class Options(BaseModel):
    token: SecretStr
def make(*_): pass
make.Options = Options
"""
    install("shy", "sink", "shy", code)
    (problem,) = options_problems("sink", "shy", {"token": "s3cret"})
    assert "token: is a secret" in problem
    assert "s3cret" not in problem


SECRET = """
from pydantic import BaseModel, SecretStr
class Options(BaseModel):
    token: SecretStr
def make(*_): pass
make.Options = Options
"""


@pytest.mark.parametrize(
    ("code", "options", "problem"),
    [
        ("import no_such_package", {}, r"engine 'poor' of poor 1\.0 cannot be imported"),
        ("interface = 2\ndef make(*_): pass", {}, r"poor 1\.0 was written for interface 2"),
        (
            "other = print",
            {},
            r"engine 'poor' of poor 1\.0 cannot be imported .*no attribute 'make'",
        ),
        (SECRET, {"token": "s3cret"}, "token: is a secret"),
        ("def make(*_): pass", {"size": 1}, r"engine 'poor' of poor 1\.0 has no options"),
    ],
    ids=["import", "interface", "nothing there", "secret", "options"],
)
def test_a_bad_plugin_is_one_clear_error_when_a_dag_is_parsed(
    install: Install, code: str, options: dict[str, Any], problem: str
) -> None:
    install("poor", "engine", "poor", code)
    given = {
        "topic": "orders",
        "group": "lake",
        "cluster": "main",
        "sink": "/lake",
        "initial_position": "earliest",
    }
    with pytest.raises(ConfigError, match=problem) as caught:
        parse(IngestArguments, {**given, "engine": "poor", "plugin_options": {"engine": options}})
    assert len(caught.value.problems) == 1
    assert "s3cret" not in str(caught.value)
    parse(IngestArguments, {**given, "engine": "inline"})  # other words still work
