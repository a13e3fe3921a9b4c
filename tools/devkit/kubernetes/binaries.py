"""The genuine servers kube-apiserver and etcd, built by the ordinary `go` client, once per machine.

Kubernetes publishes them as Go modules; `go.mod` here pins versions, `go.sum` contents. The module
source is Go's configuration. Run as ``python -m tools.devkit.kubernetes.binaries`` it builds them
into the cache and prints the folder: that takes a quarter of an hour and two GiB of disk the first
time, which is why no test does it. Nothing here starts a server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tubemq_client.errors import LocalError
from tubemq_provider.engines.cache import cache_root

__all__ = ["KUBERNETES", "Binaries", "KubernetesUnavailable", "binaries"]

KUBERNETES: Final = "1.34.1"
"""Version in `go.mod`."""

_HERE: Final = Path(__file__).parent
_COMMAND: Final = "python -m tools.devkit.kubernetes.binaries"
_VERSION: Final = "k8s.io/component-base/version.gitVersion"
_PACKAGES: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}
_BUILD_S: Final = 3600.0


class KubernetesUnavailable(LocalError):
    """No Kubernetes here; the message is one line that names the missing part."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of the servers' programs."""

    folder: Path

    @property
    def etcd(self) -> Path:
        """Program that stores the API server's objects."""
        return self.folder / "etcd"

    @property
    def api_server(self) -> Path:
        """Program that serves the API."""
        return self.folder / "kube-apiserver"


def binaries() -> Binaries:
    """Return programs built earlier. Raises `KubernetesUnavailable` with the command that builds
    them."""
    programs = Binaries(cache_root() / f"kubernetes-{KUBERNETES}")
    if not (programs.etcd.is_file() and programs.api_server.is_file()):
        raise KubernetesUnavailable(
            f"no Kubernetes is built here: {_COMMAND} does, with Go (a quarter of an hour)"
        )
    return programs


def build() -> Binaries:
    """Build missing programs at low priority. Blocks for minutes. Raises
    `KubernetesUnavailable`."""
    go = shutil.which("go")
    if go is None:
        raise KubernetesUnavailable("go is not on PATH; Go 1.24 or newer builds the servers")
    folder = cache_root() / f"kubernetes-{KUBERNETES}"
    folder.mkdir(parents=True, exist_ok=True)
    os.nice(10)
    for name, package in _PACKAGES.items():
        target = folder / name
        if target.is_file():
            continue
        # Moved to its final name only when it is finished.
        draft = target.with_suffix(".part")
        _run([go, "build", "-p", "2", "-trimpath", *_linked(), "-o", str(draft), package])
        draft.replace(target)
    return binaries()


def _linked() -> list[str]:
    return ["-ldflags", f"-s -w -X {_VERSION}=v{KUBERNETES}"]


def _run(command: list[str]) -> None:
    answer = subprocess.run(command, cwd=_HERE, check=False, timeout=_BUILD_S)
    if answer.returncode:
        raise KubernetesUnavailable(f"{' '.join(command)} failed with {answer.returncode}")


if __name__ == "__main__":
    try:
        print(build().folder)
    except KubernetesUnavailable as error:
        sys.exit(str(error))
