"""A genuine Kubernetes API server on loopback, with its own etcd, and a namespace for Spark.

Tokens are in a file (the administrator's), or issued by the server (a service account's); rights
are Kubernetes' own (RBAC). Objects that controllers would create (the account `default` of a
namespace) are created here. No pod runs by itself: `node` does that. Knows nothing of Spark or
windows.
"""

from __future__ import annotations

import secrets
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tools.devkit.airflow.home import free_port
from tools.devkit.kubernetes.binaries import Binaries
from tools.devkit.patience import PATIENCE
from tools.devkit.processes import ServerProcess, tail
from tools.devkit.reaper import Reaper

__all__ = ["Api", "KubernetesCluster"]

_HOST: Final = "127.0.0.1"
_STARTUP_S: Final = 90
_STOP_S: Final = 10
_TOKEN_S: Final = 3600
_ISSUER: Final = "https://kubernetes.default.svc"
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"


class Api:
    """Client of the API as the user of `token`."""

    def __init__(self, url: str, authority: Path, token: str) -> None:
        verify = ssl.create_default_context(cafile=str(authority))
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx.Client(base_url=url, verify=verify, headers=headers, timeout=10)

    def get(self, path: str) -> Any:
        """Return an object, or a list of them. Raises `httpx.HTTPError`, as all methods here do."""
        return self._checked(self._client.get(path))

    def create(self, path: str, kind: str, name: str, **content: Any) -> Any:
        """Create an object among those at `path`, in the API version of the path."""
        parts = path.strip("/").split("/")
        version = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}
        return self._checked(self._client.post(path, json=document))

    def change(self, path: str, content: Mapping[str, Any]) -> None:
        """Merge `content` into the object at `path`."""
        self._checked(self._client.patch(path, json=dict(content), headers=_MERGE))

    def delete(self, path: str, uid: str) -> None:
        """Remove the object at `path` now, if it is still the one with `uid`."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._checked(self._client.request("DELETE", path, json=options))

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    @staticmethod
    def _checked(answer: httpx.Response) -> Any:
        if answer.is_error:
            raise httpx.HTTPStatusError(answer.text, request=answer.request, response=answer)
        return answer.json()


class KubernetesCluster:
    """The servers under `folder` and the namespace `namespace`, for the length of the
    `with` block."""

    def __init__(self, folder: Path, programs: Binaries, namespace: str = "lake") -> None:
        self.folder = folder
        self.namespace = namespace
        self.url = f"https://{_HOST}:{free_port()}"
        self.authority = folder / "certificates" / "apiserver.crt"
        self._programs = programs
        self._etcd = f"http://{_HOST}:{free_port()}"
        self._token = secrets.token_hex(16)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            reaper = Reaper()
            stack.callback(reaper.close)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write_keys()
            etcd = self._start(stack, reaper, "etcd", self._etcd_command())
            _until(etcd, lambda: httpx.get(f"{self._etcd}/readyz", timeout=5).is_success)
            server = self._start(stack, reaper, "kube-apiserver", self._server_command())
            _until(server, self._is_ready)
            self.admin = Api(self.url, self.authority, self._token)
            stack.callback(self.admin.close)
            self._prepare()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def path(self, kind: str, name: str = "") -> str:
        """Return the path of a kind of objects in the namespace (``pods``), or of one of them."""
        return f"/api/v1/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def account(self, name: str, rules: Sequence[Mapping[str, Sequence[str]]]) -> str:
        """Create a service account with the rights `rules` in the namespace; return its token."""
        self.admin.create(self.path("serviceaccounts"), "ServiceAccount", name)
        rights = f"{_RBAC}/namespaces/{self.namespace}"
        self.admin.create(f"{rights}/roles", "Role", name, rules=list(rules))
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        self.admin.create(
            f"{rights}/rolebindings", "RoleBinding", name, subjects=[subject], roleRef=role
        )
        return self.token(name)

    def token(self, account: str) -> str:
        """Return a token of a service account for an hour, as kubelets request them."""
        token_request = self.admin.create(
            self.path("serviceaccounts", f"{account}/token"),
            "TokenRequest",
            account,
            apiVersion="authentication.k8s.io/v1",
            spec={"expirationSeconds": _TOKEN_S},
        )
        return str(token_request["status"]["token"])

    def names(self, kind: str) -> list[str]:
        """List the names of a kind of objects in the namespace."""
        return sorted(o["metadata"]["name"] for o in self.admin.get(self.path(kind))["items"])

    def stored(self) -> bytes:
        """Return everything that the server has ever stored, deleted objects included.

        Etcd's write-ahead log holds objects as they are. It keeps the beginning, because tests are
        short.
        """
        files = sorted((self.folder / "etcd" / "data").rglob("*.wal"))
        return b"".join(file.read_bytes() for file in files)

    def _prepare(self) -> None:
        self.admin.create("/api/v1/namespaces", "Namespace", self.namespace)
        self.admin.create(self.path("serviceaccounts"), "ServiceAccount", "default")

    def _is_ready(self) -> bool:
        if not self.authority.is_file():
            return False
        verify = ssl.create_default_context(cafile=str(self.authority))
        return httpx.get(f"{self.url}/readyz", verify=verify, timeout=5).is_success

    def _start(
        self, stack: ExitStack, reaper: Reaper, name: str, command: list[str]
    ) -> ServerProcess:
        directory = self.folder / name
        directory.mkdir(exist_ok=True)
        server = ServerProcess(name, command, cwd=directory, log=directory / "log", reaper=reaper)
        server.start()
        stack.callback(server.stop, _STOP_S)
        return server

    def _write_keys(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        encryption = serialization.NoEncryption()
        # In this form the server can read the public key, too.
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        (self.folder / "accounts.pem").write_bytes(key.private_bytes(pem, form, encryption))
        line = f'{self._token},admin,admin,"system:masters"\n'
        (self.folder / "tokens.csv").write_text(line)

    def _etcd_command(self) -> list[str]:
        peers = f"http://{_HOST}:{free_port()}"
        return _command(
            self._programs.etcd,
            {
                "name": "one",
                "data-dir": self.folder / "etcd" / "data",
                "listen-client-urls": self._etcd,
                "advertise-client-urls": self._etcd,
                "listen-peer-urls": peers,
                "initial-advertise-peer-urls": peers,
                "initial-cluster": f"one={peers}",
                "unsafe-no-fsync": "true",
            },
        )

    def _server_command(self) -> list[str]:
        key = self.folder / "accounts.pem"
        return _command(
            self._programs.api_server,
            {
                "etcd-servers": self._etcd,
                "bind-address": _HOST,
                "advertise-address": _HOST,
                "secure-port": self.url.rpartition(":")[2],
                "cert-dir": self.authority.parent,
                "token-auth-file": self.folder / "tokens.csv",
                "authorization-mode": "RBAC",
                "service-account-issuer": _ISSUER,
                "service-account-key-file": key,
                "service-account-signing-key-file": key,
                "service-cluster-ip-range": "10.0.0.0/24",
                # The server has no service, and loopback cannot be an endpoint of one.
                "endpoint-reconciler-type": "none",
            },
        )


def _command(program: Path, options: Mapping[str, object]) -> list[str]:
    return [str(program), *(f"--{name}={value}" for name, value in options.items())]


def _until(server: ServerProcess, condition: Any) -> None:
    deadline = time.monotonic() + _STARTUP_S * PATIENCE
    while True:
        with suppress(httpx.HTTPError, ssl.SSLError):
            if condition():
                return
        if not server.running or time.monotonic() > deadline:
            raise RuntimeError(f"{server.name} did not start:\n{tail(server.log)}")
        threading.Event().wait(0.2)
