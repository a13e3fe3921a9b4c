"""The example of own tasks between plan and commit, as the documentation has it.

A copy of it must read the window: counts without reading would be accepted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.printed import blocks
from tests.provider.contexts import fake_context
from tests.provider.operators.test_window_operators import execute, send
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_provider.hooks.tubemq import TubeMQHook

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60), pytest.mark.usefixtures("hook")]


def test_own_tasks_as_documented_count_what_they_read(
    mq: EmbeddedTubeMQ, hook: TubeMQHook, tmp_path: Path
) -> None:
    page = Path(__file__).parents[3] / "docs" / "operators.md"
    (printed,) = (block.text for block in blocks(page) if "def count(" in block.text)
    block = printed.replace('"/lake/done/own"', f'{str(tmp_path / "done")!r}, cluster="test"')
    known: dict[str, Any] = {}
    exec(block, known)
    send(mq, hook, b"a", b"b", b"c")
    kept: dict[Any, Any] = {}
    plan = known["plan"]
    window = execute(plan, fake_context(plan, kept))
    dag = plan.dag
    counts = dag.get_task("count").python_callable(window)
    assert counts["1:0"] == 3
    commit = dag.get_task("commit")
    commit.plan, commit.records = window, counts
    assert execute(commit, fake_context(commit, kept))["total"] == 3
