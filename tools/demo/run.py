"""`make demo`: watch Airflow move windows of a topic into Parquet, exactly once.

Starts an embedded TubeMQ (or RocketMQ, `--source=rocketmq`) of two brokers and a real Airflow,
produces flights of 2013 into a topic, and runs an example Dag over them through Spark: an interval,
the next one with data produced in between, the first one again, then a backfill of three past
intervals, twice. At the end it compares the rows produced with the rows in Parquet, record by
record; exit code 1 if they differ. With `--routes` it writes fifty streams of a topic into fifty
tables instead. Everything stays in `.demo/`, listens on loopback only, and is stopped at the end.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path

import report
from components import REPOSITORY, DemoFailed, Folder, airflow_environment, console, say, step
from flights import DataMissing, instants, write_sorted
from routes import RoutesDemo, routes_environment
from sources import SOURCES, DemoSource, Served

from tools.devkit.airflow.api import AirflowApiError
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tubemq_client.errors import TubeMQError

WINDOWS = 5
RUN_S = 240.0
_TAIL = 40


class Demo:
    """The demo, on running components."""

    def __init__(
        self,
        folder: Folder,
        source: DemoSource,
        served: Served,
        airflow: AirflowStack,
        at: list[datetime],
    ) -> None:
        self.folder = folder
        self.source, self.served = source, served
        self.dag = source.dag
        self.airflow = airflow
        self.at = at
        self.produced = 0

    def play(self) -> None:
        """Run all steps. Raises `DemoFailed` or `AirflowApiError` for a failed step."""
        self.airflow.wait_for_dags([self.dag])
        self.airflow.api.pause(self.dag, paused=False)
        step(f"1. The first interval, {_day(self.at[0])}")
        self._produce(0, 1)
        first = self._run(0)
        step(f"2. New data, and the next interval, {_day(self.at[1])}")
        self._produce(1, 2)
        self._run(1)
        step("3. The first run again (its task is cleared): no record may be lost or duplicated")
        self._clear(first)
        step(f"4. A backfill of the three intervals from {_day(self.at[2])} on")
        self._produce(2, WINDOWS)
        self._backfill("none")
        step("5. The same backfill again, every interval once more: it must write nothing")
        self._unchanged(lambda: self._backfill("completed"))

    def windows(self) -> list[report.Window]:
        """Return the comparison for the end of the demo."""
        events = self.airflow.api.asset_events(self.source.offsets_asset)
        return report.compared(self.folder.lake, self.folder.flights, self.at, events)

    def _produce(self, first: int, last: int) -> None:
        """Send the rows of intervals `first` to `last` (exclusive) and record their boundaries."""
        start, end = self.at[first], self.at[last]
        self.produced += self.source.produce(self.folder, self.served, start, end)

    def _run(self, number: int) -> str:
        """Trigger the Dag for an interval: wait for its receipts' offsets, then ingest."""
        start, end = (at.isoformat() for at in self.at[number : number + 2])
        run_id = self.airflow.api.trigger(
            self.dag,
            dag_run_id=f"demo__{_day(self.at[number])}",
            logical_date=start,
            data_interval_start=start,
            data_interval_end=end,
        )
        say(f"run {run_id} of Dag {self.dag}: ready, then ingest")
        self._await(run_id)
        return run_id

    def _clear(self, run_id: str) -> None:
        say(f"task ingest of run {run_id} is cleared and runs again")

        def clear() -> None:
            self.airflow.api.clear(self.dag, run_id, "ingest")
            self._await(run_id)

        self._unchanged(clear)

    def _backfill(self, reprocess: str) -> None:
        """Create a backfill as a user would, and wait for its three runs."""
        command = (
            *("backfill", "create", "--dag-id", self.dag),
            *("--from-date", _day(self.at[2]), "--to-date", _day(self.at[WINDOWS - 1])),
            *("--max-active-runs", "2", "--reprocess-behavior", reprocess),
        )
        with console.status("waiting until Airflow has closed the former backfill"):
            self.airflow.api.wait(self._backfills_over, RUN_S, "the end of a backfill")
        say("$ airflow " + " ".join(command))
        with console.status("waiting for three runs, two at a time"):
            self.airflow.cli(*command)
            for run in self.airflow.api.runs(self.dag):
                if run["run_type"] == "backfill":
                    self._outcome(run["dag_run_id"])

    def _backfills_over(self) -> bool:
        return all(backfill["completed_at"] for backfill in self.airflow.api.backfills(self.dag))

    def _await(self, run_id: str) -> None:
        with console.status(f"waiting for {run_id}"):
            self._outcome(run_id)

    def _outcome(self, run_id: str) -> None:
        """Wait for a run's end and print its window; raises with its logs if it failed."""
        self.airflow.expect_success(self.dag, run_id, timeout=RUN_S)
        result = self.airflow.api.xcom(self.dag, run_id, "ingest")
        outcome = "already written before" if result["replayed"] else "written"
        say(f"  {run_id}: {result['total']} records of window {result['window_id']}, {outcome}")

    def _unchanged(self, act: Callable[[], None]) -> None:
        """Run a function that must leave every file of the lake unchanged."""
        before = report.lake_files(self.folder.lake)
        act()
        if report.lake_files(self.folder.lake) != before:
            raise DemoFailed("the lake changed, and should not have")
        say(f"  no file was added, removed or rewritten ({len(before)} files)")


