"""The tally: findings of every round, summed up, in a JSON file that a later drill continues.

The file is replaced in one step after each round, so an interrupted drill loses only the current
round. This module must not run rounds or audit sinks.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Round", "Totals"]

_VERSION = 1


@dataclass
class Round:
    """Findings of one round. `hit` counts windows during which something was killed."""

    number: int
    seed: str
    inline: int = 0
    spark: int = 0
    hit: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    gaps: int = 0
    unaccounted: int = 0
    repairs: int = 0
    tries: int = 0
    replayed: int = 0
    clears: int = 0
    backfills: int = 0
    written_again: int = 0
    lives: int = 1
    changes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    ended: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Nothing lost, duplicated, missing, unaccounted, or left for manual repair."""
        wrong = (self.lost, self.duplicated, self.gaps, self.unaccounted, self.repairs)
        return not any(wrong) and not self.problems


_SUMS = (
    "inline",
    "spark",
    "hit",
    "records",
    "lost",
    "duplicated",
    "gaps",
    "unaccounted",
    "repairs",
    "tries",
    "replayed",
    "clears",
    "backfills",
    "lives",
    "seconds",
)


class Totals:
    """All rounds of a drill with one seed, stored in `path`."""

    def __init__(self, path: Path, seed: str) -> None:
        self.path = path
        self.seed = seed
        self.rounds: list[Round] = []

    @classmethod
    def load(cls, path: Path, seed: str) -> Totals:
        """Continue the tally in `path`, or start one. Raises `ValueError` for another seed's."""
        tally = cls(path, seed)
        if path.exists():
            document = json.loads(path.read_text())
            if document["version"] != _VERSION or document["seed"] != seed:
                raise ValueError(
                    f"{path} is the tally of seed {document['seed']} (version "
                    f"{document['version']}), not of seed {seed}: pass that seed or another --state"
                )
            tally.rounds = [Round(**row) for row in document["rounds"]]
        return tally

    def add(self, round_: Round) -> None:
        """Add a round and save."""
        self.rounds.append(round_)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.write_text(json.dumps(self.to_document(), indent=1) + "\n")
        fresh.replace(self.path)

    def to_document(self) -> dict[str, Any]:
        """Return the file's content; totals first, for a reader."""
        return {
            "version": _VERSION,
            "seed": self.seed,
            "totals": self.totals(),
            "rounds": [asdict(round_) for round_ in self.rounds],
        }

    def totals(self) -> dict[str, Any]:
        """Return the sums over all rounds."""
        sums: dict[str, Any] = {
            name: round(sum(getattr(round_, name) for round_ in self.rounds), 1) for name in _SUMS
        }
        kills: Counter[str] = Counter()
        changes: Counter[str] = Counter()
        for round_ in self.rounds:
            kills.update(round_.kills)
            changes.update(round_.changes)
        windows = sums["inline"] + sums["spark"]
        return {
            **sums,
            "rounds": len(self.rounds),
            "share": round(sums["hit"] / windows, 3) if windows else 0.0,
            "kills": dict(sorted(kills.items())),
            "changes": dict(sorted(changes.items())),
        }

    @property
    def clean(self) -> bool:
        """True if every round is clean."""
        return all(round_.clean for round_ in self.rounds)

    def report(self) -> str:
        """Return a summary as text."""
        sums = self.totals()
        lines = [
            f"seed {self.seed}: {sums['rounds']} rounds in {sums['seconds']:.0f} s",
            f"windows        {sums['inline']} inline + {sums['spark']} Spark",
            f"records        {sums['records']} compared",
            f"hit by a kill  {sums['hit']} windows ({100 * sums['share']:.0f} %)",
            f"SIGKILLs       {_named(sums['kills']) or 'none'}",
            f"the world      {_named(sums['changes']) or 'never changed'}",
            f"also           {sums['backfills']} backfills, {sums['clears']} clears",
            f"tries finished {sums['tries']}, of which {sums['replayed']} found their window",
            f"lost           {sums['lost']}",
            f"duplicated     {sums['duplicated']}",
            f"gaps           {sums['gaps']}",
            f"unaccounted    {sums['unaccounted']}",
            f"manual repairs {sums['repairs']}",
        ]
        for round_ in self.rounds:
            lines += [f"round {round_.number}: {problem}" for problem in round_.problems]
        return "\n".join(lines)


def _named(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
