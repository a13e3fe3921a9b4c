"""Random histories by hand: ``python -m tests.provider.windows.explore --histories 200000``.

Plays histories of every kind in turn, in one process, and prints a tally; a history that goes wrong
is printed with what it takes to play it again. Tests play the first few thousand of them.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.provider.windows.changing_worlds import Shaken, ShakenClaims, TimeHistory
from tests.provider.windows.claimed_lives import ClaimedLives
from tests.provider.windows.exploration import WIDTH, Claimed, History
from tests.provider.windows.lives_of_time import (
    LostBoundaries,
    LostInAnyLife,
    OrderedLives,
    TimeLives,
)
from tests.provider.windows.lost_lakes import LostLakes, LostLakesOfClaims
from tests.provider.windows.new_lives import Lives
from tests.provider.windows.world import MemorySink, ReplacingMemorySink

_ACTIONS = 18


def choices(seed: int, count: int) -> Iterator[int]:
    """Return the events in the history of a seed."""
    source = random.Random(seed)
    return (source.randrange(_ACTIONS * WIDTH) for _ in range(count))


def _sink(seed: int) -> MemorySink:
    return ReplacingMemorySink() if seed % 5 else MemorySink()


KINDS: dict[str, Callable[[int], None]] = {
    "cursor": lambda seed: History(
        fenced=seed % 2 == 0, purges=seed % 3 == 0, sink=_sink(seed)
    ).play(choices(seed, 100)),
    "claims": lambda seed: Claimed(
        fenced=seed % 2 == 0, purges=seed % 3 == 0, sink=_sink(seed)
    ).play(choices(seed, 100)),
    "lives": lambda seed: Lives(fenced=seed % 2 == 0).play(choices(seed, 80)),
    "lives of claims": lambda seed: ClaimedLives(fenced=seed % 2 == 0).play(choices(seed, 80)),
    "brokers": lambda seed: Shaken(fenced=seed % 2 == 0, purges=seed % 3 == 0).play(
        choices(seed, 120)
    ),
    "brokers of claims": lambda seed: ShakenClaims(fenced=seed % 2 == 0, purges=False).play(
        choices(seed, 120)
    ),
    "time": lambda seed: TimeHistory(seed).play(),
    "lives of time": lambda seed: TimeLives(seed).play(),
    "lost lakes": lambda seed: LostLakes(fenced=seed % 2 == 0, sink=_sink(seed)).play(
        choices(seed, 110)
    ),
    "lost lakes of claims": lambda seed: LostLakesOfClaims(
        fenced=seed % 2 == 0, sink=_sink(seed)
    ).play(choices(seed, 110)),
    "ordered lives of time": lambda seed: OrderedLives(seed).play(),
    "lost boundaries": lambda seed: LostBoundaries(seed).play(),
    "lost boundaries of lives": lambda seed: LostInAnyLife(seed).play(),
}


def main() -> int:
    """Play them; the exit status is 1 if one went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=2_000, help="how many, over all kinds")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; repeatable")
    given = parser.parse_args()
    kinds = given.kind or list(KINDS)
    played: Counter[str] = Counter()
    wrong: list[str] = []
    began = time.monotonic()
    for number in range(given.histories):
        kind, seed = kinds[number % len(kinds)], given.seed + number // len(kinds)
        try:
            KINDS[kind](seed)
        except Exception as error:  # noqa: BLE001 - it is reported, and the others run
            wrong.append(f"{kind}, seed {seed}: {type(error).__name__}: {str(error)[:300]}")
            print(wrong[-1], flush=True)
        played[kind] += 1
        if (number + 1) % 10_000 == 0:
            print(f"{number + 1} in {time.monotonic() - began:.0f} s", flush=True)
    print(", ".join(f"{kind}: {count}" for kind, count in played.items()))
    print(f"{sum(played.values())} histories, {len(wrong)} went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
