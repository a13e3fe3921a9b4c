"""Takes pictures of Airflow's import errors for Dag files with a mistake in an argument.

``python -m tools.devkit.parse_mistakes DIRECTORY`` puts a Dag file for each mistake into the folder
of a disposable Airflow, opens *Dag Import Errors* at 1280 × 800 with a Chromium of the system,
unfolds each file, and prints the lines of the provider's error that are off the screen.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tools.devkit.browser import Tab, open_tab, picture_arguments
from tools.devkit.mistake_pictures import ON_SCREEN

_DAG: Final = """\
from airflow.sdk import DAG
from tubemq_provider.operators.ingest import {operator}

with DAG("{name}", schedule=None):
    {operator}(
        task_id="ingest", topic="orders", cluster="main", **{given!r}
    )
"""
_PLACE: Final = """(() => {
  const wanted = %s;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    if (walker.currentNode.data.trim() !== wanted) continue;
    walker.currentNode.parentElement.scrollIntoView({block: "%s"});
    const box = walker.currentNode.parentElement.getBoundingClientRect();
    return [box.left + 5, (box.top + box.bottom) / 2];
  }
})()"""
_BASE: Final = {
    "engine": "inline",
    "group": "lake",
    "path": "/lake",
    "initial_position": "earliest",
}
MISTAKES: Final[dict[str, dict[str, object]]] = {
    "number": {"max_records": "many"},
    "group": {"group": "g"},
    "place": {"path": "s3://bucket/orders"},
    "sink": {"path": None, "sink": "hdfs://nn/lake"},
    "start": {
        "boundaries": "/b.json",
        "start": "2026-01-02T00:00:00Z",
        "end": "2026-01-01T00:00:00Z",
    },
    "duration": {"max_duration": "10 minutes"},
    "zone": {"boundaries": "/b.json", "start": "2026-01-01", "end": "2026-01-02"},
    "engine": {"engine": "spark"},
    "spelling": {"intial_position": "earliest"},
    "deferrable": {"deferrable": True},
    "partition": {"initial_position": {"0": 0}},
}
"""Wrong arguments, by the name of the file."""


def _unfold(airflow: AirflowStack, tab: Tab, target: Path) -> None:
    tab.size(1280, 800)
    tab.go(airflow.home.url, token=airflow.api.token)
    tab.wait("document.body.innerText.includes('Dag Import Error')")
    tab.evaluate(
        "[...document.querySelectorAll('button')]"
        ".find(found => found.innerText.includes('Import Error')).click()"
    )
    tab.wait("document.body.innerText.includes('number.py')")
    for error in airflow.api.import_errors():
        file = Path(error["filename"]).name
        lines = error["stack_trace"].splitlines()
        message = [line for line in lines if line.startswith(("  - ", "tubemq"))]
        _click(tab, file)
        tab.evaluate("new Promise(done => setTimeout(done, 700))")
        tab.evaluate(_PLACE % (json.dumps(file), "start"))
        hidden = [line for line in message if not tab.evaluate(ON_SCREEN % json.dumps(line[:60]))]
        print(f"{file}: {len(message)} lines, {len(hidden)} off the screen", *hidden, sep="\n    ")
        tab.picture(target / f"parse-{file.removesuffix('.py')}.png")
        _click(tab, file)
        tab.evaluate("new Promise(done => setTimeout(done, 400))")


def _click(tab: Tab, text: str) -> None:
    x, y = tab.evaluate(_PLACE % (json.dumps(text), "nearest"))
    for kind in ("mousePressed", "mouseReleased"):
        tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def main() -> None:
    """Take all pictures into the directory of the command line."""
    target, path = picture_arguments()
    with tempfile.TemporaryDirectory() as dags:
        for name, wrong in MISTAKES.items():
            given = {**_BASE, **wrong}
            if "boundaries" in given:
                del given["initial_position"]
            operator = f"TubeMQ{'Window' if 'boundaries' in given else 'Cursor'}IngestOperator"
            text = _DAG.format(name=name, operator=operator, given=given)
            (Path(dags) / f"{name}.py").write_text(text)
        with running_airflow(Path(dags), database="sqlite") as airflow:
            airflow.api.wait(
                lambda: len(airflow.api.import_errors()) == len(MISTAKES), 240, "all import errors"
            )
            with open_tab(path) as tab:
                _unfold(airflow, tab, target)


if __name__ == "__main__":
    main()
