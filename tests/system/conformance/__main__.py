"""Run every table against the embedded server and a genuine one, and show the differences.

    python -m tools.devkit.isolation -- python -m tests.system.conformance

Answers are those of a genuine 2.4.0; with ``--record`` they are recorded again from the one started
here. The exit code is 1 if anything differs without an explanation, or agrees in spite of one.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.system.conformance.playing import Difference, Server, compare, play
from tests.system.conformance.rows import answers
from tests.system.conformance.servers import GENUINE_TOPICS, embedded_server, genuine_server
from tests.system.conformance.tables import TABLES, explained, idle_explanations

_WIDTH = 150
_LINE = "{:<12}{:>6}{:>9}{:>8}{:>20}{:>9}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.system.conformance", description=__doc__)
    parser.add_argument("tables", nargs="*", default=[], help=f"of {', '.join(TABLES)}")
    parser.add_argument("--only", choices=("embedded", "genuine"))
    parser.add_argument("--record", action="store_true", help="write down the genuine answers")
    wanted = parser.parse_args()
    names = wanted.tables or list(TABLES)
    failures = 0
    if wanted.only != "embedded":
        failures += _on_genuine(names, record=wanted.record)
    if wanted.only != "genuine":
        with embedded_server() as server:
            failures += _judge("embedded", server, names, may_differ=True)
    return min(failures, 1)


def _on_genuine(names: list[str], *, record: bool) -> int:
    from tools.devkit.tubemq.genuine import GenuineTubeMQ

    print("starting a genuine TubeMQ and waiting for its topics (about a minute)", flush=True)
    with GenuineTubeMQ(topics=GENUINE_TOPICS) as cluster:
        cluster.wait_accepting()
        server = genuine_server(cluster)
        if record:
            for name in names:
                _record(server, name)
            return 0
        return _judge("genuine", server, names, may_differ=False)


def _record(server: Server, table: str) -> None:
    lines = [
        "## Apache InLong TubeMQ 2.4.0, recorded with `python -m tests.system.conformance --record`"
    ]
    for row in TABLES[table]:
        lines.append(f"# {row.name}")
        lines += [answer for question, answer in play(row, server) if not question.quiet]
    path = Path(__file__).with_name("answers") / f"{table}.txt"
    path.write_text("\n".join(lines) + "\n")
    print(f"{table}: {len(lines)} lines recorded", flush=True)


def _judge(title: str, server: Server, names: list[str], *, may_differ: bool) -> int:
    """Print a line a table, and below it what differs; how many differences have no explanation,
    or an idle one."""
    print(_LINE.format(title, "rows", "answers", "differ", "of these explained", "seconds"))
    found, unexplained = [], 0
    for name in names:
        began, recorded, odd, count = time.monotonic(), answers(name), [], 0
        for row in TABLES[name]:
            played = play(row, server)
            count += sum(not question.quiet for question, _ in played)
            odd += compare(row, played, recorded.get(row.name, []))
        reasons = [explained(item.row, item.question) if may_differ else None for item in odd]
        known = len(odd) - reasons.count(None)
        seconds = round(time.monotonic() - began)
        print(_LINE.format(name, len(TABLES[name]), count, len(odd), known, seconds), flush=True)
        for item, reason in zip(odd, reasons, strict=True):
            _show(item, reason)
        found += odd
        unexplained += reasons.count(None)
    idle = idle_explanations(found, names) if may_differ else []
    for row_name, beginning in idle:
        print(f"  agrees in spite of an explanation: {row_name} | {beginning}")
    problems = unexplained + len(idle)
    print(f"{title}: {len(found)} differences, {problems or 'no'} problems\n", flush=True)
    return problems


def _show(item: Difference, reason: str | None) -> None:
    print(f"  {item.row} | {item.question}"[:_WIDTH])
    print(f"    genuine, recorded: {item.expected}\n    this one: {item.answer}")
    print(f"    because {reason}" if reason else "    WITHOUT EXPLANATION", flush=True)


if __name__ == "__main__":
    sys.exit(main())
