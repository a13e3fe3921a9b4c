"""The table of other clients' methods leads to names that exist, in both shells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tubemq_client
from tubemq_client import aio

PAGE = (Path(__file__).parent.parent / "docs" / "methods.md").read_text()
CLASSES = ("AssignedConsumer", "Consumer", "Metadata", "Producer", "Session")
OF_CONSTRUCTORS = {"topics", "bound", "router", "tubemq_client.__version__"}
"""Arguments, which are no attributes."""


def named(title: str) -> set[str]:
    """Return the identifiers in the last column of a table."""
    rows = re.findall(
        r"^\|.*\| ([^|]+) \|$", PAGE.split(f"## {title}\n")[1].split("\n## ")[0], re.MULTILINE
    )
    return {n.rstrip("=") for row in rows for n in re.findall(r"`([A-Za-z_.]+=?)`", row)}


@pytest.mark.parametrize("title", ["Making and closing", "Consuming", "Producing"])
def test_every_method_named_here_exists(title: str) -> None:
    for shell in (tubemq_client, aio):
        known = set(CLASSES) | OF_CONSTRUCTORS
        for name in CLASSES:
            found = {member for member in dir(getattr(shell, name)) if not member.startswith("_")}
            known |= found | {f"{name}.{member}" for member in found}
        known |= {"partitions"}
        assert named(title) - known == set(), shell.__name__


def test_every_field_of_a_record_named_here_exists() -> None:
    fields = {f"Message.{name}" for name in tubemq_client.Message._fields}
    assert {name for name in named("A record") if name.startswith("Message.")} <= fields
