"""The option tables in the docs are the models': same names, same defaults, same ranges."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from tubemq_client.config import AuthConfig, ClientConfig, ConsumerConfig, ProducerConfig, TlsConfig
from tubemq_client.config.base import range_of
from tubemq_client.config.foreign import GO_IDLE, GO_KEYS, INI_IDLE, INI_KEYS
from tubemq_client.config.groups import BoundConfig

PAGE = (Path(__file__).parents[3] / "docs" / "protocol" / "options.md").read_text()
MODELS: list[tuple[type[BaseModel], type[BaseModel] | None]] = [
    (ClientConfig, None),
    (AuthConfig, None),
    (TlsConfig, None),
    (ConsumerConfig, ClientConfig),
    (BoundConfig, None),
    (ProducerConfig, ClientConfig),
]


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def documented(title: str) -> dict[str, tuple[str, str]]:
    rows = re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \| ([^|]+?) \|", section(title), re.MULTILINE)
    return {name: (default, allowed) for name, default, allowed in rows}


def default_of(value: object) -> str:
    if value is None or value in ((), {}):
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(("model", "base"), MODELS)
def test_every_option_is_documented_with_its_default_and_range(
    model: type[BaseModel], base: type[BaseModel] | None
) -> None:
    own = {n: f for n, f in model.model_fields.items() if not base or n not in base.model_fields}
    found = documented(model.__name__)
    assert {name: default for name, (default, _) in found.items()} == {
        name: "–"
        if field.is_required()
        else default_of(field.get_default(call_default_factory=True))
        for name, field in own.items()
    }
    numbers = {n: range_of(f) for n, f in own.items() if f.annotation in (int, float)}
    assert {name: found[name][1] for name in numbers} == numbers


def test_names_of_other_clients_lead_to_options_that_exist() -> None:
    known = set(ConsumerConfig.model_fields) | set(ProducerConfig.model_fields)
    known |= {f"auth.{name}" for name in AuthConfig.model_fields}
    known |= {f"tls.{name}" for name in TlsConfig.model_fields}
    known |= {f"bound.{name}" for name in BoundConfig.model_fields}
    ours = set(re.findall(r"^\| `([\w.]+)` \|", section("Names in other clients"), re.MULTILINE))
    assert ours
    assert ours <= known


def test_every_key_of_an_ini_file_is_documented() -> None:
    text = section("Names in other clients")
    for key, ours in INI_KEYS.items():
        assert re.search(rf"^\| `{ours}` \|.*`{key}`", text, re.MULTILINE), key
    assert [key for key in INI_IDLE if f"`{key}`" not in text] == []


def test_every_key_of_a_go_address_is_documented() -> None:
    text = section("Names in other clients")
    for key, ours in GO_KEYS.items():
        assert re.search(rf"^\| `{ours}` \|.*`{key}`", text, re.MULTILINE), key
    assert [key for key in GO_IDLE if f"`{key}`" not in text] == []
