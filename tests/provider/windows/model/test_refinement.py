"""Random traces of the real run: the model accepts them, and refuses changed ones.

`HISTORIES` in the environment plays more of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.provider.windows.model.binary import judged
from tests.provider.windows.model.recorder import Recorder
from tests.provider.windows.model.time_recorder import TimeRecorder

HISTORIES = int(os.environ.get("HISTORIES", "3400"))

Trace = dict[str, Any]


@pytest.mark.parametrize("claims", [False, True], ids=["cursor", "claims"])
@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_random_traces_of_the_real_run_are_steps_of_the_model(*, claims: bool) -> None:
    answers = judged(Recorder(seed, claims=claims).trace() for seed in range(HISTORIES))
    assert len(answers) == HISTORIES
    assert {seed: answer for seed, answer in enumerate(answers) if answer != "accepted"} == {}


@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_random_traces_of_windows_of_time_are_steps_of_the_model() -> None:
    answers = judged(TimeRecorder(seed).trace() for seed in range(HISTORIES))
    assert len(answers) == HISTORIES
    assert {seed: answer for seed, answer in enumerate(answers) if answer != "accepted"} == {}


def _first(trace: Trace, wanted: Callable[[Trace], bool]) -> int:
    return next(number for number, action in enumerate(trace["actions"]) if wanted(action))


def _point(name: str) -> Callable[[Trace], bool]:
    return lambda action: action.get("point") == name


def _after(trace: Trace, name: str) -> Trace:
    """Return what is there after the first step to point `name`."""
    found: Trace = trace["actions"][_first(trace, _point(name))]["after"]
    return found


def _left_out(trace: Trace, name: str) -> None:
    del trace["actions"][_first(trace, _point(name))]


def _swapped(trace: Trace, name: str) -> None:
    number = _first(trace, _point(name))
    actions = trace["actions"]
    actions[number], actions[number + 1] = actions[number + 1], actions[number]


def _record_gone(trace: Trace) -> None:
    _after(trace, "publish: published")["lake"]["1"]["records"].pop()


def _record_twice(trace: Trace) -> None:
    records = _after(trace, "publish: published")["lake"]["1"]["records"]
    records.append(records[-1])


def _another_end(trace: Trace) -> None:
    _after(trace, "publish: published")["lake"]["1"]["end"]["0"] -= 1


def _cursor_further(trace: Trace) -> None:
    _after(trace, "advance: cursor stored")["cursor"]["next"]["0"] += 1


def _cursor_not_stored(trace: Trace) -> None:
    _after(trace, "advance: cursor stored")["cursor"] = None


def _event_too_early(trace: Trace) -> None:
    after = _after(trace, "commit_event: event emitted")
    after["event"] = after["cursor"]


def _plan_not_stored(trace: Trace) -> None:
    _after(trace, "plan: plan stored")["plans"].clear()


def _another_point(trace: Trace) -> None:
    number = _first(trace, _point("check_marker: marker read"))
    trace["actions"][number]["point"] = "ingest: staging ready"


CHANGES: dict[str, Callable[[Trace], None]] = {
    "marker check left out": lambda trace: _left_out(trace, "check_marker: marker read"),
    "plan stored after the task's": lambda trace: _swapped(trace, "plan: plan stored"),
    "second look left out": lambda trace: _left_out(trace, "publish: cursor read again"),
    "cursor stored before it is read": lambda trace: _swapped(trace, "advance: cursor read"),
    "a record is not in the window": _record_gone,
    "a record is there twice": _record_twice,
    "the window ends elsewhere": _another_end,
    "the cursor is further": _cursor_further,
    "the cursor is not stored": _cursor_not_stored,
    "the event is there before success": _event_too_early,
    "the plan is not stored": _plan_not_stored,
    "another step is taken": _another_point,
}


def _a_claim_gone(trace: Trace) -> None:
    _after(trace, "plan: plan claimed")["claims"]["pending"].clear()


def _claimed_by_another(trace: Trace) -> None:
    _after(trace, "plan: plan claimed")["claims"]["pending"]["1"]["by"] += 1


def _not_completed(trace: Trace) -> None:
    claims = _after(trace, "plan: plan claimed")["claims"]
    _after(trace, "advance: claim completed")["claims"] = claims


def _position_not_moved(trace: Trace) -> None:
    cursor = _after(trace, "plan: plan claimed")["cursor"]
    _after(trace, "advance: claim completed")["cursor"] = cursor


CHANGES_OF_CLAIMS: dict[str, Callable[[Trace], None]] = {
    "claims are read once only": lambda trace: _left_out(trace, "publish: claims read again"),
    "claimed before it is planned": lambda trace: _swapped(trace, "plan: plan created"),
    "the claim is gone": _a_claim_gone,
    "the claim is another task's": _claimed_by_another,
    "the claim stays": _not_completed,
    "the position stays": _position_not_moved,
    "the marker is not read": lambda trace: _left_out(trace, "check_marker: marker read"),
    "a record is not in the window": _record_gone,
    "a record is there twice": _record_twice,
    "the window ends elsewhere": _another_end,
    "another step is taken": _another_point,
}


def _boundary_not_fixed(trace: Trace) -> None:
    _after(trace, "turn")["fixed"].clear()


def _another_boundary(trace: Trace) -> None:
    _after(trace, "planned")["fixed"]["1"]["0"] += 1


def _not_accepted(trace: Trace) -> None:
    _after(trace, "done")["accepted"].clear()


def _of_another_hour(trace: Trace) -> None:
    lake = _after(trace, "published")["lake"]
    lake["1"] = lake.pop("0")


def _window_record_gone(trace: Trace) -> None:
    _after(trace, "published")["lake"]["0"]["records"].pop()


def _window_record_twice(trace: Trace) -> None:
    records = _after(trace, "published")["lake"]["0"]["records"]
    records.append(records[-1])


def _window_ends_elsewhere(trace: Trace) -> None:
    _after(trace, "published")["lake"]["0"]["end"]["0"] -= 1


def _published_when_written(trace: Trace) -> None:
    lake = _after(trace, "published")["lake"]
    _after(trace, "written")["lake"] = lake


CHANGES_OF_TIME: dict[str, Callable[[Trace], None]] = {
    "planned with a boundary that is not fixed": lambda trace: _left_out(trace, "turn"),
    "boundaries are not looked at again": lambda trace: _left_out(trace, "compared"),
    "the marker is not read": lambda trace: _left_out(trace, "marker read"),
    "published before it is written": lambda trace: _swapped(trace, "written"),
    "the boundary is not there": _boundary_not_fixed,
    "the boundary is another one": _another_boundary,
    "the window is not accepted": _not_accepted,
    "the window is another hour's": _of_another_hour,
    "a record is not in the window": _window_record_gone,
    "a record is there twice": _window_record_twice,
    "the window ends elsewhere": _window_ends_elsewhere,
    "the window is there when it is written": _published_when_written,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_trace_is_refused(name: str) -> None:
    _refused(CHANGES[name], claims=False)


@pytest.mark.parametrize("name", CHANGES_OF_CLAIMS)
def test_a_changed_trace_of_claims_is_refused(name: str) -> None:
    _refused(CHANGES_OF_CLAIMS[name], claims=True)


@pytest.mark.parametrize("name", CHANGES_OF_TIME)
def test_a_changed_trace_of_windows_of_time_is_refused(name: str) -> None:
    one = TimeRecorder(0)
    for action in (
        {"do": "append", "partition": 0, "hour": 0, "synced": True},
        {"do": "hour"},
        {"do": "start", "task": 0, "hour": 0},
    ):
        one.act(action)
    while one.tries:
        one.act({"do": "step", "task": 0})
    trace = {"time": True, "partitions": one.partitions, "actions": one.actions}
    _refused_if_changed(trace, CHANGES_OF_TIME[name])


def _refused(change: Callable[[Trace], None], *, claims: bool) -> None:
    one = Recorder(0, length=0, claims=claims)
    whole: list[Trace] = []
    for action in (
        {"do": "append", "partition": 0, "synced": True},
        {"do": "start", "task": 0, "capped": False},
    ):
        one.player.act(action)
        whole.append({**action, "after": one.player.seen()})
    while (0, False) in one.player.tries:
        action = {"do": "step", "task": 0, "zombie": False}
        point = one.player.act(action)
        whole.append({**action, "point": point, "after": one.player.seen()})
    partitions = one.player.partitions
    trace: Trace = {"claims": claims, "fenced": True, "partitions": partitions, "actions": whole}
    _refused_if_changed(trace, change)


def _refused_if_changed(trace: Trace, change: Callable[[Trace], None]) -> None:
    changed = json.loads(json.dumps(trace))  # no part of it is shared
    change(changed)
    assert changed != trace
    right, wrong = judged([trace, changed])
    assert right == "accepted"
    assert wrong.startswith("rejected: ")
