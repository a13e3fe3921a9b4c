"""Drivers in a cluster: the supervisor's reaction to every order of endings, and its requests to
the manager; against a fake manager and a fake `spark-submit`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from tubemq_client.config import ClientConfig
from tubemq_client.errors import ConfigError
from tubemq_provider.engines import submit_main
from tubemq_provider.engines.applications import Application, Applications
from tubemq_provider.engines.cluster_documents import ORDER_NAME, ClusterTask, Exchange
from tubemq_provider.engines.cluster_mode import supervisor_command
from tubemq_provider.engines.outcome import error_from
from tubemq_provider.engines.submit import SubmitEngine
from tubemq_provider.engines.submit_main import secrets_text
from tubemq_provider.engines.supervisor import Supervisor
from tubemq_provider.engines.yarn import Yarn, YarnApplication
from tubemq_provider.windows.errors import WindowError
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestWatch, Staging

PLAN = WindowPlan.explicit(
    WindowScope("local", "orders", "etl", "parquet:s3://lake"), {"1:0": (0, 280)}
)
TAG = "tubemq-c-1-0"
ON_YARN = {"spark.submit.deployMode": "cluster"}


@dataclass
class Manager:
    """Applications by tag, as YARN's web interface reports them."""

    states: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def answer(self, method: str, path: str, body: bytes) -> dict[str, object] | None:
        """Return the answer to a request; None for 404."""
        found = urlsplit(path)
        query = parse_qs(found.query)
        self.asked.append(f"{method} {found.path}")
        if method == "PUT" and query.get("user.name"):
            self.states[TAG] = str(json.loads(body)["state"])
            return {"state": "KILLED"}
        if found.path != "/ws/v1/cluster/apps":
            return None
        states = [self.states[tag] for tag in query["applicationTags"] if tag in self.states]
        apps = [{"id": "application_1_0001", "state": state} for state in states]
        return {"apps": {"app": apps} if apps else {}}


@pytest.fixture
def manager() -> Iterator[Manager]:
    with served(Manager()) as found:
        yield found


