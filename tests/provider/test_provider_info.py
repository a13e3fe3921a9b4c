"""The manifest is what Airflow expects, and everything it names exists."""

from __future__ import annotations

import ast
import json
import re
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from packaging.version import Version

import tubemq_provider
from tubemq_client import __version__
from tubemq_client.config import ClientConfig, TlsConfig
from tubemq_provider import get_provider_info as manifest_module
from tubemq_provider.get_provider_info import get_provider_info
from tubemq_provider.hooks.connection import ConnectionConfig

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

INFO: dict[str, Any] = get_provider_info()
ROOT = Path(tubemq_provider.__file__).parent


def schema(name: str) -> dict[str, Any]:
    return dict(json.loads(files("airflow").joinpath(name).read_text()))


def resolve(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def test_manifest_satisfies_the_installed_runtime_schema() -> None:
    jsonschema.validate(INFO, schema("provider_info.schema.json"))


def test_connection_form_satisfies_the_build_time_schema() -> None:
    # Only provider.yaml's schema specifies conn-fields; the runtime schema lets anything pass.
    part = schema("provider.yaml.schema.json")["properties"]["connection-types"]
    jsonschema.validate(INFO["connection-types"], part)


def test_package_name_is_the_canonical_distribution_name() -> None:
    # A mismatch is fatal to every airflow command, even `airflow version`.
    name = INFO["package-name"]
    pyproject = (ROOT.parent / "pyproject.toml").read_text()
    assert f'name = "{name}"' in pyproject
    assert name == re.sub(r"[-_.]+", "-", name).lower()


def test_every_listed_module_exists_and_every_module_is_listed() -> None:
    for kind in ("hooks", "operators", "sensors", "triggers"):
        listed = {m for entry in INFO[kind] for m in entry["python-modules"]}
        for module in listed:
            assert import_module(module).__all__
        classes = {
            f"tubemq_provider.{kind}.{file.stem}"
            for file in (ROOT / kind).glob("*.py")
            if re.search(r"^class TubeMQ\w+\((?!Base)", file.read_text(), re.MULTILINE)
            and not file.stem.startswith("_")
        }
        assert classes <= listed


def test_every_listed_class_and_function_exists() -> None:
    for entry in INFO["connection-types"]:
        hook: Any = resolve(entry["hook-class-name"])
        assert hook.conn_type == entry["connection-type"]
        assert hook.hook_name == entry["hook-name"]
    for name in INFO["queues"]:
        assert resolve(name).scheme == "tubemq"
    for entry in INFO["asset-uris"]:
        assert callable(resolve(entry["handler"]))
        assert callable(resolve(entry["factory"]))


def test_form_fields_are_the_options_of_the_connection_and_carry_their_limits() -> None:
    fields = INFO["connection-types"][0]["conn-fields"]
    options = ConnectionConfig.model_json_schema()["properties"]
    tls = {f"tls_{name}" for name in TlsConfig.model_fields}
    assert set(fields) <= set(options) | tls
    assert {"cluster", "default_group", "admin_url", "rpc_timeout_ms", "tls"} <= set(fields)
    for name in set(fields) & set(ClientConfig.model_fields) - {"tls"}:
        form, option = fields[name]["schema"], options[name]
        for limit in ("minimum", "maximum", "default"):
            assert form[limit] == option[limit], (name, limit)


def test_no_option_is_newer_than_the_package() -> None:
    added = set(re.findall(r'"version_added": "(.+?)"', json.dumps(get_provider_info())))
    assert added
    assert max(map(Version, added)) <= Version(__version__)


def test_manifest_module_imports_nothing() -> None:
    tree = ast.parse(Path(manifest_module.__file__).read_text())
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert [n.module for n in imports if isinstance(n, ast.ImportFrom)] == ["__future__"]
    assert len(imports) == 1
