"""A node for tests: binds the pods of a namespace, and runs their containers as processes.

Each process has a separate directory, address and environment. As a kubelet does, the node reports
the state of containers, ends those that are being deleted within their grace, and ends all
descendants with a container's first process. There is no image, only a function that returns its
command; a pod's mounts are directories, and the environment names those instead. Polls the API.
Knows Spark only through that function.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import httpx

from tools.devkit.kubernetes.cluster import KubernetesCluster
from tools.devkit.reaper import Reaper

__all__ = ["Image", "Node"]

Image = Callable[[Sequence[str], Mapping[str, str]], tuple[list[str], dict[str, str]]]
"""Function of a container's arguments and environment that returns the image's command and its
additional environment."""

_NAME: Final = "node"
_POLL_S: Final = 0.2
_LATE: Final = (404, 409)
"""Answers of the server if an object was deleted or changed in between."""


@dataclass(slots=True)
class _Pod:
    """A pod that was started: its process, and its deadline."""

    name: str
    uid: str
    address: str
    folder: Path
    process: subprocess.Popen[bytes]
    since: str
    killed_at: float | None = None
    ended: bool = field(default=False)


class Node:
    """Runs the pods of the cluster's namespace under `folder`, for the length of the `with`
    block."""

    def __init__(self, cluster: KubernetesCluster, folder: Path, image: Image) -> None:
        self.folder = folder
        self.problem: BaseException | None = None
        self._cluster = cluster
        self._image = image
        self._pods: dict[str, _Pod] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._reaper = Reaper()
        self._count = 0
        self._thread = threading.Thread(target=self._work, name="node", daemon=True)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)
        for pod in self._pods.values():
            self._stop(pod)
        self._reaper.close()
        if self.problem is not None:
            raise self.problem

    def running(self) -> list[str]:
        """Names of the pods whose process runs, the oldest first."""
        with self._lock:
            return [pod.name for pod in self._pods.values() if pod.process.poll() is None]

    def kill(self, name: str) -> None:
        """SIGKILL the first process of a pod's container, as the kernel's out-of-memory killer
        does."""
        with self._lock:
            (pod,) = (pod for pod in self._pods.values() if pod.name == name)
            pod.process.kill()

    def logs(self) -> list[Path]:
        """List the files that processes have written."""
        return [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".jar"]

    # -- the kubelet's round ----------------------------------------------------------------------

    def _work(self) -> None:
        while not self._ended.wait(_POLL_S):
            try:
                self._poll()
            except BaseException as error:  # noqa: BLE001 - raised when the `with` ends
                self.problem = error
                return

    def _poll(self) -> None:
        documents = self._cluster.admin.get(self._cluster.path("pods"))["items"]
        by_uid = {pod["metadata"]["uid"]: pod for pod in documents}
        for document in documents:
            try:
                self._update(document)
            except httpx.HTTPStatusError as error:
                if error.response.status_code not in _LATE:
                    raise
        for pod in [pod for uid, pod in self._pods.items() if uid not in by_uid]:
            self._forget(pod)

    def _update(self, document: dict[str, Any]) -> None:
        meta, pod = document["metadata"], self._pods.get(document["metadata"]["uid"])
        if pod is None and "deletionTimestamp" in meta:
            self._cluster.admin.delete(self._path(meta["name"]), meta["uid"])
        elif pod is None and document["status"].get("phase") == "Pending":
            self._bind(meta["name"], document["spec"].get("nodeName"))
            self._start(document)
        elif pod is not None and "deletionTimestamp" in meta:
            self._end(pod, meta.get("deletionGracePeriodSeconds", 0))
        elif pod is not None and pod.process.poll() is not None and not pod.ended:
            self._report_end(pod, document)

    def _path(self, name: str, part: str = "") -> str:
        return self._cluster.path("pods", name) + part

    def _bind(self, name: str, bound: str | None) -> None:
        """Bind a pod to this node, as a scheduler does."""
        if bound is None:
            target = {"apiVersion": "v1", "kind": "Node", "name": _NAME}
            path = self._path(name, "/binding")
            self._cluster.admin.create(path, "Binding", name, target=target)

    def _start(self, document: dict[str, Any]) -> None:
        self._count += 1
        meta, (container,) = document["metadata"], document["spec"]["containers"]
        # A separate address for each: Spark runs no second try of a task on the host of the first.
        address = f"127.0.1.{self._count % 250 + 1}"
        folder = self.folder / f"{self._count:03}-{meta['name']}"
        (folder / "work").mkdir(parents=True)
        mounts = self._mounted(document, folder)
        environment = _environment(container, meta["name"], address, mounts)
        command, own = self._image(container.get("args", ()), environment)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=folder / "work",
                env={"HOME": str(folder), "TMPDIR": str(folder / "work"), **own, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._reaper.watch(process.pid)
        pod = _Pod(meta["name"], meta["uid"], address, folder, process, _now())
        with self._lock:
            self._pods[pod.uid] = pod
        state = {"running": {"startedAt": pod.since}}
        self._report(pod, document, "Running", state)

    def _mounted(self, document: dict[str, Any], folder: Path) -> dict[str, str]:
        """Create directories for the pod's volumes; return them by mount path."""
        directories = {}
        for volume in document["spec"].get("volumes", ()):
            directory = directories[volume["name"]] = folder / "volumes" / volume["name"]
            directory.mkdir(parents=True)
            if "configMap" in volume:
                path = self._cluster.path("configmaps", volume["configMap"]["name"])
                for name, text in (self._cluster.admin.get(path).get("data") or {}).items():
                    (directory / name).write_text(text)
        (container,) = document["spec"]["containers"]
        mounts = container.get("volumeMounts", ())
        return {mount["mountPath"]: str(directories[mount["name"]]) for mount in mounts}

    def _report_end(self, pod: _Pod, document: dict[str, Any]) -> None:
        """Report the end of the container, after ending everything in it."""
        self._stop(pod)
        code = pod.process.returncode
        code = 128 - code if code < 0 else code
        how = {"exitCode": code, "reason": "Error" if code else "Completed"}
        state = {"terminated": {**how, "startedAt": pod.since, "finishedAt": _now()}}
        self._report(pod, document, "Failed" if code else "Succeeded", state)

    def _report(self, pod: _Pod, document: dict[str, Any], phase: str, state: Any) -> None:
        (container,) = document["spec"]["containers"]
        runs = phase == "Running"
        status = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "startTime": pod.since,
            "conditions": [{"type": "Ready", "status": str(runs)}],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": runs,
                    "started": runs,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        self._cluster.admin.change(self._path(pod.name, "/status"), {"status": status})

    def _end(self, pod: _Pod, grace_s: float) -> None:
        """Send SIGTERM, SIGKILL after the grace, and then delete the object."""
        if pod.process.poll() is None:
            if pod.killed_at is None:
                pod.killed_at = time.monotonic() + grace_s
                pod.process.terminate()
            elif time.monotonic() > pod.killed_at:
                pod.process.kill()
            return
        self._stop(pod)
        self._cluster.admin.delete(self._path(pod.name), pod.uid)
        self._forget(pod)

    def _forget(self, pod: _Pod) -> None:
        self._stop(pod)
        with self._lock:
            del self._pods[pod.uid]

    def _stop(self, pod: _Pod) -> None:
        if not pod.ended:
            _kill_session(pod.process)
            self._reaper.forget(pod.process.pid)
            pod.ended = True


def _environment(
    container: Mapping[str, Any], name: str, address: str, mounts: Mapping[str, str]
) -> dict[str, str]:
    """Return the pod's environment, with directories of this machine for mounted ones."""
    fields = {"metadata.name": name, "status.podIP": address, "spec.nodeName": _NAME}
    environment = {}
    for entry in container.get("env", ()):
        value = entry.get("value", "")
        if "valueFrom" in entry:
            value = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for path, directory in mounts.items():
            value = value.replace(path, directory)
        environment[entry["name"]] = value
    return environment


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """End a process and all its descendants, whatever process group they have created."""
    leader = process.pid
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            # Behind the program's name, which may have any character: the fourth field.
            session = int(stat.read_text().rpartition(")")[2].split()[3])
            if session == leader:
                os.kill(int(stat.parent.name), signal.SIGKILL)
    process.wait(10)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
