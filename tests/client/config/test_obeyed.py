"""No option is only decoration: the client reads each somewhere beyond the models that check it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

import tubemq_client
from tubemq_client.config import AuthConfig, ClientConfig, ConsumerConfig, ProducerConfig, TlsConfig

ROOT = Path(tubemq_client.__file__).parent
PASSING_ON = ("config", "testing", "embedded")
"""Rooms in which reading an option obeys nothing: it is checked there, or belongs to a server."""


def attributes_read() -> Iterator[str]:
    for path in ROOT.rglob("*.py"):
        room = path.relative_to(ROOT).parts[0]
        if room in PASSING_ON or path == ROOT / "model.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                yield node.attr


@pytest.fixture(scope="module")
def read() -> set[str]:
    return set(attributes_read())


@pytest.mark.parametrize(
    "model", [ClientConfig, AuthConfig, TlsConfig, ConsumerConfig, ProducerConfig]
)
def test_every_option_is_read_by_the_client(model: type[BaseModel], read: set[str]) -> None:
    assert [name for name in model.model_fields if name not in read] == []
