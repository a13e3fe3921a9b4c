"""The web page on a real API server with a closed login: rights, hostile names, no brokers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.kit.lakes import Cluster
from tools.devkit.airflow.history import (
    add_asset,
    add_dag,
    add_event,
    add_state,
    add_task,
    metadata_of,
    window,
)
from tools.devkit.airflow.stack import AirflowStack, running_airflow
from tools.devkit.browser import chromium_path, open_tab
from tubemq_client.embedded import EmbeddedTubeMQ

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[3]
USERS = {"boss": "admin-word", "limited": "viewer-word", "nobody": "user-word"}
HOSTILE = '<img src=x onerror=alert(1)>"&amp;'
H = "0123456789"
SHARED = tuple(f"shared{number}" for number in range(6))
PATHS = ["", "page.js", "page.css", "api/groups"]
OF_GROUP = ["", "/windows", "/coverage", "/running", "/lag"]


def _group(session: Any, label: str, dag_id: str = "loads") -> int:
    asset_id = add_asset(session, f"tubemq:{label}")
    position = {"seq": 1, "next": {"1:0": 28}, "h": H}
    cursor = {"v": 1, "seq": 1, "next": {"1:0": 28}, "h": H, "by": f"{dag_id}|run 1|ingest|-1"}
    add_state(session, asset_id, "cursor", {**cursor, "updated": "2026-01-01T00:01:00Z"})
    document = window(f"c-1-{H}", {"1:0": [0, 28]}, position=position)
    add_event(session, asset_id, 1, document, dag_id=dag_id)
    return asset_id


def _seed(url: str) -> None:
    with metadata_of(url) as session:
        for dag_id in ("loads", "secret_loads"):
            add_dag(session, dag_id)
        number = _group(session, "live/orders/g")
        add_event(session, number, 2, window(f"c-2-{H}", {"1:0": [28, 56]}), dag_id="secret_loads")
        add_task(session, number, "loads", "ingest", progress={"v": 1, "read": 5, "entries": 10})
        add_task(session, number, "secret_loads", "ingest", progress={"v": 1, "read": 7})
        add_task(session, number, "loads", "again", state="failed")
        add_task(session, number, "secret_loads", "again", state="failed")
        _group(session, "away/orders/g", dag_id="secret_loads")
        add_asset(session, "tubemq:live/orders/hours")
        _group(session, "nowhere/orders/g")
        _group(session, "live/secret/g")
        _group(session, f"live/{HOSTILE}/g")
        broken = add_asset(session, "tubemq:broken/orders/g")
        add_state(session, broken, "cursor", {"v": 1, "seq": 1, "next": [1], "h": H})
        ahead = add_asset(session, "tubemq:unlike/orders/g")
        add_state(session, ahead, "cursor", {"v": 1, "seq": 1, "next": {"1:0": 28}, "h": H})
        add_event(session, ahead, 1, window(f"c-2-{H}", {"1:0": [28, 56]}, position={"h": H}))
        far = window(f"t-20260101T000000Z-99991231T235959Z-{H}", {"1:0": [0, 28]}, kind="time")
        add_event(session, ahead, 2, far)
        for topic in SHARED:
            _group(session, f"live/{topic}/one_name")
        for many in range(100):
            _group(session, f"many/topic{many:03}/g")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStack]:
    root = tmp_path_factory.mktemp("page")
    (root / "passwords.json").write_text(json.dumps(USERS))
    with EmbeddedTubeMQ(brokers=1, http=False) as mq, socket.socket() as closed:
        for topic in ("orders", *SHARED):
            Cluster(mq).add_topic(topic)
        closed.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{closed.getsockname()[1]}"
        users = ",".join(
            f"{n}:{r}" for n, r in zip(USERS, ("admin", "viewer", "user"), strict=True)
        )
        environment = {
            "PYTHONPATH": str(REPOSITORY),
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.kit.auth_manager.LimitingAuthManager",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": users,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(root / "passwords.json"),
        }
        connections = {
            "live": {"conn_type": "tubemq", "host": mq.masters},
            "away": {"conn_type": "tubemq", "host": away, "password": "hush-hush", "login": "me"},
        }
        with running_airflow(
            tmp_path_factory.mktemp("no_dags"),
            database="sqlite",
            root=root / "home",
            api_only=True,
            seed=_seed,
            connections=connections,
            environment=environment,
        ) as stack:
            yield stack


class Browser:
    """A user's session at the API server."""

    def __init__(self, server: AirflowStack, user: str | None) -> None:
        self.http = httpx.Client(base_url=server.home.url, timeout=60.0)
        if user is not None:
            said = self.http.post("/auth/token", json={"username": user, "password": USERS[user]})
            self.http.cookies.set("_token", said.json()["access_token"])

    def get(self, path: str) -> httpx.Response:
        return self.http.get(f"/tubemq/{path}")

    def groups(self, query: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"api/groups{query}").json()["groups"]
        return found

    def id_of(self, topic: str, cluster: str = "live") -> int:
        groups = [g for g in self.groups(f"?q={cluster}") if g["topic"] == topic]
        (found,) = (g for g in groups if g["group"] != "hours")  # it has windows of time only
        return int(found["id"])


