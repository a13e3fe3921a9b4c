"""Flow rules as administrators send them: checks and error texts of a real master.

Pure functions from JSON text to the text that is stored and sent to clients. Applying the rules is
`_core.flow_control`'s business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tubemq_client.embedded.controls import NO_RULES, FlowSetting
from tubemq_client.embedded.http_params import BadParameter, Params

__all__ = ["changed_flow", "changed_priority", "flow_fields"]

_FAILURE = (
    "Parse parameter flowCtrlInfo failure: 'java.lang.Exception: Parse flowCtrlInfo value failure"
)
_NAMES = {0: "data_limit", 1: "freq_limit", 3: "low_fetch_limit"}
_TIME = re.compile(r"(\d{1,2}):(\d{1,2})", re.ASCII)
_DAY_MINUTES = 24 * 60
_LEAST_LIMITED_LAG_MB = 20
_LEAST_WAIT_MS = 200
_LONGEST_WAIT_MS = 300_000
_PRIORITIES = (101, 303)


def changed_flow(params: Params, flow: FlowSetting) -> FlowSetting:
    """Return `flow` with the request's changes. Raises `BadParameter`."""
    text = params.text("flowCtrlInfo")
    return FlowSetting(
        enabled=params.flag("flowCtrlEnable", default=flow.enabled),
        text=flow.text if text is None else checked(text),
    )


def changed_priority(params: Params, current: int) -> int:
    """Return the query priority in the request, else `current`. Raises `BadParameter`."""
    low, high = _PRIORITIES
    value = params.number("qryPriorityId", current, least=low)
    assert value is not None, "there is a default"
    if value > high:
        raise BadParameter(
            "Illegal value in qryPriorityId parameter: qryPriorityId value must be greater than "
            f"or equal to {low} and less than or equal to {high}!"
        )
    return value


def flow_fields(flow: FlowSetting, *, count_name: str = "flowCtrlRuleCount") -> dict[str, Any]:
    """Return the rules as replies show them."""
    rules = json.loads(flow.text)
    return {count_name: len(rules), "flowCtrlInfo": rules}


def checked(text: str) -> str:
    """Return `text` without blanks. Raises `BadParameter` for the first rule that is wrong."""
    try:
        records = json.loads(text)
    except ValueError as error:
        raise BadParameter(_FAILURE) from error
    if not isinstance(records, list):
        raise BadParameter(_FAILURE)
    for number, record in enumerate(records, start=1):
        _check_record(record, number)
    return json.dumps(records, separators=(",", ":")) if records else NO_RULES


def _check_record(record: Any, number: int) -> None:
    where = f"record({number}) of flowCtrlInfo value!"
    kind = record.get("type") if isinstance(record, dict) else None
    if kind == 2:
        return  # Deprecated and ignored.
    if kind not in _NAMES:
        raise BadParameter(f"{_FAILURE}, the value of FIELD type must in [0,1,3] in {where}")
    rules = record.get("rule")
    if not isinstance(rules, list):
        raise BadParameter(f"{_FAILURE}, FIELD rule is required in {_NAMES[kind]} {where}")
    for item, rule in enumerate(rules, start=1):
        _CHECKS[kind](_Fields(rule, f"{_NAMES[kind]} item({item}).{where}"))


class _Fields:
    """Checked access to the fields of one rule."""

    def __init__(self, rule: Any, where: str) -> None:
        self._rule = rule if isinstance(rule, dict) else {}
        self.where = where

    def has(self, name: str) -> bool:
        return name in self._rule

    def refuse(self, name: str, demand: str) -> BadParameter:
        return BadParameter(f"{_FAILURE}, the value of FIELD {name} {demand} in {self.where}")

    def number(self, name: str) -> int:
        value = self._rule.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadParameter(f"{_FAILURE}, FIELD {name} is required in {self.where}")
        return value

    def at_least(self, name: str, least: int) -> int:
        value = self.number(name)
        if value < least:
            raise self.refuse(name, f"must be greater than or equal to {least}")
        return value

    def within(self, name: str, low: int, high: int) -> int:
        value = self.number(name)
        if not low <= value <= high:
            raise self.refuse(name, f"must in [{low}, {high}]")
        return value

    def time(self, name: str) -> int:
        """Return minutes since midnight, 24:00 included."""
        value = self._rule.get(name)
        if not isinstance(value, str):
            raise BadParameter(f"{_FAILURE}, FIELD {name} is required in {self.where}")
        match = _TIME.fullmatch(value)
        minutes = int(match[1]) * 60 + int(match[2]) if match else _DAY_MINUTES + 1
        if minutes > _DAY_MINUTES:
            raise self.refuse(name, "must be 'aa:bb'")
        return minutes


def _check_data_limit(fields: _Fields) -> None:
    if fields.time("start") >= fields.time("end"):
        raise fields.refuse("start", "must lower than the value FIELD end")
    if fields.number("dltInM") <= _LEAST_LIMITED_LAG_MB:
        raise fields.refuse("dltInM", f"must be greater than {_LEAST_LIMITED_LAG_MB}")
    fields.at_least("limitInM", 0)
    fields.at_least("freqInMs", _LEAST_WAIT_MS)


def _check_empty_polls(fields: _Fields) -> None:
    fields.at_least("zeroCnt", 1)
    fields.at_least("freqInMs", 0)


def _check_low_fetch(fields: _Fields) -> None:
    if fields.has("normFreqInMs"):
        fields.within("normFreqInMs", 0, _LONGEST_WAIT_MS)
    if fields.has("filterFreqInMs") or fields.has("minDataFilterFreqInMs"):
        least = fields.within("filterFreqInMs", 0, _LONGEST_WAIT_MS)
        if fields.within("minDataFilterFreqInMs", 0, _LONGEST_WAIT_MS) < least:
            # The real master's text lacks this blank, too.
            raise BadParameter(
                f"{_FAILURE}, the value of FIELD minDataFilterFreqInMs must be greater than or "
                f"equal to the value of FIELD filterFreqInMsin {fields.where}"
            )


_CHECKS: dict[int, Callable[[_Fields], None]] = {
    0: _check_data_limit,
    1: _check_empty_polls,
    3: _check_low_fetch,
}
