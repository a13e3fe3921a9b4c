"""Count the files and functions that common work enters: ``python -m tools.trace_calls``.

Runs one inline window of 1 000 records through the cursor operator, and one look at a group's lag,
against an embedded server in another process. Prints how many files and functions of the packages
each of them entered, without comprehensions and lambdas; ``--list`` names the files with their
number of functions. A measure of how many layers a reader has to know, not of time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("tubemq_client", "rocketmq_client", "tubemq_provider")
RECORDS = 1_000

_SERVER = """
import sys
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
with EmbeddedTubeMQ(topics=[TopicSpec("orders", partitions=3)]) as mq:
    print(mq.masters, flush=True)
    sys.stdin.read()
"""


def traced(work: Callable[[], object]) -> Counter[str]:
    """Return, for each file of the packages that `work` entered, its number of functions."""
    entered: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        # Bodies of modules and classes that are imported on the way are no calls.
        if event == "call" and frame.f_code.co_flags & CO_OPTIMIZED:
            entered.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    folders = tuple(f"{ROOT / package}{os.sep}" for package in PACKAGES)
    return Counter(
        str(Path(code.co_filename).relative_to(ROOT))
        for code in entered
        if code.co_filename.startswith(folders) and not code.co_name.startswith("<")
    )


def window(masters: str) -> Callable[[], object]:
    """Return a function that runs one inline window of records sent here."""
    from tests.provider.contexts import fake_context
    from tubemq_client import Producer, Record
    from tubemq_client.config import ClientConfig
    from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

    with Producer(ClientConfig.parse({"masters": masters}).settings()) as producer:
        list(producer.send_many("orders", [Record(b"x" * 100)] * RECORDS))
    task = TubeMQCursorIngestOperator(
        task_id="ingest",
        topic="orders",
        group="lake",
        cluster="test",
        path=tempfile.mkdtemp(prefix="tubemq-trace-"),
        engine="inline",
        initial_position="earliest",
    )
    context: Any = fake_context(task, {})
    execute = getattr(type(task).execute, "__wrapped__", type(task).execute)

    def run() -> None:
        result = execute(task, context)
        if result["total"] != RECORDS:
            raise RuntimeError(f"the window has {result['total']} records instead of {RECORDS}")

    return run


def lag(_: str) -> Callable[[], object]:
    """Return a function that reads the lag of a group once, as the hook does for sensors."""
    from tubemq_client import Partition
    from tubemq_provider.hooks.tubemq import TubeMQHook

    positions = {Partition(1, "orders", number): 0 for number in range(3)}
    return lambda: TubeMQHook().lag("orders", positions, "lake")


def main() -> None:
    """Print the figures of both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--list", action="store_true", help="name the files")
    listed = parser.parse_args().list
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        masters = server.stdout.readline().strip()
        connection = {"conn_type": "tubemq", "host": masters, "extra": {"cluster": "test"}}
        os.environ["AIRFLOW_CONN_TUBEMQ_DEFAULT"] = json.dumps(connection)
        for name, prepare in (("one inline window", window), ("one lag query", lag)):
            files = traced(prepare(masters))
            print(f"{name}: {len(files)} files, {sum(files.values())} functions")
            if listed:
                print("\n".join(f"  {count:4} {file}" for file, count in sorted(files.items())))
    finally:
        server.communicate(timeout=30)


if __name__ == "__main__":
    main()