@pytest.fixture(scope="module")
def boss(server: AirflowStack) -> Browser:
    return Browser(server, "boss")


@pytest.fixture(scope="module")
def limited(server: AirflowStack) -> Browser:
    return Browser(server, "limited")


def test_airflow_lists_the_plugin_and_no_error(boss: Browser) -> None:
    (plugin,) = (
        found
        for found in boss.http.get("/api/v2/plugins").json()["plugins"]
        if found["name"] == "tubemq"
    )
    assert [app["url_prefix"] for app in plugin["fastapi_apps"]] == ["/tubemq"]
    views = {view["destination"]: view["href"] for view in plugin["external_views"]}
    assert views == {"nav": "/tubemq/", "dag": "/tubemq/?dag_id={DAG_ID}"}
    assert boss.http.get("/api/v2/plugins/importErrors").json()["import_errors"] == []


def test_without_a_login_every_route_is_closed(server: AirflowStack, boss: Browser) -> None:
    stranger, forger = Browser(server, None), Browser(server, None)
    forger.http.cookies.set("_token", "not.a.token")
    number = boss.id_of("orders")
    for path in [*PATHS, *(f"api/groups/{number}{rest}" for rest in OF_GROUP)]:
        assert boss.get(path).status_code == 200
        assert stranger.get(path).status_code == 401, path
        assert forger.get(path).status_code in {401, 403}, path


def test_nothing_is_served_beside_the_page_and_nothing_is_written(boss: Browser) -> None:
    for path in ("docs", "redoc", "openapi.json", "../tubemq/page.py", "static/page.js"):
        assert boss.get(path).status_code == 404, path
    for path in PATHS:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert boss.http.request(method, f"/tubemq/{path}").status_code == 405


def test_every_answer_forbids_foreign_scripts_and_frames(
    server: AirflowStack, boss: Browser
) -> None:
    stranger = Browser(server, None)
    replies = [boss.get(path) for path in [*PATHS, "none", "api/groups/1/windows?skip=x"]]
    for reply in [*replies, stranger.get("")]:
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'self'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_a_user_sees_only_groups_whose_asset_may_be_read(boss: Browser, limited: Browser) -> None:
    assert {"secret", "orders"} <= {g["topic"] for g in boss.groups("?q=live")}
    seen = limited.groups("?q=live")
    assert {g["topic"] for g in seen} == {"orders", HOSTILE, *SHARED}
    secret = boss.id_of("secret")
    for rest in OF_GROUP:
        assert limited.get(f"api/groups/{secret}{rest}").status_code == 403
        # The existence of such an asset is not revealed either.
        assert boss.get(f"api/groups/987654{rest}").status_code == 404


def test_a_user_without_any_right_sees_no_group(server: AirflowStack) -> None:
    nobody = Browser(server, "nobody")
    assert nobody.groups() == []


def test_windows_and_tasks_of_a_dag_that_may_not_be_read_are_left_out(
    boss: Browser, limited: Browser
) -> None:
    number = boss.id_of("orders")

    def seen(user: Browser) -> tuple[list[str], list[str], int]:
        windows = user.get(f"api/groups/{number}/windows").json()["windows"]
        running = user.get(f"api/groups/{number}/running").json()
        tasks = running["tasks"]
        failed = sorted(t["dag_id"] for t in running["failed"])
        assert failed == sorted(t["dag_id"] for t in tasks), "each Dag has one of both"
        assert {t["task_id"] for t in running["failed"]} == {"again"}
        covered = user.get(f"api/groups/{number}/coverage").json()["scopes"][0]["windows"]
        return [w["window"] for w in windows], sorted(t["dag_id"] for t in tasks), covered

    assert seen(boss) == ([f"c-2-{H}", f"c-1-{H}"], ["loads", "secret_loads"], 2)
    assert seen(limited) == ([f"c-1-{H}"], ["loads"], 1)
    (away,) = limited.groups("?q=away")
    assert away["by"] == ""
    assert [g["topic"] for g in limited.groups("?dag_id=secret_loads")] == []
    assert [g["topic"] for g in boss.groups("?dag_id=secret_loads")] == ["orders"]


def test_a_hundred_groups_come_in_pages(boss: Browser) -> None:
    first = boss.get("api/groups?q=many").json()
    assert len(first["groups"]) == 50
    second = boss.get(f"api/groups?q=many&after={first['next']}").json()
    assert second["next"] is None
    topics = [g["topic"] for g in [*first["groups"], *second["groups"]]]
    assert topics == [f"topic{many:03}" for many in range(100)]


def _lag(server: AirflowStack, user: Browser, cluster: str, state: str) -> dict[str, Any]:
    """Return the answer as soon as it has `state`: a busy machine may be too slow at first."""
    number = user.id_of("orders", cluster)

    def known() -> dict[str, Any] | None:
        found: dict[str, Any] = user.get(f"api/groups/{number}/lag").json()
        return found if found["state"] == state else None

    return server.api.wait(known, 100, f"the lag on {cluster}", period=0.2)


