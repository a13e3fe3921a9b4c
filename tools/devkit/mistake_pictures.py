"""Takes pictures of Airflow's log page for Dags with the mistakes that beginners make.

``python -m tools.devkit.mistake_pictures DIRECTORY [NAME …]`` runs the Dags of
`tools.devkit.mistake_dags` on a disposable Airflow and an embedded TubeMQ, and photographs the log
of each failed task at 1280 × 800 with a Chromium of the system, as it opens (in a separate folder)
and with Airflow's list of Python files folded. Check the pictures: cause and remedy belong on the
first screen.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tools.devkit.browser import Tab, open_tab, picture_arguments
from tools.devkit.mistake_dags import DAGS, FIRST
from tools.devkit.small_png import small_picture
from tubemq_client import Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.sync import Producer

_FOLDER = """\
from tools.devkit.mistake_dags import DAGS
globals().update(DAGS)
assert "airflow"  # by such words Airflow tells Dag files: airflow, dag
"""


def _produce(server: EmbeddedTubeMQ) -> None:
    settings = ClientConfig.parse({"masters": server.masters}).settings()
    with Producer(settings) as producer:
        for _ in producer.send_many("orders", (Record(b"x") for _ in range(100))):
            pass


def _connections(server: EmbeddedTubeMQ) -> dict[str, dict[str, object]]:
    web = {"admin_url": f"http://{server.master_web}"}

    def to(host: str, **extra: object) -> dict[str, object]:
        return {"conn_type": "tubemq", "host": host, "extra": {**web, **extra}}

    return {
        "tubemq_default": to(server.masters, cluster="main"),
        "alias": to(server.masters, cluster="renamed"),
        "dead": to("127.0.0.1:1"),
        "nameless": to("tubemq-master.invalid:8715"),
        "http_port": to(server.master_web or ""),
        "bad_fields": to("", rpc_timeout_ms="soon", clustr="x"),
    }


ON_SCREEN = """(() => {
  const wanted = %s;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const at = walker.currentNode.data.indexOf(wanted);
    if (at < 0) continue;
    const range = document.createRange();
    range.setStart(walker.currentNode, at);
    range.setEnd(walker.currentNode, at + wanted.length);
    const box = range.getBoundingClientRect();
    const shown = document.elementFromPoint(box.right - 2, (box.top + box.bottom) / 2);
    if (shown && walker.currentNode.parentElement.contains(shown)) return true;
  }
  return false;
})()"""

_FOLD = "document.querySelectorAll('details[open] > summary').forEach(found => found.click())"


def _message_lines(airflow: AirflowStack, dag_id: str, run_id: str) -> list[str]:
    """Return the lines of the provider's message about the mistake."""
    lines = (line for line in airflow.logs(dag_id, run_id).splitlines() if line.startswith("{"))
    for entry in map(json.loads, lines):
        if entry["level"] in ("error", "warning") and "to look further" in entry["event"]:
            return str(entry["event"]).splitlines()
    raise SystemExit(f"{dag_id}: the provider logged no message")


def _shoot(tab: Tab, airflow: AirflowStack, dag_id: str, run_id: str, target: Path) -> None:
    """Save a picture of the log as it opens behind a click on the red square.

    The provider's whole message must be on the screen then; for the second picture Airflow's list
    of Python files below it is folded.
    """
    tab.go("about:blank")
    tab.go(f"{airflow.home.url}/dags/{dag_id}/runs/{run_id}/tasks/ingest", token=airflow.api.token)
    tab.wait(
        "document.body.innerText.includes('Task instance is in') || "
        "document.body.innerText.includes('Log message source')"
    )
    tab.wait("!document.body.innerText.includes('Loading')")
    tab.evaluate("new Promise(done => setTimeout(done, 1500))")
    message = _message_lines(airflow, dag_id, run_id)
    hidden = [line for line in message if not tab.evaluate(ON_SCREEN % json.dumps(line))]
    print(f"{dag_id}: {len(message)} lines, {len(hidden)} off the screen", *hidden, sep="\n    ")
    (target / "as-it-opens").mkdir(exist_ok=True)
    tab.picture(target / "as-it-opens" / f"{dag_id}.png")
    tab.evaluate(_FOLD)
    tab.evaluate("new Promise(done => setTimeout(done, 500))")
    path = target / f"mistake-{dag_id.replace('_', '-')}.png"
    small_picture(tab, path)
    print(f"{path.name}: {path.stat().st_size // 1000} kB", flush=True)


def _take(airflow: AirflowStack, tab: Tab, target: Path, dag_ids: list[str]) -> None:
    airflow.wait_for_dags(list(DAGS))
    for dag_id in (FIRST, *dag_ids):
        airflow.api.pause(dag_id, paused=False)
    airflow.run_dag(FIRST)
    runs = {dag_id: airflow.api.trigger(dag_id) for dag_id in dag_ids}
    tab.size(1280, 800)
    for dag_id, run_id in runs.items():
        state = airflow.api.wait_for_run(dag_id, run_id, 240)
        if state != "failed":
            raise SystemExit(f"{dag_id}: {state}")
        _shoot(tab, airflow, dag_id, run_id, target)


def main() -> None:
    """Take all pictures, or the named ones, into the directory."""
    target, path = picture_arguments()
    dag_ids = sys.argv[2:] or [dag_id for dag_id in DAGS if dag_id != FIRST]
    topics = [TopicSpec("orders", stores=1, partitions=2)]
    with (
        EmbeddedTubeMQ(brokers=1, topics=topics) as server,
        tempfile.TemporaryDirectory() as dags,
        tempfile.TemporaryDirectory(prefix="lakes-") as lakes,
    ):
        _produce(server)
        (Path(dags) / "mistakes.py").write_text(_FOLDER)
        environment = {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "TUBEMQ_MISTAKES_LAKES": lakes,
        }
        with (
            running_airflow(
                Path(dags),
                connections=_connections(server),
                environment=environment,
                parallelism=4,
                triggerer=True,
            ) as airflow,
            open_tab(path) as tab,
        ):
            _take(airflow, tab, target, dag_ids)


if __name__ == "__main__":
    main()
