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
        extensions._versions.cache_clear()

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


GIVEN: dict[str, Any] = {
    "topic": "orders",
    "group": "lake",
    "cluster": "main",
    "sink": "/lake",
    "initial_position": "earliest",
}
TIME = {
    "mode": "time",
    "start": "2026-01-01T00:00:00Z",
    "end": "2026-01-02T00:00:00Z",
    "initial_position": None,
}
OPTIONS = "def make(*_): pass\nmake.schema = 'a string'\nmake.Options = Options\n"
BAD = {
    "import": ("import no_such_package", "cannot be imported"),
    "syntax": ("def (", "cannot be imported .*SyntaxError"),
    "exit": ("raise SystemExit(3)", "cannot be imported .*SystemExit: 3"),
    "interface": ("interface = 2\ndef make(*_): pass", "was written for interface 2"),
    "nothing there": ("other = print", "cannot be imported .*no attribute 'make'"),
    "no function": ("make = 3", "which cannot be called"),
    "no model": (f"class Options: pass\n{OPTIONS}", "Options that are no pydantic model"),
}


def naming(kind: str, word: str, options: Any = None) -> dict[str, Any]:
    """Return the arguments of an ingest that names a plug-in."""
    given = {
        "source": {"source": word},
        "sink": {"sink": f"{word}:/lake"},
        "engine": {"engine": word},
        "offset_store": {"offset_store": word},
        "resolver": {"resolver": word, **TIME},
        "decoder": {"decode": {"format": word, **(options or {})}},
    }[kind]
    others = {} if kind == "decoder" or not options else {"plugin_options": {kind: options}}
    return {**GIVEN, **given, **others}


@pytest.mark.parametrize("kind", [kind for kind in GROUPS if kind != "source"])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_plugin_of_any_kind_is_one_error_in_a_dag_and_one_row_of_the_list(
    install: Install, kind: Any, case: str
) -> None:
    code, problem = BAD[case]
    install("poor", kind, "poor", code)
    install("good", kind, "good", "def make(*_): pass")

    with pytest.raises(ConfigError, match=rf"'poor' of poor 1.0 .*{problem}") as caught:
        parse(IngestArguments, naming(kind, "poor"))

    assert len(caught.value.problems) == 1
    problems = {each.word: problem_of(each) for each in installed(kind)}
    assert "poor 1.0" in str(problems.pop("poor"))
    assert set(problems.values()) == {None}
    parse(IngestArguments, GIVEN)


@pytest.mark.parametrize(
    ("modules", "problem"),
    [
        ({"__init__": "import no_such_package"}, "cannot be imported"),
        ({"__init__": "interface = 2"}, "was written for interface 2"),
        ({"__init__": ""}, "cannot be imported .*space"),
        ({"__init__": "", "space": "", "columns": ""}, "cannot be imported .*no attribute 'SPACE'"),
        (
            {
                "__init__": "",
                "space": "from tubemq_provider.sources.tubemq.space import SPACE",
                "columns": "COLUMNS = ()",
            },
            "has a SPACE of the kind 'tubemq'",
        ),
    ],
)
def test_a_bad_source_is_one_error_in_a_dag_and_one_row_of_the_list(
    install: Install, tmp_path: Path, modules: dict[str, str], problem: str
) -> None:
    install("poor", "source", "poor", "")
    points = tmp_path / "poor-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[{GROUPS['source']}]\npoor = {tmp_path.name}_poor\n")
    folder = tmp_path / f"{tmp_path.name}_poor"
    folder.mkdir()
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code)

    with pytest.raises(ConfigError, match=rf"source 'poor' of poor 1.0 .*{problem}") as caught:
        parse(IngestArguments, naming("source", "poor"))

    assert len(caught.value.problems) == 1
    assert [problem_of(each) is None for each in installed("source")] == [True, True, False]


@pytest.mark.parametrize("kind", ["sink", "engine", "offset_store", "resolver", "decoder"])
@pytest.mark.parametrize(
    ("fields", "options", "name"),
    [
        ("    token: SecretStr", {"token": "s3cret"}, "token"),
        ("    hidden: SecretStr = Field(alias='token')", {"token": "s3cret"}, "token"),
        ("    inner: Inner", {"inner": {"token": "s3cret"}}, "inner.token"),
        ("    many: list[Inner]", {"many": [{"token": "s3cret"}]}, "many.token"),
    ],
)
def test_a_secret_at_any_depth_is_refused_in_a_dag(
    install: Install, kind: Any, fields: str, options: dict[str, Any], name: str
) -> None:
    code = "from pydantic import BaseModel, Field, SecretStr\n"
    code += "class Inner(BaseModel):\n    token: SecretStr\n"
    install("shy", kind, "shy", f"{code}class Options(BaseModel):\n{fields}\n{OPTIONS}")

    with pytest.raises(ConfigError, match=rf"{name}: is a secret") as caught:
        parse(IngestArguments, naming(kind, "shy", options))

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("kind", ["sink", "engine", "offset_store", "resolver"])
@pytest.mark.parametrize("made", ["None", "{}", "print"])
def test_a_factory_that_makes_something_else_names_its_distribution(
    install: Install, kind: Any, made: str
) -> None:
    install("odd", kind, "odd", f"def make(*_): return {made}")
    with pytest.raises(ConfigError, match=r"'odd' of odd 1\.0 made an object of \w+, which has no"):
        call(kind, "odd")


