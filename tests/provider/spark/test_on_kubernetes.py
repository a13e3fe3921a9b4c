"""Windows whose executors are pods of a genuine Kubernetes API server: pods that have nothing but
Spark, Python and its packages, and a driver with only the documented rights. By hand."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.provider.spark.jobs import Window
from tests.provider.spark.test_cluster import CHILD
from tests.provider.spark.test_submit_on_cluster import bodies, data_files, until
from tests.provider.spark.world import TOPIC, USER, SecuredWorld, World
from tools.devkit.kubernetes.binaries import KubernetesUnavailable, binaries
from tools.devkit.kubernetes.cluster import KubernetesCluster
from tools.devkit.kubernetes.node import Node
from tools.devkit.kubernetes.spark_image import spark_image
from tools.devkit.patience import PATIENCE
from tools.devkit.processes import start_with_order
from tools.devkit.spark import QUICK_JAVA
from tubemq_client.errors import ConfigError
from tubemq_provider.windows.errors import WindowError

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(500)]

STORE_SECRET = "hush-hush"
RIGHTS = [
    {
        "apiGroups": [""],
        "resources": ["pods", "configmaps", "services", "persistentvolumeclaims"],
        "verbs": ["create", "get", "list", "watch", "delete", "deletecollection"],
    }
]
"""Role of the documentation's recipe."""


class Place:
    """API server, its node, and the driver's account."""

    def __init__(self, cluster: KubernetesCluster, node: Node, token: Path) -> None:
        self.cluster = cluster
        self.node = node
        self.token = token

    def conf(self, **more: str) -> dict[str, str]:
        """Return settings of an application of two executors."""
        return {
            "spark.master": f"k8s://{self.cluster.url}",
            "spark.kubernetes.namespace": self.cluster.namespace,
            "spark.kubernetes.container.image": "registry.invalid/spark-python:1",
            "spark.kubernetes.authenticate.caCertFile": str(self.cluster.authority),
            "spark.kubernetes.authenticate.oauthTokenFile": str(self.token),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.instances": "2",
            "spark.pyspark.python": "python3",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.executor.extraJavaOptions": QUICK_JAVA,
            **more,
        }

    def left(self) -> list[str]:
        """Return objects in the namespace that an application has created."""
        own = {"kube-root-ca.crt"}
        kinds = ("pods", "configmaps", "services", "secrets", "persistentvolumeclaims")
        return [name for kind in kinds for name in self.cluster.names(kind) if name not in own]

    def phases(self) -> set[str]:
        """Return the phases of the existing pods."""
        pods = self.cluster.admin.get(self.cluster.path("pods"))["items"]
        return {pod["status"]["phase"] for pod in pods}

    def forget_executors(self) -> None:
        """Run the documented command that removes leftovers of a killed driver."""
        kinds, selector = "pods,configmaps", "--selector=spark-role=executor"
        subprocess.run(
            [
                *("kubectl", "delete", kinds, selector, f"--namespace={self.cluster.namespace}"),
                *(f"--server={self.cluster.url}", f"--token={self.token.read_text()}"),
                *(f"--certificate-authority={self.cluster.authority}", "--cache-dir=/dev/null"),
            ],
            check=True,
            timeout=60 * PATIENCE,
        )

    def told(self) -> str:
        """Describe the cluster for a failed test."""
        return "\n".join(path.read_text("utf-8", "replace")[-2000:] for path in self.node.logs())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    from tubemq_provider.engines.java import JavaUnavailable, find_java

    try:
        programs, java = binaries(), find_java().home
    except (KubernetesUnavailable, JavaUnavailable) as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("kubernetes")
    with KubernetesCluster(folder / "servers", programs) as cluster:
        token = folder / "token"
        token.write_text(cluster.account("spark", RIGHTS))
        image = spark_image(folder / "python", java)
        with Node(cluster, folder / "node", image) as node:
            yield Place(cluster, node, token)


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


def window_on(place: Place, world: World, lake: dict[str, str], sink: str, **given: Any) -> Window:
    """Run a window through the engine `session`, which ships the package."""
    conf = {**place.conf(), **given.pop("more", {})}
    options = {"engine": "session", "spark_conf": conf, "ship_package": True}
    return Window(world, sink, lake, **{**options, **given})


def nothing_is_left(place: Place, window: Window, window_id: str | None) -> None:
    """Check that store and namespace have no leftovers."""
    sink = window.sink()
    sink.tidy(window_id or "")
    marker = sink.marker(window_id or "")
    assert marker is not None
    assert data_files(window) == set(marker.files)
    until(lambda: not place.left())
    assert place.node.running() == []


def in_mid_task(window: Window, act: Callable[[], None]) -> Callable[[str], None]:
    """Return a hook for `Window.run`: broker 2 sends nothing until `act`, on a thread, which begins
    when tasks of the other broker have written."""
    problems: list[BaseException] = []

    def work() -> None:
        try:
            until(lambda: data_files(window))
            act()
        except BaseException as error:  # noqa: BLE001 - must not disturb the window
            problems.append(error)
        finally:
            window.world.mq.broker(2).resume_reading()

    def at(point: str) -> None:
        if point == "session started":
            window.world.mq.broker(2).stop_reading()
            threading.Thread(target=work, daemon=True).start()
        if point == "records counted":
            assert not problems

    return at


