"""Client of YARN's resource manager: finds an application and kills it, over the web interface.

The addresses are those of the Hadoop configuration that `spark-submit` uses too. Applications are
found by a tag that was chosen before they were submitted, so none is lost between its start and the
moment when its id is known. Nothing here submits or depends on windows. A manager that does not
answer, for example behind Kerberos, is no error: the result is None, and callers proceed without
it.
"""

from __future__ import annotations

import getpass
import http.client
import json
import logging
import os
import re
import socket
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from tubemq_client.errors import ConfigError

__all__ = ["CONFIGURATION", "Yarn", "YarnApplication"]

log = logging.getLogger(__name__)

CONFIGURATION: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Environment variables that name the directory of Hadoop's configuration."""

_PREFIX: Final = "yarn.resourcemanager."
_HADOOP: Final = "spark.hadoop."
_REFERENCE: Final = re.compile(r"\$\{([^}]+)\}")
_FINAL: Final = ("FINISHED", "FAILED", "KILLED")
_ANSWER_S: Final = 5.0
_MAX_ANSWER_BYTES: Final = 4 << 20
"""Maximal size of an answer: the applications of one tag are few."""


class YarnApplication(NamedTuple):
    """Application as the manager reports it."""

    id: str
    state: str

    @property
    def over(self) -> bool:
        """True if it has ended, successfully or not."""
        return self.state in _FINAL


class Yarn:
    """Resource manager at `addresses`, ``http://host:port`` each. All are asked, since only one is
    active."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses

    def __repr__(self) -> str:
        return f"Yarn({', '.join(self.addresses)})"

    @classmethod
    def of(cls, conf: Mapping[str, str], environment: Mapping[str, str]) -> Yarn:
        """Create the client from the Hadoop configuration that `environment` names, and Spark's
        settings (`conf`). Raises `ConfigError` if there is none."""
        folders = [environment[name] for name in CONFIGURATION if environment.get(name)]
        if not folders:
            raise ConfigError(
                f"master yarn: {' or '.join(CONFIGURATION)} must name the directory of the "
                f"cluster's configuration, in the worker's environment",
                subject="submit engine",
            )
        properties: dict[str, str] = {}
        for folder in folders:
            properties.update(_properties(Path(folder) / "yarn-site.xml"))
        overrides = {k.removeprefix(_HADOOP): v for k, v in conf.items() if k.startswith(_HADOOP)}
        return cls(tuple(_addresses({**properties, **overrides})))

    def find(self, tag: str) -> YarnApplication | None:
        """Return the newest application with `tag`; None if there is none, or no answer."""
        query = urlencode({"applicationTags": tag})
        answer = self._ask("GET", f"/ws/v1/cluster/apps?{query}")
        try:
            apps = ((answer or {}).get("apps") or {}).get("app") or []
            named = [YarnApplication(str(app["id"]), str(app["state"])) for app in apps]
        except (AttributeError, KeyError, TypeError) as error:
            log.info("an answer about %s cannot be read: %s", tag, type(error).__name__)
            return None
        return max(named, default=None)

    def kill(self, application_id: str) -> bool:
        """Request that an application be killed; return True if the manager accepts, which may take
        it some seconds to carry out."""
        user = urlencode({"user.name": os.environ.get("HADOOP_USER_NAME") or getpass.getuser()})
        path = f"/ws/v1/cluster/apps/{application_id}/state?{user}"
        return self._ask("PUT", path, {"state": "KILLED"}) is not None

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any] | None:
        data = None if body is None else json.dumps(body).encode()
        for address in self.addresses:
            try:
                answer = json.loads(_answer(address, method, path, data))
            except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
                log.info("%s gives no answer: %s", address, error)
                continue
            if isinstance(answer, dict):
                return answer
        return None


def _answer(address: str, method: str, path: str, data: bytes | None) -> bytes:
    """Return the body of a manager's answer: at most `_MAX_ANSWER_BYTES`, within `_ANSWER_S`
    altogether. Redirects of a stand-by manager are not followed: the other addresses are asked
    anyway. Raises `OSError`, `ValueError` and `HTTPException`."""
    parts = urlsplit(address)
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_ANSWER_S)
    over = threading.Event()
    with closing(connection):
        connection.connect()
        socket_ = connection.sock  # an answer without a length detaches it from the connection

        def end() -> None:
            over.set()
            with suppress(OSError):
                socket_.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(_ANSWER_S, end)
        timer.daemon = True
        timer.start()
        try:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request(method, path, data, headers)
            reply = connection.getresponse()
            body = reply.read(_MAX_ANSWER_BYTES + 1)
        finally:
            timer.cancel()
    if over.is_set():
        raise TimeoutError(f"no whole answer within {_ANSWER_S:g} s")
    if reply.status not in (200, 202):
        raise ValueError(f"HTTP status {reply.status}")
    if len(body) > _MAX_ANSWER_BYTES:
        raise ValueError(f"an answer of more than {_MAX_ANSWER_BYTES} bytes")
    return body


def _properties(file: Path) -> dict[str, str]:
    properties: dict[str, str] = {}
    with suppress(FileNotFoundError):
        try:
            document = ET.fromstring(file.read_text(encoding="utf-8"))  # noqa: S314 - the worker's
        except (ET.ParseError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: {error}", subject="submit engine") from None
        for item in document.iter("property"):
            name, value = item.findtext("name"), item.findtext("value")
            if name and value is not None:
                properties[name.strip()] = value.strip()
    return properties


def _addresses(properties: Mapping[str, str]) -> Iterator[str]:
    """Yield the addresses of the web interfaces; each manager of a high-availability pair has
    one."""
    secure = properties.get("yarn.http.policy", "HTTP_ONLY") == "HTTPS_ONLY"
    scheme, infix, port = ("https", "https.", 8090) if secure else ("http", "", 8088)
    ids = properties.get(f"{_PREFIX}ha.rm-ids", "").split(",")
    for suffix in [f".{each.strip()}" for each in ids if each.strip()] or [""]:
        host = properties.get(f"{_PREFIX}hostname{suffix}", "localhost")
        address = properties.get(f"{_PREFIX}webapp.{infix}address{suffix}", f"{host}:{port}")
        yield f"{scheme}://{_REFERENCE.sub(lambda name: properties.get(name[1], name[0]), address)}"
