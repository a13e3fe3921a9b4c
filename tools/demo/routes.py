"""`make demo ARGS=--routes`: fifty streams of one topic into fifty tables, with one read of each
window.

Produces records of fifty streams, runs the example Dag `tubemq_fifty_tables` over them, produces
more, runs it again, and clears the second run. At the end the rows of each table are compared with
the records that were sent to its stream. This module must not know how the components start.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from components import TOPIC, DemoFailed, Folder, console, run_command, say, step
from report import lake_files
from rich.table import Table
from sources import TUBEMQ, Served

from tools.devkit.airflow.stack import AirflowStack
from tubemq_provider.sinks.read import read_windows

__all__ = ["DAG_ID", "RoutesDemo", "routes_environment"]

DAG_ID: Final = "tubemq_fifty_tables"
STREAMS: Final = 50
RECORDS: Final = 5_000
"""Records of one window."""
_GROUP: Final = "lake_streams"
_RUN_S: Final = 240.0
_SHOWN: Final = 5


def routes_environment(folder: Folder, engine: str) -> dict[str, str]:
    """Return variables of the example Dag."""
    return {
        "TUBEMQ_EXAMPLE_ROUTES_GROUP": _GROUP,
        "TUBEMQ_EXAMPLE_ROUTES_WINDOWS": str(folder.lake),
        "TUBEMQ_EXAMPLE_ROUTES_LAKE": str(folder.lake.parent),
        "TUBEMQ_EXAMPLE_ROUTES_ENGINE": engine,
    }


class RoutesDemo:
    """The variant with routes, on running components."""

    def __init__(self, folder: Folder, served: Served, airflow: AirflowStack) -> None:
        self._folder, self._served, self._airflow = folder, served, airflow
        self._sent: dict[str, list[bytes]] = defaultdict(list)
        self._number = 0

    def play(self) -> None:
        """Run all steps. Raises `DemoFailed` or `AirflowApiError` for a failed step."""
        self._airflow.wait_for_dags([DAG_ID])
        self._airflow.api.pause(DAG_ID, paused=False)
        step(f"1. {RECORDS} records of {STREAMS} streams in one topic, and one run over them")
        self._produce()
        self._run()
        step("2. As many again, and the next window")
        self._produce()
        last = self._run()
        step("3. The second run again (its task is cleared): no record may be lost or duplicated")
        before = lake_files(self._folder.lake.parent)
        self._airflow.api.clear(DAG_ID, last, "ingest")
        self._outcome(last)
        if lake_files(self._folder.lake.parent) != before:
            raise DemoFailed("the lake changed, and should not have")
        say(f"  no file was added, removed or rewritten ({len(before)} files)")

    def judge(self) -> bool:
        """Print the rows of the tables; return True if each equals its stream."""
        shown = Table("table", "sent", "rows", "")
        equal = 0
        for number, (stream, bodies) in enumerate(sorted(self._sent.items())):
            rows = sorted(self._rows(stream))
            right = rows == sorted(bodies)
            equal += right
            if number < _SHOWN or not right:
                verdict = "equal" if right else "NOT EQUAL"
                shown.add_row(f"tubemq_stream_{stream}", str(len(bodies)), str(len(rows)), verdict)
        shown.add_row("…", "", "", "")
        console.print(shown)
        say(f"{equal} of {len(self._sent)} tables have the records of their stream, each once")
        return equal == len(self._sent) == STREAMS

    def _rows(self, stream: str) -> Iterator[bytes]:
        place = self._folder.lake.parent / f"tubemq_stream_{stream}"
        for batch in read_windows(str(place)).to_table().column("value").to_pylist():
            yield bytes(batch)

    def _produce(self) -> None:
        self._number += 1
        path = self._folder.root / f"streams-{self._number}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for at in range(RECORDS):
                stream = f"s{at * at % STREAMS if at % 3 else at % STREAMS}"
                record = {"stream": stream, "number": at, "window": self._number}
                text = json.dumps(record, separators=(",", ":"))
                self._sent[stream].append(text.encode())
                file.write(f"{text}\n")
        arguments = ("produce", TOPIC, "--file", path, "--stream-field", "stream")
        environment = {**os.environ, "TUBEMQ_MASTERS": self._served["masters"]}
        run_command("tubemq", [*TUBEMQ], arguments, environment)

    def _run(self) -> str:
        run_id = self._airflow.api.trigger(DAG_ID, dag_run_id=f"demo__{self._number}")
        say(f"run {run_id} of Dag {DAG_ID}")
        self._outcome(run_id)
        return run_id

    def _outcome(self, run_id: str) -> None:
        """Wait for a run's end and print its window; raises with its logs if it failed."""
        self._airflow.expect_success(DAG_ID, run_id, timeout=_RUN_S)
        result: Mapping[str, Any] = self._airflow.api.xcom(DAG_ID, run_id, "ingest")
        tables = result["tables"]
        outcome = "already written before" if result["replayed"] else "written"
        read = sum(entry["read"] for entry in tables.values())
        say(
            f"  {run_id}: window {result['window_id']}: {read} records read once, for "
            f"{len(tables)} tables, {outcome}"
        )
        if read != RECORDS:
            raise DemoFailed(f"{RECORDS} records were sent for this window, {read} are in tables")