@pytest.mark.parametrize("sink", ["s3://lake/by-pods", "delta:s3://lake/by-pods-delta"])
def test_an_executor_is_killed_in_mid_task_its_pod_is_replaced_and_every_record_is_there_once(
    place: Place, world: World, lake: dict[str, str], sink: str
) -> None:
    world.produce(500, size=500)
    window = window_on(place, world, lake, sink)
    seen: list[str] = []

    def kill_one() -> None:
        until(lambda: len(place.node.running()) == 2)
        seen.extend(place.node.running())
        place.node.kill(seen[0])
        until(lambda: set(place.node.running()) - set(seen))
        seen.extend(place.node.running())

    result = window.run(in_mid_task(window, kill_one))
    assert result.total == 500
    assert len(set(seen)) == 3
    assert bodies(window) == window.expected()
    nothing_is_left(place, window, result.window_id)


def test_no_object_of_the_api_ever_had_a_secret_of_broker_or_store(
    place: Place, secured: SecuredWorld, lake: dict[str, str]
) -> None:
    secured.produce(100)
    window = window_on(place, secured, lake, "s3://lake/by-pods-secured")
    pods: list[str] = []
    result = window.run(lambda point: pods.extend(place.node.running()))
    assert result.total == 100
    assert bodies(window) == window.expected()
    nothing_is_left(place, window, result.window_id)
    stored = place.cluster.stored()
    assert b"SPARK_DRIVER_URL" in stored  # so objects do show in it
    written = [stored, *(path.read_bytes() for path in place.node.logs())]
    for secret in (USER.password, STORE_SECRET):
        assert not [text[:200] for text in written if secret.encode() in text]


def test_a_task_that_is_killed_leaves_no_pod(
    place: Place, world: World, lake: dict[str, str]
) -> None:
    world.produce(100)
    window = window_on(place, world, lake, "s3://lake/killed-on-pods")

    def cancel() -> None:
        assert window.job is not None
        assert place.left()
        window.job.cancel()

    with pytest.raises(WindowError, match="cancelled"):
        window.run(in_mid_task(window, cancel))
    until(lambda: not place.left())
    assert window.run().total == 100
    assert bodies(window) == window.expected()


def test_a_driver_in_a_separate_process(
    place: Place, world: World, lake: dict[str, str], tmp_path: Path
) -> None:
    world.produce(100)
    work = tmp_path / "work"
    window = window_on(
        place, world, lake, "s3://lake/pods-by-submit", engine="submit", spark_work_dir=str(work)
    )
    result = window.run()
    assert result.total == 100
    assert bodies(window) == window.expected()
    nothing_is_left(place, window, result.window_id)
    assert not list(work.iterdir())


@pytest.mark.parametrize("engine", ["session", "submit"])
def test_a_driver_in_a_pod_is_refused_before_anything_is_made(
    place: Place, world: World, lake: dict[str, str], engine: str
) -> None:
    world.produce(4)
    more = {"spark.submit.deployMode": "cluster"}
    window = window_on(place, world, lake, "s3://lake/no", engine=engine, more=more)
    with pytest.raises(ConfigError, match="deployMode='cluster'"):
        window.run()
    assert not place.left()


def driver_of(place: Place, window: Window, folder: Path) -> subprocess.Popen[str]:
    """Start the window's driver in a separate process group."""
    conf = place.conf()
    order = {
        "masters": window.world.masters,
        "topic": TOPIC,
        "ranges": window.ranges,
        "master": conf.pop("spark.master"),
        "conf": conf,
        "tasks": 4,
        "sql": None,
        "ship": True,
        "sink": window.url,
        "storage_options": window.storage,
        "answer": str(folder / "answer.json"),
    }
    command = [sys.executable, str(CHILD)]
    return start_with_order(command, order, log=folder / "driver.log", cwd=folder)


@pytest.mark.parametrize("whole", [False, True], ids=["task", "task-and-its-jvm"])
def test_no_executor_survives_a_killed_driver(
    place: Place, world: World, lake: dict[str, str], tmp_path: Path, *, whole: bool
) -> None:
    if whole and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")
    world.produce(100)
    window = window_on(place, world, lake, f"s3://lake/driver-killed-{whole}")
    world.mq.broker(2).stop_reading()
    driver = driver_of(place, window, tmp_path)
    try:
        until(lambda: data_files(window))
        if not whole:
            driver.kill()
    finally:
        if whole or not data_files(window):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    until(lambda: not place.node.running())
    if whole:
        until(lambda: place.phases() <= {"Failed", "Succeeded"})
        assert place.left()
        place.forget_executors()
    until(lambda: not place.left())
    world.mq.broker(2).resume_reading()
    assert window.run().total == 100
    assert bodies(window) == window.expected()


def test_executors_that_prove_themselves_have_their_secret_from_their_pod(
    place: Place, world: World, lake: dict[str, str]
) -> None:
    world.produce(40)
    more = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.hadoop.fs.s3a.secret.key": "of-a-setting",
    }
    window = window_on(place, world, lake, "s3://lake/by-pods-that-prove", more=more)
    result = window.run()
    assert result.total == 40
    assert bodies(window) == window.expected()
    nothing_is_left(place, window, result.window_id)
    stored = place.cluster.stored()
    assert b"_SPARK_AUTH_SECRET" in stored
    assert b"of-a-setting" not in stored


def test_a_python_that_is_not_there_is_named(
    place: Place, world: World, lake: dict[str, str]
) -> None:
    world.produce(4)
    more = {"spark.pyspark.python": "/opt/nowhere/python3"}
    window = window_on(place, world, lake, "s3://lake/nowhere", more=more)
    with pytest.raises(ConfigError, match="no program /opt/nowhere/python3 on a node"):
        window.run()
    until(lambda: not place.left())