def test_what_raises_beside_the_factory_names_its_distribution(install: Install) -> None:
    judge = "def make(*_): pass\ndef problems(_): raise OSError('full')\nmake.problems = problems"
    install("weak", "sink", "weak", judge)
    with pytest.raises(ConfigError, match=r"'weak' of weak 1\.0 failed: OSError: full"):
        parse(IngestArguments, naming("sink", "weak"))

    code = "from pydantic import BaseModel, field_validator\n"
    code += "class Options(BaseModel):\n    size: str\n    @field_validator('size')\n"
    code += "    @classmethod\n    def judge(cls, value): raise KeyError(value)\n"
    install("hasty", "engine", "hasty", code + OPTIONS)
    with pytest.raises(ConfigError, match=r"of hasty 1\.0 failed to judge .*KeyError"):
        parse(IngestArguments, naming("engine", "hasty", {"size": "s3cret"}))


@pytest.mark.parametrize("word", ["Upper", "with:colon", "two words", "dotted.word", "Ünï", "9"])
def test_a_word_that_is_not_valid_is_told(install: Install, word: str) -> None:
    install("loud", "engine", word, "def make(*_): pass")

    with pytest.raises(ConfigError, match=r"of loud 1.0 has a word that is not valid"):
        parse(IngestArguments, {**GIVEN, "engine": word})

    (loud,) = (each for each in installed("engine") if each.word == word)
    assert "lower-case letters" in str(problem_of(loud))


def test_a_sink_with_capitals_is_told_and_words_stay_exact(install: Install) -> None:
    install("loud", "sink", "Upper", "def make(*_): pass")
    with pytest.raises(ConfigError, match=r"of loud 1.0 has a word that is not valid"):
        parse(IngestArguments, naming("sink", "Upper"))
    install("good", "engine", "good", "def make(*_): pass")
    with pytest.raises(ConfigError, match=r"'Good' is none of .*did you mean 'good'"):
        parse(IngestArguments, naming("engine", "Good"))


def test_two_versions_in_one_directory_are_told(install: Install, tmp_path: Path) -> None:
    install("dup", "engine", "dup", "def make(*_): pass")
    second = tmp_path / "dup-2.0.dist-info"
    second.mkdir()
    (second / "METADATA").write_text("Metadata-Version: 2.1\nName: dup\nVersion: 2.0\n")
    (second / "entry_points.txt").write_text(f"[{GROUPS['engine']}]\ndup = dup_module:make\n")
    extensions._points.cache_clear()
    extensions._versions.cache_clear()

    with pytest.raises(ConfigError, match=r"is installed in the versions 1\.0 and 2\.0") as caught:
        parse(IngestArguments, naming("engine", "dup"))
    assert len(caught.value.problems) == 1


def test_a_source_whose_client_is_missing_names_its_distribution(
    install: Install, tmp_path: Path
) -> None:
    from tubemq_provider.sources.registry import config_of

    install("poor", "source", "bare", "")
    points = tmp_path / "poor-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[{GROUPS['source']}]\nbare = {tmp_path.name}_bare\n")
    folder = tmp_path / f"{tmp_path.name}_bare"
    folder.mkdir()
    space = "from dataclasses import replace\n"
    space += "from tubemq_provider.sources.tubemq.space import SPACE as like\n"
    space += "SPACE = replace(like, source='bare')\n"
    modules = {"__init__": "", "space": space, "columns": "COLUMNS = ()"}
    for name, code in {**modules, "source": "import no_such_package"}.items():
        (folder / f"{name}.py").write_text(code)

    with pytest.raises(ConfigError, match=r"source 'bare' of poor 1\.0 failed: ModuleNotFound"):
        config_of("bare")
    (bare,) = (each for each in installed("source") if each.word == "bare")
    assert "no_such_package" in str(problem_of(bare))
    with pytest.raises(ConfigError, match=r"of poor 1\.0 failed") as caught:
        parse(IngestArguments, {**naming("source", "bare"), "consumer_config": {"a": 1}})
    assert len(caught.value.problems) == 1
