"""Random weeks by hand: ``python -m tests.provider.weeks.play --weeks 500``.

Runs weeks of every kind in turn, in one process; of weeks that fail all moves are printed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from tests.provider.weeks.lakes import LakeWeeks
from tests.provider.weeks.model import Hook
from tests.provider.weeks.planned import PlannedWeeks
from tests.provider.weeks.weeks import Weeks

KINDS: dict[str, tuple[type[Weeks], dict[str, Any]]] = {
    "stores": (Weeks, {"moves_store": True, "moves_inside": True}),
    "sets": (Weeks, {"moves_store": False, "sets": True, "wipes": True}),
    "lives": (Weeks, {"moves_store": False, "lives": True}),
    "lakes": (LakeWeeks, {"moves_store": False, "interrupt": 0.0}),
    "planned": (PlannedWeeks, {"interrupt": 0.05}),
}


def play(kind: str, seed: int, lake: Path) -> None:
    """Run one week; errors are raised with its moves as a note."""
    made, flags = KINDS[kind]
    weeks = made(seed, lake, **flags)

    def hook(_: str) -> Hook:
        return Hook(weeks.topic)

    try:
        with mock.patch("tubemq_provider.operators.offsets.hook_class", return_value=hook):
            weeks.play()
    except Exception as error:
        error.add_note("\n".join(weeks.log))
        raise


def main() -> int:
    """Run the weeks; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weeks", type=int, default=100, help="how many, over all kinds")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; repeatable")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    kinds, wrong = given.kind or list(KINDS), 0
    for number in range(given.weeks):
        kind, seed = kinds[number % len(kinds)], given.seed + number // len(kinds)
        with tempfile.TemporaryDirectory() as directory:
            try:
                with redirect_stdout(StringIO()):  # Airflow's own log of each task
                    play(kind, seed, Path(directory, "lake"))
            except Exception as error:  # noqa: BLE001 - reported, and the others still run
                wrong += 1
                notes = "\n".join(getattr(error, "__notes__", ()))
                print(f"{kind}, seed {seed}: {type(error).__name__}: {error}\n{notes}", flush=True)
    print(f"{given.weeks} weeks, {wrong} went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
