"""The plugin as every Airflow process loads it, and the files it serves."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.resources import files

import pytest

from tools.devkit.patience import PATIENCE
from tubemq_provider.get_provider_info import get_provider_info

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

STATIC = files("tubemq_provider.plugins").joinpath("static")


def test_the_plugin_is_registered_once() -> None:
    (point,) = (found for found in entry_points(group="airflow.plugins") if found.name == "tubemq")
    assert point.load().name == "tubemq"
    # Airflow would load it a second time from the manifest, and call that an error.
    assert "plugins" not in get_provider_info()


def test_loading_the_plugin_loads_neither_the_page_nor_a_client() -> None:
    code = (
        "import sys, tubemq_provider.plugins.page; heavy = ('fastapi', 'pyarrow');"
        "print(*(m for m in sys.modules if m.startswith('tubemq') or m in heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=True,
    )
    found = set(done.stdout.split()) & {"fastapi", "pyarrow"}
    own = {name for name in done.stdout.split() if name.startswith("tubemq")}
    light = {"tubemq_provider", "tubemq_provider.get_provider_info"}
    assert own - light == {"tubemq_provider.plugins", "tubemq_provider.plugins.page"}
    assert not found


def test_the_page_has_no_inline_script_style_or_foreign_address() -> None:
    page = STATIC.joinpath("index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|https?://", page)
    script = STATIC.joinpath("page.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(", script)
    # The one address in it is a namespace.
    assert re.findall(r"https?://[^\"']+", script) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in STATIC.joinpath("page.css").read_text()
