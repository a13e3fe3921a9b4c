"""A stopped run of tests leaves no report.

pytest writes one for the tests until then, none of which failed, and a part of the suite that hung
until its time was over would count as passed.
"""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)  # the report is written by then
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    report = session.config.getoption("xmlpath", None)
    stopped = exitstatus == pytest.ExitCode.INTERRUPTED and not session.testsfailed
    if report and stopped and not hasattr(session.config, "workerinput"):
        Path(report).unlink(missing_ok=True)
