"""`python -m tools.drill`: rounds of killed windows until the tally has the requested number.

Exit code 0: nothing lost, duplicated, missing, unaccounted or left to repair, and as many windows
hit as promised; 1 otherwise; 130 when interrupted. `make drill` and `make drill-long` call it.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path

from tools.drill.cluster import REPOSITORY
from tools.drill.run import Settings, play
from tools.drill.totals import Totals


def main() -> int:
    """Run rounds; return the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = options.state.resolve()
    if not options.resume:
        state.unlink(missing_ok=True)
    try:
        tally = Totals.load(state, options.seed)
    except ValueError as error:
        sys.exit(str(error))
    try:
        _play(options, tally)
    except KeyboardInterrupt:
        print(f"interrupted; everything is stopped. Continue with --resume --state {state}")
        return 130
    finally:
        if tally.rounds:
            print(tally.report(), flush=True)
    share = tally.totals()["share"]
    if share < options.kill_share:
        print(f"only {100 * share:.0f} % of the windows were hit by a kill")
    sums = tally.totals()
    full = sums["inline"] >= options.windows and sums["spark"] >= options.spark
    return 0 if tally.clean and full and share >= options.kill_share else 1


def _play(options: argparse.Namespace, tally: Totals) -> None:
    """Run rounds of about equal size until the tally is full, or one of them has findings."""
    while True:
        sums = tally.totals()
        inline, spark = options.windows - sums["inline"], options.spark - sums["spark"]
        stuck = bool(tally.rounds) and not tally.rounds[-1].inline + tally.rounds[-1].spark
        if (inline <= 0 and spark <= 0) or not tally.clean or stuck:
            return
        rounds = max(1, -(-max(inline, 0) // options.round))
        number = len(tally.rounds) + 1
        settings = Settings(
            number,
            options.seed,
            max(0, -(-inline // rounds)),
            max(0, -(-spark // rounds)),
            options.kill_share,
            options.folder.resolve() / f"round-{number}",
            options.limit,
            options.parallelism,
            options.lives,
        )
        print(f"round {number}: {settings.inline} inline + {settings.spark} Spark", flush=True)
        result = play(settings)
        tally.add(result)
        if result.clean:
            shutil.rmtree(settings.folder, ignore_errors=True)
        else:
            print(f"kept for inspection: {settings.folder}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.drill", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--windows", type=int, default=200, help="windows of the inline engine")
    parser.add_argument("--spark", type=int, default=40, help="windows through Spark")
    parser.add_argument(
        "--kill-share", type=float, default=0.3, help="share of the windows that must be hit"
    )
    parser.add_argument("--seed", default="1", help="seed of the kills and of the work")
    parser.add_argument(
        "--state",
        type=Path,
        default=REPOSITORY / "build" / "drill" / "tally.json",
        help="the tally, saved after each round",
    )
    parser.add_argument("--resume", action="store_true", help="continue the tally in --state")
    parser.add_argument("--round", type=int, default=250, help="inline windows in a round")
    parser.add_argument(
        "--limit", type=float, default=1500.0, help="seconds after which a round gives up"
    )
    parser.add_argument(
        "--lives",
        type=int,
        default=1,
        help="epochs of the logs in a round: topics recreated, disks and schedules replaced",
    )
    parser.add_argument("--parallelism", type=int, default=5, help="tasks at a time")
    parser.add_argument(
        "--folder",
        type=Path,
        default=REPOSITORY / "build" / "drill",
        help="folder for the files of rounds; those with findings stay",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