@contextmanager
def served(manager: Manager) -> Iterator[Manager]:
    """Serve `manager` on a loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            answer = manager.answer(self.command, self.path, self.rfile.read(length))
            self.send_response(404 if answer is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_PUT = do_GET  # noqa: N815 - name of the base class

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        manager.address = f"http://127.0.0.1:{server.server_port}"
        yield manager
        server.shutdown()
        thread.join()


def configured(folder: Path, **values: str) -> dict[str, str]:
    """Return an environment whose Hadoop configuration names the manager."""
    items = "".join(
        f"<property><name>yarn.{name.replace('__', '-').replace('_', '.')}</name>"
        f"<value>{value}</value></property>"
        for name, value in values.items()
    )
    folder.mkdir(exist_ok=True)
    (folder / "yarn-site.xml").write_text(f"<configuration>{items}</configuration>")
    return {"HADOOP_CONF_DIR": str(folder)}


def test_the_managers_addresses_are_those_of_hadoops_configuration(tmp_path: Path) -> None:
    given = configured(tmp_path / "one", resourcemanager_hostname="rm1")
    assert Yarn.of({}, given).addresses == ("http://rm1:8088",)
    own = {"spark.hadoop.yarn.resourcemanager.webapp.address": "rm2:99"}
    assert Yarn.of(own, given).addresses == ("http://rm2:99",)
    given = configured(
        tmp_path / "two",
        resourcemanager_ha_rm__ids="a, b",
        resourcemanager_hostname_a="rm1",
        resourcemanager_hostname_b="rm2",
        resourcemanager_webapp_https_address_b="${yarn.resourcemanager.hostname.b}:1",
        http_policy="HTTPS_ONLY",
    )
    assert Yarn.of({}, given).addresses == ("https://rm1:8090", "https://rm2:1")
    with pytest.raises(ConfigError, match="HADOOP_CONF_DIR or YARN_CONF_DIR must name"):
        Yarn.of({}, {})


def test_one_of_several_managers_answers_and_none_is_no_error(manager: Manager) -> None:
    manager.states[TAG] = "RUNNING"
    nobody = "http://127.0.0.1:1"
    yarn = Yarn((nobody, manager.address))
    assert yarn.find(TAG) == YarnApplication("application_1_0001", "RUNNING")
    assert yarn.find("another") is None
    assert yarn.kill("application_1_0001")
    found = yarn.find(TAG)
    assert found is not None
    assert found.over
    assert Yarn((nobody,)).find(TAG) is None
    assert not Yarn((nobody,)).kill("application_1_0001")


@pytest.fixture
def application(tmp_path: Path) -> Application:
    exchange = str(tmp_path / "exchange")
    Path(exchange).mkdir()
    order = {"plan": PLAN.to_document(), "cluster": {"exchange": exchange, "tag": TAG}}
    return Applications(tmp_path / "work").make(PLAN.window_id, order)


def exchange_of(application: Application) -> Exchange:
    order = application.order
    assert order is not None
    return Exchange(order["cluster"]["exchange"], {})


def supervisor(
    application: Application, manager: Manager, command: list[str] | None = None
) -> Supervisor:
    return Supervisor(
        application,
        exchange=exchange_of(application),
        yarn=Yarn((manager.address,)),
        tag=TAG,
        command=command,
        look_s=0.001,
    )


def test_documents_of_the_driver_in_the_store_are_copied_to_the_folder(
    application: Application, manager: Manager
) -> None:
    manager.states[TAG] = "RUNNING"
    exchange_of(application).write_report({"points": ["application"], "id": "a"})
    exchange_of(application).finish({"v": 1, "hash": PLAN.hash})
    supervisor(application, manager).run()
    assert application.report["points"] == ["application"]
    assert application.result == {"v": 1, "hash": PLAN.hash}


@pytest.mark.parametrize(
    ("state", "command"),
    [
        ("FAILED", None),
        ("KILLED", [sys.executable, "-c", "raise SystemExit(1)"]),
        (None, [sys.executable, "-c", ""]),  # was never submitted, or the manager does not answer
    ],
)
def test_an_application_that_ends_without_a_result_is_an_error_and_submitted_once(
    application: Application, manager: Manager, state: str | None, command: list[str] | None
) -> None:
    if state is not None:
        manager.states[TAG] = state
    application.log.write_text("what spark-submit said")
    supervisor(application, manager, command).run()
    result = application.result
    assert result is not None
    error = error_from(result["error"])
    assert isinstance(error, WindowError)
    assert "ended in the cluster without a result" in str(error)
    assert "what spark-submit said" in str(error)
    assert exchange_of(application).stop_requested  # in case it runs nevertheless


def test_a_lost_spark_submit_is_no_lost_application(
    application: Application, manager: Manager
) -> None:
    manager.states[TAG] = "RUNNING"
    ended = supervisor(application, manager, [sys.executable, "-c", ""])

    class Finishing(Manager):
        """Manager that lets the driver finish once it was asked about it."""

        def answer(self, method: str, path: str, body: bytes) -> dict[str, object] | None:
            exchange_of(application).finish({"v": 1, "hash": PLAN.hash})
            return manager.answer(method, path, body)

    with served(Finishing()) as finishing:
        ended._yarn = Yarn((finishing.address,))
        ended.run()
    assert application.result == {"v": 1, "hash": PLAN.hash}


def test_a_driver_whose_place_was_tidied_stops_even_after_further_reports(tmp_path: Path) -> None:
    place = tmp_path / "exchange"
    place.mkdir()
    order = {"cluster": {"exchange": str(place), "tag": TAG}}
    (tmp_path / ORDER_NAME).write_text(json.dumps(order))
    driver = ClusterTask(tmp_path, {})
    assert not driver.stop_requested  # it has not begun
    driver.write_report({"points": ["application"]})
    assert not driver.stop_requested
    for path in place.iterdir():
        path.unlink()
    driver.write_report({"points": ["application", "session started"]})
    assert driver.stop_requested


def test_a_manager_that_dies_in_mid_answer_counts_as_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")

        thread = Thread(target=answer, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert Yarn((address,)).find(TAG) is None
        thread.join(10)


@contextmanager
def managed(answer: Callable[[socket.socket], None]) -> Iterator[Yarn]:
    """Run a manager whose answers `answer` writes, byte for byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with suppress(OSError), connection:
                        connection.recv(1 << 16)
                        answer(connection)

        Thread(target=serve, daemon=True).start()
        yield Yarn((f"http://127.0.0.1:{server.getsockname()[1]}",))
        server.shutdown(socket.SHUT_RDWR)