def test_what_was_edited_into_another_shape_hides_no_other_group(boss: Browser) -> None:
    (broken,) = boss.groups("?q=broken")
    assert "edited by hand" in broken["trouble"]
    number = broken["id"]
    assert boss.get(f"api/groups/{number}").json()["trouble"] == broken["trouble"]
    assert boss.get(f"api/groups/{number}/lag").json()["state"] == "unreachable"
    assert boss.get(f"api/groups/{number}/windows").status_code == 200
    (unlike,) = boss.groups("?q=unlike")
    assert "position of the group" in unlike["trouble"]
    assert boss.get(f"api/groups/{unlike['id']}/coverage").status_code == 200


def test_numbers_and_texts_that_no_database_takes_are_refused(boss: Browser) -> None:
    assert boss.get(f"api/groups/{10**30}").status_code == 422
    assert boss.get("api/groups?q=%00").status_code == 422
    assert boss.get("api/groups?after=%00").status_code == 422


def test_lag_comes_when_brokers_answer(server: AirflowStack, boss: Browser) -> None:
    found = _lag(server, boss, "live", "known")
    # The log is empty, and yet the group has read 28: no lag, and nothing that is well.
    assert (found["total"], found["shorter"], found["away"]) == (0, 1, 0)
    assert {row["partition"]: row["next"] for row in found["partitions"]} == {
        "1:0": 28,
        "1:1": "none",
    }


def test_one_group_on_many_topics_does_not_hinder_itself(
    server: AirflowStack, boss: Browser
) -> None:
    numbers = [boss.id_of(topic) for topic in SHARED]

    def all_known() -> bool:
        said = [boss.get(f"api/groups/{number}/lag").json() for number in numbers]
        assert not [found for found in said if "GroupInconsistent" in found["note"]]
        return {found["state"] for found in said} == {"known"}

    server.api.wait(all_known, 100, "the lag on all topics", period=0.2)


@pytest.mark.parametrize("cluster", ["away", "nowhere"])
def test_without_brokers_the_page_works_and_reports_it(
    server: AirflowStack, limited: Browser, cluster: str
) -> None:
    number = limited.id_of("orders", cluster)
    shown = limited.get(f"api/groups/{number}").json()
    assert shown["positions"] == [{"partition": "1:0", "next": 28}]
    found = _lag(server, limited, cluster, "unreachable")
    assert found["note"]
    # No address and no credential of a connection that the user may not read.
    assert "127.0.0.1" not in json.dumps(found)
    assert "hush-hush" not in json.dumps(found)


@pytest.mark.skipif(chromium_path() is None, reason="there is no chromium on PATH")
def test_a_hostile_name_is_text_in_a_browser(server: AirflowStack, boss: Browser) -> None:
    number = boss.id_of(HOSTILE)
    with open_tab(chromium_path() or "") as tab:
        tab.size(400, 800)
        url = f"{server.home.url}/tubemq/#{number}"
        tab.go(url, token=boss.http.cookies["_token"])
        tab.wait("document.querySelector('#detail h2')?.textContent.length > 10")
        tab.wait("document.querySelector('#detail').innerText.includes('Coverage')")
        assert tab.evaluate("document.querySelector('#detail h2').textContent") == HOSTILE
        assert tab.evaluate("document.querySelectorAll('img').length") == 0
        assert not tab.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        assert tab.messages == []


@pytest.mark.skipif(chromium_path() is None, reason="there is no chromium on PATH")
def test_a_browser_shows_a_hundred_groups_and_what_is_away(
    server: AirflowStack, boss: Browser
) -> None:
    with open_tab(chromium_path() or "") as tab:
        tab.size(1280, 800, dark=True)
        tab.go(f"{server.home.url}/tubemq/", token=boss.http.cookies["_token"])
        tab.wait("document.querySelectorAll('a.card').length === 50")
        tab.evaluate("document.querySelector('.more').click()")
        tab.wait("document.querySelectorAll('a.card').length === 100")
        tab.evaluate(f"location.hash = '{boss.id_of('orders', 'away')}'")
        tab.wait("document.querySelector('#detail').innerText.includes('Lag unknown')")
        tab.wait("document.querySelector('#detail').innerText.includes('28')")
        assert tab.messages == []


@pytest.mark.skipif(chromium_path() is None, reason="there is no chromium on PATH")
def test_a_logged_out_browser_shows_it(server: AirflowStack, boss: Browser) -> None:
    with open_tab(chromium_path() or "") as tab:
        tab.go(f"{server.home.url}/tubemq/", token=boss.http.cookies["_token"])
        tab.wait("document.querySelectorAll('a.card').length === 50")
        tab.call("Network.clearBrowserCookies")
        tab.evaluate("document.querySelector('.more').click()")
        tab.wait("document.querySelector('#notice').innerText.includes('log in')")
