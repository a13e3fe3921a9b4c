"""The launcher itself, with substitutes for the servers: order, errors, no leftovers."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.devkit import fake_servers
from tools.devkit.patience import PATIENCE
from tools.devkit.tubemq.artifacts import Artifacts
from tools.devkit.tubemq.genuine import GenuineFailed, GenuineTubeMQ, TopicSpec
from tubemq_client.errors import ServerError
from tubemq_provider.engines.java import JavaRuntime

pytestmark = pytest.mark.timeout(60)

Launcher = Callable[..., GenuineTubeMQ]


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    """Return a factory of clusters below `tmp_path` whose servers are `fake_servers`."""

    def make(trouble: str = "", *topics: str) -> GenuineTubeMQ:
        program = tmp_path / "java" / "bin" / "java"
        program.parent.mkdir(parents=True, exist_ok=True)
        command = shlex.join([sys.executable, fake_servers.__file__])
        program.write_text(f'#!/bin/sh\nFAKE_TROUBLE={trouble} exec {command} "$@"\n')
        program.chmod(0o755)
        return GenuineTubeMQ(
            tmp_path / "cluster",
            topics=[TopicSpec(name) for name in topics],
            java=JavaRuntime(tmp_path / "java", 17),
            artifacts=Artifacts(tmp_path),
            stop_grace_s=2.0,
        )

    return make


def servers_alive(directory: Path) -> list[int]:
    """Pids of processes whose working directory is below `directory`."""
    alive = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                cwd = (entry / "cwd").readlink()
            except OSError:
                continue
            if cwd.is_relative_to(directory / "cluster"):
                alive.append(int(entry.name))
    return alive


def test_topics_are_known_to_the_master_before_the_broker_registers(
    launcher: Launcher, tmp_path: Path
) -> None:
    with launcher("", "orders", "bills") as cluster:
        cluster.wait_accepting(timeout_s=5)
        assert len(servers_alive(tmp_path)) == 3
        changes = (cluster.directory / "master" / "changes").read_text().splitlines()
    assert changes == [
        "admin_add_broker_configure",
        "admin_online_broker_configure",
        "admin_add_topic_deploy_info orders",
        "admin_add_topic_deploy_info bills",
    ]
    assert servers_alive(tmp_path) == []


def test_a_server_that_dies_is_named_with_its_last_words(
    launcher: Launcher, tmp_path: Path
) -> None:
    with pytest.raises(GenuineFailed) as caught:
        launcher("zookeeper-exits").start()
    assert str(caught.value) == (
        "the zookeeper ended with code 3\n    cannot lock the data directory"
    )
    assert servers_alive(tmp_path) == []


def test_a_server_that_never_answers_is_given_up(launcher: Launcher, tmp_path: Path) -> None:
    with pytest.raises(GenuineFailed, match=r"did not answer within 1.5 s\n    thinking"):
        launcher("zookeeper-silent").start(timeout_s=1.5)
    assert servers_alive(tmp_path) == []


def test_a_broker_that_is_refused_but_lives_on_is_noticed(
    launcher: Launcher, tmp_path: Path
) -> None:
    with pytest.raises(GenuineFailed, match=r"could not register\n.*Register to master failed!"):
        launcher("broker-refused").start()
    assert servers_alive(tmp_path) == []


def test_a_topic_the_master_refuses_stops_the_start(launcher: Launcher, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="numPartitions too big"):
        launcher("", "refused").start()
    assert servers_alive(tmp_path) == []


def test_the_broker_can_be_killed_and_started_alone(launcher: Launcher, tmp_path: Path) -> None:
    with launcher() as cluster:
        first = set(servers_alive(tmp_path))
        cluster.kill_broker()
        survivors = set(servers_alive(tmp_path))
        assert len(survivors) == 2
        cluster.start_broker()
        again = set(servers_alive(tmp_path))
        assert survivors < again
        assert again != first


def test_a_broker_that_ignores_the_request_to_stop_is_killed(
    launcher: Launcher, tmp_path: Path
) -> None:
    with launcher("broker-stubborn"):
        assert len(servers_alive(tmp_path)) == 3
    assert servers_alive(tmp_path) == []


def test_a_kept_directory_is_continued(launcher: Launcher, tmp_path: Path) -> None:
    """Its ports are in the master's metadata, which refuses the same broker a second time."""
    changes = tmp_path / "cluster" / "master" / "changes"
    with launcher() as cluster:
        first = (cluster.masters, cluster.broker_address, cluster.master_web)
        made = changes.read_text()
    with launcher() as cluster:
        assert (cluster.masters, cluster.broker_address, cluster.master_web) == first
        assert changes.read_text() == made


def test_a_stopped_cluster_reports_it(launcher: Launcher) -> None:
    cluster = launcher()
    cluster.stop()
    assert repr(cluster) == "<GenuineTubeMQ stopped>"
    with pytest.raises(GenuineFailed, match=r"call start\(\) first"):
        _ = cluster.masters


def test_servers_die_with_a_launcher_that_is_killed(launcher: Launcher, tmp_path: Path) -> None:
    """SIGKILL leaves no chance to clean up, so another process must."""
    launcher()  # writes the stand-in for java
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tools.devkit.tubemq.artifacts import Artifacts\n"
        "from tools.devkit.tubemq.genuine import GenuineTubeMQ\n"
        "from tubemq_provider.engines.java import JavaRuntime\n"
        "base = Path(sys.argv[1])\n"
        "java = JavaRuntime(base / 'java', 17)\n"
        "GenuineTubeMQ(base / 'cluster', java=java, artifacts=Artifacts(base)).start()\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "up\n"
        assert len(servers_alive(tmp_path)) == 3
        os.kill(starter.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20 * PATIENCE
    while servers_alive(tmp_path):
        assert time.monotonic() < deadline, "servers outlived their launcher"
        time.sleep(0.1)
