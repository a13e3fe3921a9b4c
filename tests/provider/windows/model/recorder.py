"""Random histories of the real run, recorded at its step points for the model to judge."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.provider.windows.model.player import KEYS, Player

TASKS = 3
RECORDS = 6
TRIES = 4


class Recorder:
    """Plays what the dice say, as far as the model can do it, and keeps the trace."""

    def __init__(self, seed: int, length: int = 90, *, claims: bool = False) -> None:
        self.dice = random.Random(seed)
        self.player = Player(fenced=seed % 2 == 0, partitions=1 + seed % 3 % 2, claims=claims)
        self.length = length
        self.tried = dict.fromkeys(range(TASKS), 0)
        self.points: dict[tuple[int, bool], str] = {}
        # Faults are rare in some histories and frequent in others.
        self.rate = (0.0, 0.03, 0.1)[seed % 3]

    def trace(self) -> dict[str, Any]:
        """Return the history of a seed, as the model reads it."""
        partitions = self.player.partitions
        actions = []
        for _ in range(self.length):
            action = self.choose()
            if action["do"] in {"start", "retry", "give up"}:
                self.tried[action["task"]] += action["do"] != "give up"
                older = self.points.pop((action["task"], False), "")
                self.points[action["task"], True] = older
            point = self.player.act(action)
            if point is not None:
                self.points[action["task"], action["zombie"]] = point
                action = {**action, "point": point}
            actions.append({**action, "after": self.player.seen()})
        return {
            "claims": self.player.claims,
            "fenced": self.player.fenced,
            "partitions": partitions,
            "actions": actions,
        }

    def choose(self) -> dict[str, Any]:
        if self.dice.random() < self.rate and (faults := list(self.faults())):
            return self.dice.choice(faults)
        steps = [
            {"do": "step", "task": task, "zombie": zombie} for task, zombie in self.player.tries
        ]
        if steps and self.dice.random() < 0.88:
            return self.dice.choice(steps)
        return self.dice.choice(list(self.others()) or steps or [self.begin(0)])

    def others(self) -> Iterator[dict[str, Any]]:
        log = self.player.log
        if log.count < RECORDS:
            for partition in range(log.partitions):
                synced = self.dice.random() < 0.7
                yield {"do": "append", "partition": partition, "synced": synced}
        if log.partitions < len(KEYS):
            yield {"do": "add partition"}
        for task in range(TASKS):
            turn = task == 0 or self.tried[task - 1]
            if turn and self.tried[task] < TRIES and (task, True) not in self.player.tries:
                yield self.begin(task)
            if self.player.claims and self._may_give_up(task):
                yield {"do": "give up", "task": task}

    def _may_give_up(self, task: int) -> bool:
        player, name = self.player, str(task)
        if not self.tried[task] or name in player.over | player.succeeded:
            return False
        return (task, False) not in player.tries or (task, True) not in player.tries

    def begin(self, task: int) -> dict[str, Any]:
        first = self.tried[task] == 0
        return {
            "do": "start" if first else "retry",
            "task": task,
            "capped": self.dice.random() < 0.5,
        }

    def faults(self) -> Iterator[dict[str, Any]]:
        player = self.player
        seen, lake = player.seen(), sorted(player.lake())
        if player.claims:
            yield from self._faults_of_claims()
            return
        if seen["cursor"] or seen["plans"]:
            yield {"do": "wipe"}
        if seen["event"]:
            yield {"do": "purge"}
        counted = [seen[name]["seq"] for name in ("cursor", "event") if seen[name]]
        if len(lake) > 1 and lake[0] < max(counted, default=0) and not self._about_to_publish():
            yield {"do": "lose oldest"}
        if lake:
            yield {"do": "lose newest"}
        yield from ({"do": "lose some", "seq": seq} for seq in lake[:-1])
        if player.backup is None and seen["cursor"]:
            yield {"do": "backup"}
        if player.backup is not None and self._older():
            yield {"do": "restore"}
        yield from self._faults_of_brokers()

    def _faults_of_brokers(self) -> Iterator[dict[str, Any]]:
        log = self.player.log
        if any(log.stable[key] < len(log.records[key]) for key in KEYS):
            yield {"do": "crash"}
        for number, key in enumerate(log.keys):
            if log.low[key] < log.stable[key]:
                yield {"do": "retain", "partition": number}

    def _faults_of_claims(self) -> Iterator[dict[str, Any]]:
        seen, lake = self.player.seen(), sorted(self.player.lake())
        if seen["cursor"] and seen["event"]:
            yield from ({"do": name} for name in ("wipe", "purge"))
        if self.player.published:
            yield {"do": "lose newest"}
        reached = seen["cursor"]["seq"] if seen["cursor"] else 0
        newest = seen["claims"]["newest"] if seen["cursor"] else []
        old = len(lake) > 1 and lake[0] < reached and lake[0] not in newest
        if old and not self._about_to_publish():
            yield {"do": "lose oldest"}
        yield from self._faults_of_brokers()

    def _about_to_publish(self) -> bool:
        """Return whether a try has looked for the last time: windows are not removed just then."""
        tries = self.player.tries
        return any(self.points.get(one, "").startswith("publish: ") for one in tries)

    def _older(self) -> bool:
        """Return whether a backup differs from progress."""
        player = self.player
        assert player.backup is not None
        now, player.journal = player.journal, player.backup
        kept = player.seen()
        player.journal = now
        return kept != player.seen()
