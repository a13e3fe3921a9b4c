"""The log of a client: its events, their levels, and what it never contains."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tubemq_client import errors
from tubemq_client._core import event_log
from tubemq_client._core.flow_control import FlowControl
from tubemq_client._core.master import MasterSession
from tubemq_client._wire import methods
from tubemq_client.model import BrokerNode, Partition

RULES = '[{"type": 3, "rule": [{"zeroCnt": 5, "freqInMs": 300}]}]'
BROKER = BrokerNode(1, "b1", 8123)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "tubemq_client")

    def lines() -> list[tuple[str, str]]:
        entries = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return entries

    return lines


def reply(default: tuple[int, str], group: tuple[int, str]) -> Any:
    return SimpleNamespace(
        HasField=lambda name: name.endswith("FlowCheckId"),
        defFlowCheckId=default[0],
        defFlowControlInfo=default[1],
        groupFlowCheckId=group[0],
        groupFlowControlInfo=group[1],
    )


def test_rules_are_logged_only_when_they_change(told: Any) -> None:
    flow = FlowControl()
    flow.learn(reply((-2, ""), (7, RULES)))
    assert told() == [("INFO", "flow rules of the group: set 7 is in force")]
    flow.learn(reply((-2, ""), (7, RULES)))
    assert told() == []
    flow.learn(reply((3, "[{"), (-2, "")))
    (cluster, group) = told()
    assert cluster[0] == "WARNING"
    assert cluster[1].startswith("flow rules of the cluster, set 3, are not understood")
    assert group == ("INFO", "flow rules of the group: none")


def run(conversation: Any, answers: list[Any]) -> Any:
    """Run a conversation whose calls are answered in order; other effects get the time."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            effect = conversation.throw(error) if error else conversation.send(value)
        except StopIteration as stop:
            return stop.value
        value = error = None
        if type(effect).__name__ == "Call":
            answer = answers.pop(0)
            value, error = (None, answer) if isinstance(answer, Exception) else (answer, None)
        else:
            value = 0


def test_another_answering_master_is_logged(told: Any) -> None:
    from tubemq_client import _pb

    def asked(*answers: Any) -> None:
        request = _pb.HeartRequestP2M(clientId="c", brokerCheckSum=-1, hostName="h")
        run(session.call(methods.HEARTBEAT_PRODUCER, request), list(answers))

    good = _pb.HeartResponseM2P(success=True, errCode=200, errMsg="", brokerCheckSum=1)
    failure = errors.ConnectError("gone")
    session = MasterSession((("m1", 1), ("m2", 2)))
    asked(good)
    asked(good)
    assert told() == []  # the first answer is not logged
    asked(failure, good)
    assert told() == [("INFO", "master m2:2 answers now")]
    for _ in range(3):
        with pytest.raises(errors.ConnectError):
            asked(failure, failure)
    ((level, text),) = told()  # once, after any number of attempts
    assert (level, text.partition(":")[0]) == ("WARNING", "no active master answers")
    asked(good)
    assert told() == [("INFO", "master m2:2 answers now")]


def test_texts_of_servers_cannot_forge_lines(told: Any) -> None:
    error = errors.ProtocolViolation("no\n2026 INFO all is well \x1b[2J" + "x" * 5_000)
    event_log.lost("g", Partition(1, "orders", 0), error)
    event_log.broker_avoided(BROKER, error)
    for level, text in told():
        assert level == "WARNING"
        assert "\n" not in text
        assert "\x1b" not in text
        assert len(text) < 1_200
