"""Takes the pictures of the web page in the documentation.

``python -m tools.devkit.page_pictures docs/images`` starts an API server on an invented history, an
embedded TubeMQ, and a Chromium of the system; check the pictures before committing them.
"""

from __future__ import annotations

import random
import socket
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from tools.devkit.airflow.history import (
    BEGAN,
    add_asset,
    add_dag,
    add_event,
    add_state,
    add_task,
    metadata_of,
    window,
)
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tools.devkit.browser import Tab, open_tab, picture_arguments
from tools.devkit.small_png import small_picture
from tubemq_client import Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.sync import Producer

H = "4be1c09a77"
STEP = 28
PARTITIONS = ("1:0", "1:1", "2:0", "2:1")
DAY = 24 * 60


def _cursor_group(session: Any, label: str, windows: int, *, dag_id: str, every: int) -> int:
    """Add windows of a cursor, one each `every` minutes, with a position behind the last."""
    pick = random.Random(label)  # noqa: S311 - no secret, only reproducible pictures
    asset_id = add_asset(session, f"tubemq:{label}")
    next_offsets = dict.fromkeys(PARTITIONS, 0)
    for seq in range(1, windows + 1):
        wave = 3 + (seq % 24)
        ends = {key: at + STEP * pick.randint(wave, 6 * wave) for key, at in next_offsets.items()}
        ranges = {key: [next_offsets[key], ends[key]] for key in PARTITIONS}
        next_offsets = ends
        position = {"seq": seq, "next": next_offsets, "h": H}
        document = window(f"c-{seq}-{H}", ranges, position=position, replayed=int(seq % 23 == 0))
        add_event(session, asset_id, seq * every, document, dag_id)
    cursor = {"v": 1, "seq": windows, "next": next_offsets, "h": H, "rev": windows}
    at = BEGAN + timedelta(minutes=windows * every)
    cursor |= {"updated": at.isoformat().replace("+00:00", "Z"), "by": f"{dag_id}|run|ingest|-1"}
    add_state(session, asset_id, "cursor", cursor)
    return asset_id


def _time_group(session: Any, label: str) -> None:
    """Add hourly windows of some days: two are missing, one is there twice, one has a gap."""
    asset_id = add_asset(session, f"tubemq:{label}")
    for hour in range(6 * 24 + 7):
        if hour in {31, 32, 77}:
            continue
        start = BEGAN + timedelta(hours=hour)
        wide = 2 if hour == 100 else 1
        ids = [f"{at:%Y%m%dT%H%M%SZ}" for at in (start, start + timedelta(hours=wide))]
        ranges = {key: [hour * 280, (hour + 1) * 280] for key in PARTITIONS}
        gaps = {"2:0": [[hour * 280, hour * 280 + 56]]} if hour == 55 else {}
        document = window(f"t-{ids[0]}-{ids[1]}-{H}", ranges, gaps=gaps)
        add_event(session, asset_id, hour * 60 + 65, document, "clicks_by_hour")
        if hour == 12:
            add_event(session, asset_id, 6 * DAY, {**document, "replayed": 1}, "clicks_by_hour")


def _seed(url: str) -> None:
    with metadata_of(url) as session:
        for dag_id in ("orders_follow", "clicks_by_hour", "payments_follow"):
            add_dag(session, dag_id)
        orders = _cursor_group(
            session, "main/orders/warehouse", 96, dag_id="orders_follow", every=45
        )
        progress = {"v": 1, "state": "reading", "window": f"c-97-{H}", "read": 61_000}
        add_task(
            session,
            orders,
            "orders_follow",
            "ingest",
            progress={**progress, "entries": 98_000, "rate": 5_400},
        )
        _time_group(session, "main/clicks/hourly")
        _cursor_group(session, "west/payments/audit", 30, dag_id="payments_follow", every=60)
        for name in ("refunds", "sessions", "stock"):
            _cursor_group(session, f"main/{name}/warehouse", 12, dag_id="orders_follow", every=120)