def main() -> int:
    """Run the demo; return the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Folder(options.folder)
    try:
        with ExitStack() as stack:
            demonstrate = _demonstrate_routes if options.routes else _demonstrate
            right = demonstrate(options, folder, stack)
            step("Stopping Airflow and the brokers")
        say(f"kept for you: {folder.lake} (Parquet), {folder.task_logs} (task logs)")
    except KeyboardInterrupt:
        say("interrupted; everything is stopped")
        return 130
    except (DemoFailed, DataMissing, AirflowApiError, TubeMQError) as error:
        tail = "\n".join(str(error).splitlines()[-_TAIL:])
        console.print(f"\n[red]the demo failed[/red]; logs are in {folder.root}")
        say(tail)
        return 1
    return 0 if right else 1


def _start(
    options: argparse.Namespace,
    folder: Folder,
    stack: ExitStack,
    source: DemoSource,
    variables: Mapping[str, str] | None = None,
) -> tuple[Served, AirflowStack]:
    """Start the servers of the source, and Airflow with further `variables`."""
    step(f"Starting {source.shape}")
    served = stack.enter_context(source.serve(folder))
    say(f"  {source.places(served)}")
    step("Starting Airflow: database, API server, scheduler, Dag processor")
    environment = airflow_environment(folder, options.every, options.engine, source.variables)
    airflow = stack.enter_context(
        running_airflow(
            REPOSITORY / "dags",
            root=folder.airflow,
            connections={source.connection_id: source.connection(served)},
            environment={**environment, **(variables or {})},
            parallelism=2,
        )
    )
    say(f"  watch it at {airflow.home.url} (no login), logs in {folder.task_logs}")
    return served, airflow


def _demonstrate(options: argparse.Namespace, folder: Folder, stack: ExitStack) -> bool:
    at = instants(options.every, WINDOWS + 1)
    folder.claim()
    step(f"Preparing: flights of {_day(at[0])} to {_day(at[-1])}, in order of time")
    say(f"  {write_sorted(folder.flights, at[0], at[-1])} rows in {folder.flights}")
    source = SOURCES[options.source]
    served, airflow = _start(options, folder, stack, source)
    say(f"  Parquet appears in {folder.lake}")
    demo = Demo(folder, source, served, airflow, at)
    demo.play()
    step("The result")
    return _judge(demo, options)


def _demonstrate_routes(options: argparse.Namespace, folder: Folder, stack: ExitStack) -> bool:
    folder.claim()
    variables = routes_environment(folder, options.engine)
    served, airflow = _start(options, folder, stack, SOURCES["tubemq"], variables)
    say(f"  the tables appear in {folder.lake.parent}")
    demo = RoutesDemo(folder, served, airflow)
    demo.play()
    step("The result")
    right = demo.judge()
    console.print("[green]equal[/green]" if right else "[red]NOT EQUAL[/red]")
    _stay(options, airflow)
    return right


def _stay(options: argparse.Namespace, airflow: AirflowStack) -> None:
    if options.stay:
        say(f"everything still runs: {airflow.home.url}; stop it with Ctrl-C")
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


def _judge(demo: Demo, options: argparse.Namespace) -> bool:
    """Show the table; return True if every window is right and nothing else is in the lake."""
    windows = demo.windows()
    console.print(report.as_table(windows))
    written = sum(window.in_parquet for window in windows)
    right = all(window.right for window in windows) and written == demo.produced
    verdict = "[green]equal[/green]" if right else "[red]NOT EQUAL[/red]"
    console.print(f"{verdict}: {demo.produced} records produced, {written} in Parquet")
    _stay(options, demo.airflow)
    return right


def _day(at: datetime) -> str:
    return f"{at:%Y-%m-%d}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--source", choices=tuple(SOURCES), default="tubemq", help="where the flights come from"
    )
    parser.add_argument(
        "--routes", action="store_true", help="fifty streams of one topic into fifty tables"
    )
    parser.add_argument(
        "--every", choices=("day", "week", "month"), default="week", help="length of a window"
    )
    parser.add_argument(
        "--engine", choices=("session", "inline"), default="session", help="Spark, or no JVM"
    )
    parser.add_argument(
        "--stay", action="store_true", help="keep everything running until Ctrl-C, to look around"
    )
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / ".demo", help="work folder; emptied first"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
