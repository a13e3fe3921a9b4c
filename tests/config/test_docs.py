"""The option tables in the docs are the models': same names, same defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from tubemq_client.config import ClientConfig, ConsumerConfig, ProducerConfig

PAGE = Path(__file__).parents[2] / "docs" / "protocol" / "options.md"


def documented(title: str) -> dict[str, str]:
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", section, re.MULTILINE))


@pytest.mark.parametrize(
    ("model", "base"),
    [(ClientConfig, None), (ConsumerConfig, ClientConfig), (ProducerConfig, ClientConfig)],
)
def test_every_option_is_documented_with_its_default(
    model: type[BaseModel], base: type[BaseModel] | None
) -> None:
    own = {n: f for n, f in model.model_fields.items() if not base or n not in base.model_fields}
    expected = {
        name: "–" if field.is_required() else str(field.default or "none")
        for name, field in own.items()
    }
    expected = {name: "none" if text == "()" else text for name, text in expected.items()}
    assert documented(model.__name__) == expected