_SENT = {"orders": 26_000, "clicks": 300, "stock": 2_900, "refunds": 900, "sessions": 1_100}
"""Records by topic: more than the invented positions, because the page reports a log that ends
before a position."""


def _produce(server: EmbeddedTubeMQ) -> None:
    settings = ClientConfig.parse({"masters": server.masters}).settings()
    with Producer(settings) as producer:
        for topic, count in _SENT.items():
            for _ in producer.send_many(topic, (Record(b"x") for _ in range(count))):
                pass


SHOTS = [
    ("page-group", "orders", 1280, 760, False),
    ("page-coverage", "clicks", 1280, 620, True),
    ("page-phone", "clicks", 400, 900, False),
    ("page-away", "payments", 1280, 480, False),
]
"""Name, topic, width, height, and dark mode."""


def _shoot(tab: Tab, airflow: AirflowStack, target: Path) -> None:
    token = airflow.api.token
    url = f"{airflow.home.url}/tubemq/"
    ids = {}
    tab.size(1280, 800)
    tab.go(url, token=token)
    tab.wait("document.querySelectorAll('a.card').length === 6")
    for topic in ("orders", "clicks", "payments"):
        find = (
            f"[...document.querySelectorAll('a.card')].find(c => c.innerText.startsWith('{topic}'))"
        )
        ids[topic] = tab.evaluate(f"{find}.dataset.id")
    tab.wait("!document.querySelector('#groups').innerText.includes('…')", 40)
    for name, topic, width, height, dark in SHOTS:
        tab.size(width, height, dark=dark)
        tab.go("about:blank")
        tab.go(f"{url}#{ids[topic]}")
        tab.wait(
            "document.querySelector('#detail').innerText.includes('No hole') || "
            "document.querySelector('#detail').innerText.includes('no accepted window')",
            40,
        )
        tab.wait("!document.body.innerText.includes('Asking the brokers')", 40)
        if topic == "clicks":
            tab.evaluate("[...document.querySelectorAll('h3')].at(-1).scrollIntoView()")
        if tab.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            raise SystemExit(f"{name}: wider than the window")
        small_picture(tab, target / f"{name}.png")


def _shoot_inside(tab: Tab, airflow: AirflowStack, target: Path) -> None:
    """Take a picture of the page inside Airflow's frame."""
    tab.size(1280, 520)
    tab.go(f"{airflow.home.url}/plugin/tubemq-windows")
    tab.wait("document.querySelector('iframe') !== null", 40)
    tab.wait(
        "document.querySelector('iframe').contentDocument?.querySelectorAll('a.card').length === 6"
    )
    tab.wait("!document.querySelector('iframe').contentDocument.body.innerText.includes('…')", 40)
    print("console:", tab.messages)
    small_picture(tab, target / "page-in-airflow.png")


def main() -> None:
    """Take all pictures into the directory of the command line."""
    target, path = picture_arguments()
    specs = [TopicSpec(topic, stores=1, partitions=2) for topic in ("orders", "clicks", "stock")]
    specs += [TopicSpec(topic, stores=1, partitions=2) for topic in ("refunds", "sessions")]
    with (
        EmbeddedTubeMQ(brokers=2, topics=specs, http=False) as server,
        socket.socket() as closed,
        tempfile.TemporaryDirectory() as dags,
    ):
        closed.bind(("127.0.0.1", 0))
        _produce(server)
        connections = {
            "main": {"conn_type": "tubemq", "host": server.masters},
            "west": {"conn_type": "tubemq", "host": f"127.0.0.1:{closed.getsockname()[1]}"},
        }
        with (
            running_airflow(
                Path(dags), database="sqlite", api_only=True, seed=_seed, connections=connections
            ) as airflow,
            open_tab(path) as tab,
        ):
            _shoot(tab, airflow, target)
            _shoot_inside(tab, airflow, target)


if __name__ == "__main__":
    main()
