"""The page about the source documents every option, default and column, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.spark.options import OPTIONS, parse_options

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "spark.md").read_text(encoding="utf-8")
KAFKA_PAGE = (DOCS / "how-to" / "from-spark-sql-kafka.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
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


def jobs_of_kafka(reader: str) -> tuple[str, str]:
    """Return the job before and after the change, for `read` or `readStream`."""
    blocks = re.findall(r"^```python[^\n]*\n(.*?)```", KAFKA_PAGE, re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if f"spark.{reader}." in block]
    before, after = block.split("# after\n")
    return before.removeprefix("# before\n"), after.split("# as it was\n")[0]


@pytest.mark.parametrize("reader", ["read", "readStream"])
def test_a_job_on_kafka_changes_its_format_and_options_and_nothing_else(reader: str) -> None:
    before, after = jobs_of_kafka(reader)
    changed = re.compile(r"\.option\(|\.format\(")
    kept = [
        [line for line in job.splitlines() if not changed.search(line)] for job in (before, after)
    ]
    assert kept[0] == kept[1]
    assert f'spark.{reader}.format("kafka")' in before
    assert f'spark.{reader}.format("tubemq")' in after
    options = dict(re.findall(r'\.option\("([^"]+)", "([^"]+)"\)', after))
    parse_options(
        {name.lower(): value for name, value in options.items()}, streaming=reader == "readStream"
    )
    table_of_kafka = " ".join(re.findall(r"^\| ([^|]*) \|", KAFKA_PAGE, re.MULTILINE))
    for name in dict(re.findall(r'\.option\("([^"]+)", "([^"]+)"\)', before)):
        assert f"`{name}`" in table_of_kafka
