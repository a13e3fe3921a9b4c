"""docs/public.toml is the one list of what is public: the manifest and the checkers keep to it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tubemq_provider.get_provider_info import get_provider_info

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """Import the scripts that make and check the documentation."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    names = ("reference", "check")
    modules = tuple(importlib.import_module(name) for name in names)
    for name in names:
        sys.modules.pop(name)
    return modules


def modules_of_the_manifest() -> set[str]:
    info = get_provider_info()
    kinds = ("hooks", "operators", "sensors", "triggers")
    modules = {name for kind in kinds for entry in info[kind] for name in entry["python-modules"]}
    classes = [*info["queues"], *info["notifications"], *info["extra-links"]]
    return modules | {name.rpartition(".")[0] for name in classes}


def test_what_airflow_learns_of_is_public(docs: tuple[ModuleType, ModuleType]) -> None:
    reference, _ = docs
    assert sorted(modules_of_the_manifest() - reference.public_modules()) == []


def test_every_public_name_has_its_docstring(docs: tuple[ModuleType, ModuleType]) -> None:
    reference, _ = docs
    pages = reference.Reference()
    pages.add_page("all", "All", sorted(reference.public_modules()))
    assert pages.problems == []


def test_a_missing_module_and_a_missing_list_are_problems(
    docs: tuple[ModuleType, ModuleType],
) -> None:
    reference, _ = docs
    pages = reference.Reference()
    pages.add_page("all", "All", ["tubemq_client.nowhere", "tubemq_provider.windows"])
    assert pages.problems == [
        "tubemq_client.nowhere: listed in docs/public.toml, and not there",
        "tubemq_provider.windows: listed in docs/public.toml, and has no `__all__`",
    ]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("from tubemq_client import Producer", ""),
        ("import tubemq_client.aio", ""),
        ("from tubemq_provider.sinks import parquet", ""),
        ("from tubemq_provider.sinks.factory import sink_for", ""),
        ("from tubemq_client import Nobody", "does not exist"),
        ("from tubemq_client.embedded.store import StoreLog", "is not public"),
        ("from tubemq_provider.files.writer import StagedWriter", "is not public"),
        ("import tubemq_client._core", "is not public"),
    ],
)
def test_pages_and_dags_show_public_names_only(
    docs: tuple[ModuleType, ModuleType], code: str, problem: str
) -> None:
    _, check = docs
    found = list(check._not_public(code, 0))
    assert problem in found[0] if found else not problem, found


def test_a_link_to_a_page_that_is_not_made_is_dead(
    docs: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    _, check = docs
    text = tmp_path / "page.md"
    text.write_text("[there](reference/client.md) [dead](reference/nowhere.md)")
    page = check.Page(ROOT / "docs" / "page.md", text)
    made = check.Page(ROOT / "docs" / "reference" / "client.md", text)
    problems = list(check.check_links(page, {made.path: made}))
    assert len(problems) == 1
    assert "nowhere.md: no such file" in problems[0]


def test_files_that_maintainers_are_sent_to_exist(
    docs: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    _, check = docs
    text = tmp_path / "page.md"
    text.write_text("`sinks/parquet.py` `_wire/framing.py` `tests/` `sinks/nothing.py` `nowhere/`")
    page = check.Page(ROOT / "ARCHITECTURE.md", text)
    assert [problem.split(": ")[1] for problem in check.check_paths(page)] == [
        "sinks/nothing.py",
        "nowhere/",
    ]
