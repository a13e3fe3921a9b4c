"""Play every table against the embedded server and a genuine one, and show where they differ.

    python -m tubemq_client.testing.isolation -- python -m tests.conformance

Answers are those of a genuine 2.4.0; with ``--record`` they are written anew from the one started
here. The exit code is 1 if anything differs without an explanation, or agrees in spite of one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.conformance.playing import Difference, Server, compare, play
from tests.conformance.rows import answers
from tests.conformance.servers import GENUINE_TOPICS, embedded_server, genuine_server
from tests.conformance.tables import TABLES, explained, idle_explanations

_WIDTH = 150


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.conformance", description=__doc__)
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
    from tubemq_client.testing.genuine import GenuineTubeMQ

    with GenuineTubeMQ(topics=GENUINE_TOPICS) as cluster:
        cluster.wait_accepting()
        server = genuine_server(cluster)
        if record:
            for name in names:
                _record(server, name)
            return 0
        return _judge("genuine", server, names, may_differ=False)


def _record(server: Server, table: str) -> None:
    lines = ["## Apache InLong TubeMQ 2.4.0, recorded with `python -m tests.conformance --record`"]
    for row in TABLES[table]:
        lines.append(f"# {row.name}")
        lines += [answer for question, answer in play(row, server) if not question.quiet]
    path = Path(__file__).with_name("answers") / f"{table}.txt"
    path.write_text("\n".join(lines) + "\n")
    print(f"{table}: {len(lines)} lines recorded", flush=True)


def _differences(server: Server, names: list[str]) -> list[Difference]:
    found = []
    for name in names:
        recorded = answers(name)
        for row in TABLES[name]:
            found += compare(row, play(row, server), recorded.get(row.name, []))
    return found


def _judge(title: str, server: Server, names: list[str], *, may_differ: bool) -> int:
    """Print the table of differences; how many have no explanation, or an idle one."""
    found = _differences(server, names)
    reasons = [explained(item.row, item.question) if may_differ else None for item in found]
    for item, reason in zip(found, reasons, strict=True):
        print(f"{title} | {item.row} | {item.question}"[:_WIDTH])
        print(f"    expected {item.expected}\n    answered {item.answer}")
        print(f"    because {reason}" if reason else "    WITHOUT EXPLANATION")
    idle = len(idle_explanations(found, names)) if may_differ else 0
    open_ends = reasons.count(None) + idle
    print(
        f"{title}: {len(found)} differences, {open_ends} of them unexplained or agreed", flush=True
    )
    return open_ends


if __name__ == "__main__":
    sys.exit(main())
