"""The documented code table and the classes agree, code by code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tubemq_client import errors

pytestmark = pytest.mark.timeout(60)

PAGE = Path(__file__).parents[3] / "docs" / "protocol" / "errors.md"
ROW = re.compile(r"^\| (\d{3}) \| `(\w+)` \|.*\| ([^|]+) \|$", re.MULTILINE)


def test_every_code_is_documented_with_its_class():
    documented = {int(code): name for code, name, _ in ROW.findall(PAGE.read_text())}
    implemented = {
        code: type(errors.for_code(code)).__name__
        for code in range(1000)
        if type(errors.for_code(code)) is not errors.ServerError
    }
    assert documented == implemented


def test_fatal_codes_say_give_up_and_others_do_not():
    for code, _, advice in ROW.findall(PAGE.read_text()):
        assert advice.startswith("gives up") == errors.for_code(int(code)).fatal, code
