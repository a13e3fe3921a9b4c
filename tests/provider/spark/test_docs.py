"""The page about the source names every option, default and column, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.spark.options import OPTIONS

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_every_option_is_documented_with_its_names_and_default() -> None:
    documented = {}
    for names, default, _ in table("Options"):
        found = re.findall(r"`([^`]+)`", names)
        documented[found[0]] = (tuple(found[1:]), default.strip("`"))
    assert list(documented) == [option.name for option in OPTIONS]
    for option in OPTIONS:
        aliases, default = documented[option.name]
        assert aliases == option.aliases
        assert option.default is None or default == option.default


def test_every_column_is_documented_with_its_type() -> None:
    documented = [(row[0].strip("`"), row[1].strip("`")) for row in table("Columns")]
    assert documented == [(column.name, column.spark) for column in RECORDS]
