"""Runs rows against a server and compares its answers with those of a genuine one.

Players speak the raw protocol: ``a`` and ``b`` are readers at the broker, ``m1``, ``m2`` members of
a server-balanced group, ``n1`` of a client-balanced one, ``p1`` a producer at the master. Answers
become one line of text each, without values that differ between any two servers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.client.embedded.members import Player
from tests.client.embedded.rpc import BrokerWire, Wire
from tests.client.embedded.transcript import Transcript
from tests.system.conformance.rows import Question, Row
from tubemq_client import _pb
from tubemq_client._wire import methods

__all__ = ["Difference", "Server", "compare", "play"]

_PATIENCE_MS = 90_000
_PAUSE_MS = 250


@dataclass(frozen=True)
class Server:
    """A server to run against. `wait` lets ms pass there."""

    masters: str
    broker: str
    master_web: str
    broker_web: str
    token: str
    wait: Callable[[int], None]


class Difference(NamedTuple):
    """One question whose answer is not the recorded one."""

    row: str
    question: str
    expected: str
    answer: str


def play(row: Row, server: Server) -> list[tuple[Question, str]]:
    """Return the row's questions with their answers."""
    stage = _Stage(row, server)
    try:
        return [(question, stage.answer(question)) for question in row.questions]
    finally:
        stage.close()


def compare(
    row: Row, played: Iterable[tuple[Question, str]], recorded: list[str]
) -> list[Difference]:
    """Return the answers that differ from the recorded ones."""
    heard = [(question, answer) for question, answer in played if not question.quiet]
    missing = "(not recorded)"
    recorded = recorded + [missing] * (len(heard) - len(recorded))
    return [
        Difference(row.name, question.text, expected, answer)
        for (question, answer), expected in zip(heard, recorded, strict=True)
        if answer != expected
    ]


class _Stage(Transcript):
    """State of one running row."""

    def __init__(self, row: Row, server: Server) -> None:
        super().__init__(
            server.masters,
            server.broker,
            server.master_web,
            server.broker_web,
            wait_until_stable=lambda: None,
            token=server.token,
        )
        self._row = row
        self._server = server
        self._group = row.group or row.topic
        self._members: dict[str, Player] = {}
        self._readers: dict[str, BrokerWire] = {}

    def close(self) -> None:
        super().close()
        for reader in self._readers.values():
            reader.close()

    def answer(self, question: Question) -> str:
        waited = 0
        while True:
            text = self._answer(question)
            if question.goal is None or _reached(text, question.goal) or waited > _PATIENCE_MS:
                return text
            self._server.wait(_PAUSE_MS)
            waited += _PAUSE_MS

    def _answer(self, question: Question) -> str:
        words = self._filled(dict(question.words))
        self.lines = []
        try:
            self._ask(question.verb, words)
        except OSError as error:  # one server that hangs must not hide all other answers
            return f"(no answer: {type(error).__name__})"
        [line] = self.lines
        return _stable(line.partition(" -> ")[2])

    def _ask(self, verb: str, words: dict[str, Any]) -> None:
        who, _, call = verb.partition(".")
        if who in ("master", "change", "broker"):
            ask = {"master": self.ask_master, "change": self.change, "broker": self.ask_broker}[who]
            ask(**words)
        elif who == "hand":
            self._server.wait(int(words["seconds"] * 1000))
            self.lines.append(" -> done")
        else:
            player = self._member(who) if who[0] in "mnp" else self._reader(who)
            self.say("", lambda: getattr(player, call)(**words))

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("$topic", self._row.topic).replace("$group", self._group)
        if isinstance(value, Mapping):
            return {key: self._filled(item) for key, item in value.items()}
        return [self._filled(item) for item in value] if isinstance(value, list) else value

    def _reader(self, name: str) -> Any:
        if name not in self._readers:
            wire = BrokerWire(self._server.broker, 20)
            wire.client_id, wire.group = f"{self._group}_{name}", self._group
            self._readers[name] = wire
        return _OnTopic(self._readers[name], self._row.topic)

    def _member(self, name: str) -> Any:
        kind = {"m": Player, "n": ClientBalanced, "p": Producing}[name[0]]
        if name not in self._members:
            self._members[name] = kind(
                self.master, f"{self._group}_{name}", self._group, topicList=[self._row.topic]
            )
        return self._members[name]


class _OnTopic:
    """A reader whose calls are about one topic."""

    def __init__(self, wire: BrokerWire, topic: str) -> None:
        self._wire = wire
        self._topic = topic

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._wire, name)
        return lambda **words: call(self._topic, **words)


class ClientBalanced(Player):
    """A member that balances for itself."""

    def join(self, **fields: Any) -> Any:
        request = {
            "clientId": self.name,
            "groupName": self.group,
            "hostName": "127.0.0.1",
            "sourceCount": -2,
            "nodeId": -2,
            "subRepInfo": _pb.ClientSubRepInfo(brokerConfigId=-2, topicMetaInfoId=-2),
        }
        message = _pb.RegisterRequestC2MV2(**request | self.fields | fields)
        return self.master.call(methods.REGISTER_CONSUMER_V2, message)

    def meta(self) -> Any:
        request = _pb.GetPartMetaRequestC2M(
            clientId=self.name, groupName=self.group, brokerConfigId=-2, topicMetaInfoId=-2
        )
        return self.master.call(methods.GET_PARTITION_META, request)

    def beat(self, **fields: Any) -> Any:
        report = _pb.ClientSubRepInfo(brokerConfigId=-2, topicMetaInfoId=-2)
        request = {"clientId": self.name, "groupName": self.group, "subRepInfo": report}
        message = _pb.HeartRequestC2MV2(**request | fields)
        return self.master.call(methods.HEARTBEAT_CONSUMER_V2, message)


class Producing:
    """A producer that requests routes from the master."""

    def __init__(self, master: Wire, name: str, _group: str, *, topicList: list[str]) -> None:  # noqa: N803
        self._master = master
        self._base = {"clientId": name, "brokerCheckSum": -1, "hostName": "h"}
        self._topics = topicList

    def register(self) -> Any:
        message = _pb.RegisterRequestP2M(**self._base)
        return self._master.call(methods.REGISTER_PRODUCER, message)

    def beat(self) -> Any:
        message = _pb.HeartRequestP2M(**self._base, topicList=self._topics)
        return self._master.call(methods.HEARTBEAT_PRODUCER, message)

    def close(self) -> Any:
        message = _pb.CloseRequestP2M(clientId=self._base["clientId"])
        return self._master.call(methods.CLOSE_PRODUCER, message)


# ---------------------------------------------------------------------------- answers as text


def _reached(text: str, goal: Mapping[str, Any]) -> bool:
    try:
        answer = json.loads(text)
    except ValueError:
        return False
    return all(
        name not in answer if wanted is None else name in answer and wanted in ("*", answer[name])
        for name, wanted in goal.items()
    )


def _stable(text: str) -> str:
    try:
        return json.dumps(_without_chance(json.loads(text)))
    except ValueError:
        return text


def _without_chance(value: Any, name: str = "") -> Any:
    """`value` without ids that grow, and without what is dealt at random or kept in hash order."""
    if name in ("rebalanceId", "createTime", "rebalanceCheckTime", "port", "isConfLoaded") or (
        name in ("groupFlowCheckId", "defFlowCheckId", "csmFrmMaxOffsetCtrlId") and value > 0
    ):
        return "*"
    if name in ("subscribeInfo", "parInfo"):
        return len(value)
    if isinstance(value, dict):
        return {key: _without_chance(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_chance(item) for item in value]
    return value
