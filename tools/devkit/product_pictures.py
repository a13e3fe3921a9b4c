"""Takes the pictures of the product on the site: connection form, log, asset, Dagster.

``python -m tools.devkit.product_pictures DIRECTORY [airflow|dagster]`` runs a Dag on a disposable
Airflow, and an asset of Dagster, over an embedded TubeMQ, and photographs what a user sees with a
Chromium of the system. `tools.devkit.page_pictures` takes those of the web page,
`tools.devkit.mistake_pictures` those of failed tasks. Dagster's web server gets an environment of
its own in `build/`. Check the pictures before committing them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.devkit.airflow.home import free_port
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tools.devkit.browser import Tab, open_tab, picture_arguments
from tools.devkit.patience import PATIENCE
from tools.devkit.small_png import small_picture
from tools.scripts.environments import environment
from tubemq_client import Producer, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

DAG_ID = "orders_to_lake"
_DAG = f"""\
from airflow.sdk import DAG

from tubemq_provider.operators.ingest import TubeMQCursorIngestOperator

with DAG("{DAG_ID}", schedule=None, default_args={{"retries": 2, "retry_delay": 1}}):
    TubeMQCursorIngestOperator(
        task_id="ingest",
        topic="orders",
        group="lake",
        path="%s/orders",
        initial_position="earliest",
        decode={{"format": "json", "schema": "id bigint, city string, price double"}},
    )
"""
_DEFINITIONS = """\
import dagster as dg

from tubemq_provider.dagster import TubeMQResource, build_tubemq_asset

orders = build_tubemq_asset(
    "orders", topic="orders", group="dagster", sink="%s/orders", initial_position="earliest",
    decode={"format": "json", "schema": "id bigint, city string, price double"},
)
defs = dg.Definitions(
    assets=[orders], resources={"tubemq": TubeMQResource(masters="%s", offsets_dir="%s/offsets")}
)
"""
_PAUSE = "new Promise(done => setTimeout(done, 2500))"
_EDIT = """(() => {
  const found = [...document.querySelectorAll('button')].find(button =>
    /edit/i.test(`${button.getAttribute('aria-label') || ''} ${button.title} ${button.innerText}`));
  if (found) found.click();
  return Boolean(found);
})()"""


def _produce(server: EmbeddedTubeMQ) -> None:
    cities = ("Köln", "Ulm", "Shanghai", "Lima")
    with Producer(ClientConfig.parse({"masters": server.masters}).settings()) as producer:
        records = (
            Record(f'{{"id": {n}, "city": "{cities[n % 4]}", "price": {n / 4}}}'.encode())
            for n in range(4_000)
        )
        for _ in producer.send_many("orders", records):
            pass
    server.broker(1).flush()


def _shoot(tab: Tab, url: str, sign: str, path: Path, token: str | None = None) -> None:
    """Save a picture of an address once it shows the text `sign`."""
    tab.go("about:blank")
    tab.go(url, token=token)
    tab.wait(f"document.body.innerText.includes({sign!r})", 120)
    tab.evaluate(_PAUSE)
    small_picture(tab, path)
    print(f"{path.name}: {path.stat().st_size // 1000} kB", flush=True)


def _of_airflow(tab: Tab, airflow: AirflowStack, masters: str, target: Path) -> None:
    url, token = airflow.home.url, airflow.api.token
    stored = {"connection_id": "tubemq_default", "conn_type": "tubemq", "host": masters}
    airflow.api.call("POST", "/connections", json=stored)
    airflow.wait_for_dags([DAG_ID])
    airflow.api.pause(DAG_ID, paused=False)
    run_id = airflow.run_dag(DAG_ID)
    tab.size(1280, 800)
    log = f"{url}/dags/{DAG_ID}/runs/{run_id}/tasks/ingest"
    _shoot(tab, log, "published", target / "product-log.png", token)
    (event,) = airflow.api.asset_events("tubemq:tubemq_default/orders/lake")
    _shoot(tab, f"{url}/assets/{event['asset_id']}", "orders", target / "product-asset.png")
    tab.go(f"{url}/connections")
    tab.wait("document.body.innerText.includes('tubemq_default')", 120)
    if not tab.evaluate(_EDIT):
        raise SystemExit("Airflow's list of connections has no button to edit one")
    tab.wait("document.body.innerText.includes('Masters')", 60)
    tab.evaluate(_PAUSE)
    small_picture(tab, target / "product-form.png")


@contextmanager
def _dagster(folder: Path, masters: str) -> Iterator[str]:
    """Run Dagster's web server over a materialized asset; yield its address."""
    python = environment("dagster-pictures", "dagster,embedded", ["dagster-webserver"])
    file = folder / "defs.py"
    file.write_text(_DEFINITIONS % (folder, masters, folder))
    variables = os.environ | {"DAGSTER_HOME": str(folder), "DAGSTER_DISABLE_TELEMETRY": "yes"}
    (folder / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    command = [str(python.with_name("dagster")), "asset", "materialize", "--select", "orders"]
    subprocess.run([*command, "-f", str(file)], env=variables, check=True, timeout=200 * PATIENCE)
    port = free_port()
    web = [str(python.with_name("dagster-webserver")), "-h", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen([*web, "-f", str(file)], env=variables)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    """Take the pictures into the directory of the command line."""
    target, path = picture_arguments()
    parts = sys.argv[2:] or ["airflow", "dagster"]
    switches = Switches(flush_interval_ms=20)
    with (
        EmbeddedTubeMQ(topics=["orders"], switches=switches) as server,
        tempfile.TemporaryDirectory() as scratch,
        open_tab(path) as tab,
    ):
        _produce(server)
        if "airflow" in parts:
            dags = Path(scratch) / "dags"
            dags.mkdir()
            (dags / f"{DAG_ID}.py").write_text(_DAG % scratch)
            with running_airflow(dags, database="sqlite") as airflow:
                _of_airflow(tab, airflow, server.masters, target)
        if "dagster" in parts:
            folder = Path(scratch) / "dagster"
            folder.mkdir()
            with _dagster(folder, server.masters) as address:
                tab.wait("true")
                tab.size(1280, 800)
                _shoot(tab, f"{address}/assets/orders", "orders", target / "product-dagster.png")


if __name__ == "__main__":
    main()
