"""Each mistake that is planted in the model is one of the real run too: the shortest trace on which
the model breaks a promise is played on a real run with the same mistake, which comes to the same.

The traces are files in `traces/`, which ``make model`` compares with those that it finds. The
run as shipped parts from each of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.provider.windows.model.planted import PLANTED
from tests.provider.windows.model.player import Player

TRACES = {path.stem: path for path in sorted((Path(__file__).parent / "traces").glob("*.json"))}


def _trace(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(TRACES[name].read_text())
    return read


def test_every_planted_mistake_has_a_trace() -> None:
    assert TRACES.keys() == PLANTED.keys()


@pytest.mark.parametrize("name", TRACES)
def test_a_real_run_with_the_mistake_comes_to_the_same_wrong_end(name: str) -> None:
    trace = _trace(name)
    player = Player(trace["fenced"], trace["partitions"], **PLANTED[name].options())
    for number, action in enumerate(trace["actions"]):
        point = player.act(action)
        assert (number, point) == (number, action.get("point"))
        assert (number, player.seen()) == (number, action["after"])
    assert trace["broken"] is not None


@pytest.mark.parametrize("name", TRACES)
def test_the_run_as_shipped_parts_from_the_trace(name: str) -> None:
    trace = _trace(name)
    player = Player(trace["fenced"], trace["partitions"], claims=trace.get("claims", False))
    for action in trace["actions"]:
        key = (action.get("task"), action.get("zombie"))
        if action["do"] == "step" and key not in player.tries:
            return  # it has ended, with another point
        if player.act(action) != action.get("point") or player.seen() != action["after"]:
            return
    pytest.fail("the run as shipped does all that the mistake did")