def test_an_endless_answer_of_a_manager_is_cut_off() -> None:
    sent = 0

    def endless(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(200):
            connection.sendall(b" " * (1 << 20))
            sent += 1

    with managed(endless) as yarn:
        assert yarn.find(TAG) is None
    assert sent < 50


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_of_a_manager_counts_as_no_answer(manager: Manager, status: int) -> None:
    manager.states[TAG] = "RUNNING"

    def redirect(connection: socket.socket) -> None:
        place = f"{manager.address}/ws/v1/cluster/apps?applicationTags={TAG}"
        head = f"HTTP/1.1 {status} see\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(head.encode())

    with managed(redirect) as yarn:
        assert yarn.find(TAG) is None
        assert not yarn.kill("application_1_0001")
        assert manager.asked == []
        both = Yarn((*yarn.addresses, manager.address))
        assert both.find(TAG) == YarnApplication("application_1_0001", "RUNNING")


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_the_time_of_an_answer_is_bounded_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr("tubemq_provider.engines.yarn._ANSWER_S", 0.5)

    def slow(connection: socket.socket) -> None:
        connection.sendall(begin)
        for _ in range(100):
            connection.sendall(b" ")
            time.sleep(0.1)

    with managed(slow) as yarn:
        began = time.monotonic()
        assert yarn.find(TAG) is None
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "body", [b"[]", b'{"apps": [1]}', b'{"apps": {"app": [{}]}}', b"[" * 100_000, b"x" * 70_000]
)
def test_an_answer_of_another_shape_is_none(body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    with managed(lambda connection: connection.sendall(head + body)) as yarn:
        assert yarn.find(TAG) is None


def refuse(*_: object) -> None:
    raise ConfigError("the token has expired", subject="s3://lake")


def test_the_manager_is_asked_even_if_the_store_refuses(
    application: Application, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.states[TAG] = "RUNNING"
    monkeypatch.setattr("tubemq_provider.engines.cluster_documents.keep_document", refuse)
    ended = supervisor(application, manager)
    ended.terminated = True
    ended.run()
    assert manager.states[TAG] == "KILLED"


@pytest.mark.timeout(30)
def test_an_unreadable_result_is_not_awaited_for_ever(
    application: Application, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.states[TAG] = "FINISHED"
    monkeypatch.setattr("tubemq_provider.engines.cluster_documents.document_in", refuse)
    supervisor(application, manager).run()
    result = application.result
    assert result is not None
    assert "result cannot be read: invalid s3://lake" in str(error_from(result["error"]))
    assert (
        manager.asked.count("GET /ws/v1/cluster/apps") > 10
    )  # the failure may have been temporary


def test_a_kill_waits_for_a_manager_that_is_slow(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Manager):
        """Manager that answers later than the time in which other processes end."""

        def answer(self, method: str, path: str, body: bytes) -> dict[str, object] | None:
            if len(self.asked) < 1:  # the supervisor's first poll
                self.asked.append("")
                looked.set()
                time.sleep(3)
            return super().answer(method, path, body)

    looked = Event()
    secrets = tmp_path / "secrets"
    secrets.write_text(secrets_text(None, {}))
    with served(Slow({TAG: "RUNNING"})) as manager:
        address = manager.address.removeprefix("http://")
        on = {"spark.hadoop.yarn.resourcemanager.webapp.address": address}
        order = application.order or {}
        order["cluster"]["hadoop"] = on
        application.order_file.write_text(json.dumps(order))
        for name, value in configured(tmp_path / "hadoop").items():
            monkeypatch.setenv(name, value)
        lock = application.lock()
        command = supervisor_command(application.folder, str(secrets), [])
        with subprocess.Popen(command, pass_fds=(lock,), start_new_session=True) as process:
            os.close(lock)
            application.process = process.pid
            assert looked.wait(30)
            application.end()
            assert process.wait(30) == 0
    assert exchange_of(application).stop_requested
    assert manager.states[TAG] == "KILLED"


@pytest.mark.parametrize("by_signal", [True, False])
def test_a_driver_is_stopped_by_request_and_through_its_manager(
    application: Application, manager: Manager, by_signal: bool
) -> None:
    manager.states[TAG] = "RUNNING"
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    ended = supervisor(application, manager, command)
    if by_signal:
        ended.terminated = True
    else:
        application.request_stop()
    ended.run()
    assert exchange_of(application).stop_requested
    assert manager.states[TAG] == "KILLED"
    assert "PUT /ws/v1/cluster/apps/application_1_0001/state" in manager.asked
    assert application.result is None


@pytest.mark.spark
def test_unsupported_cluster_settings_are_refused_before_anything_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ClientConfig.parse({"masters": "127.0.0.1:1"}).settings()
    staging = Staging(PLAN.window_id, "first", str(tmp_path))
    for master, why in {
        "spark://a:7077": "Spark's own manager runs no Python program in cluster mode",
        "k8s://https://a": "with Kubernetes, cluster mode is not supported here",
        "local[2]": "a local master has no cluster",
    }.items():
        with pytest.raises(ConfigError, match=f"{why}; use YARN, or leave"):
            SubmitEngine(settings, master=master, conf=ON_YARN)
    with pytest.raises(ConfigError, match="give client or cluster"):
        SubmitEngine(settings, master="yarn", conf={"spark.submit.deployMode": "abroad"})
    with pytest.raises(ConfigError, match="install the package on every node"):
        SubmitEngine(settings, master="yarn", conf=ON_YARN, ship_package=True)
    engine = SubmitEngine(settings, master="yarn", conf=ON_YARN, work_dir=tmp_path / "work")
    with pytest.raises(ConfigError, match="take a sink in an object store"):
        engine.ingest(PLAN, staging, IngestWatch(print))
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    remote = Staging(PLAN.window_id, "first", "s3://lake/data/first", final=True)
    with pytest.raises(ConfigError, match="HADOOP_CONF_DIR or YARN_CONF_DIR"):
        engine.ingest(PLAN, remote, IngestWatch(print))
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.spark
def test_an_unsupervised_driver_is_stopped_when_it_cannot_be_resumed(
    application: Application, tmp_path: Path
) -> None:
    settings = ClientConfig.parse({"masters": "127.0.0.1:1"}).settings()
    staging = Staging(PLAN.window_id, "second", str(tmp_path / "staging" / "second"))
    known = {"path": str(tmp_path / "staging" / "first"), "final": False, "attempt": "first"}
    order = {**(application.order or {}), "staging": known, "fingerprint": "another"}
    application.order_file.write_text(json.dumps(order))
    exchange = exchange_of(application)
    application.release()

    engine = SubmitEngine(settings, master="yarn", conf=ON_YARN, work_dir=tmp_path / "work")
    assert engine.place(PLAN, staging) == staging
    assert exchange.stop_requested
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.spark
def test_a_driver_of_a_window_that_is_published_already_is_stopped(
    application: Application, manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.states[TAG] = "RUNNING"
    for name, value in configured(tmp_path / "hadoop").items():
        monkeypatch.setenv(name, value)
    address = manager.address.removeprefix("http://")
    order = application.order or {}
    order["cluster"]["hadoop"] = {"spark.hadoop.yarn.resourcemanager.webapp.address": address}
    application.order_file.write_text(json.dumps(order))
    application.release()

    settings = ClientConfig.parse({"masters": "127.0.0.1:1"}).settings()
    engine = SubmitEngine(settings, master="yarn", conf=ON_YARN, work_dir=tmp_path / "work")
    engine.end_abandoned(PLAN.window_id)  # no supervisor on this machine
    assert manager.states[TAG] == "KILLED"
    assert not list((tmp_path / "work").iterdir())


def test_a_driver_that_cannot_start_reports_the_reason(
    application: Application, tmp_path: Path
) -> None:
    order = {
        "plan": PLAN.to_document(),
        "engine": {"transform": "dags_of_mine.clean"},  # a module that no node has
        "path": [],
        "staging": {"window_id": PLAN.window_id, "attempt": "a", "path": str(tmp_path / "staging")},
    }
    settings = ClientConfig.parse({"masters": "127.0.0.1:1"}).settings()
    submit_main._execute(application, order, {"settings": settings, "storage": {}})
    result = application.result
    assert result is not None
    assert result["hash"] == PLAN.hash
    with pytest.raises(ConfigError, match="No module named 'dags_of_mine'"):
        raise error_from(result["error"])
