"""The configuration files of the genuine servers, as text. No process, no socket, no decision.

Keys and values are tested ones; each server's file is one function of plain arguments, so that a
test of another set-up passes `options` instead of editing text. Options are written last and may
replace any key of the main section; `sections` adds whole sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ports", "Sections", "write_broker", "write_master", "write_zookeeper"]

HOST = "127.0.0.1"

Sections = Mapping[str, Mapping[str, str]]

_LOG4J = """\
<Configuration status="WARN">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT">
      <PatternLayout pattern="%d{HH:mm:ss.SSS} %-5p %c{1} - %m%n"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="info"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Every listening port but the metrics listener's, which no option moves from 9081."""

    zookeeper: int
    master: int
    master_web: int
    broker: int
    broker_web: int


def write_zookeeper(directory: Path, ports: Ports) -> Path:
    """Write ``zoo.cfg`` and related files into `directory`; return its path."""
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    _write_logging(directory)
    return _write(
        directory / "zoo.cfg",
        "tickTime=2000\n"
        f"dataDir={data}\n"
        f"clientPort={ports.zookeeper}\n"
        f"clientPortAddress={HOST}\n"
        "admin.enableServer=false\n"
        "4lw.commands.whitelist=*\n",
    )


def write_master(
    directory: Path,
    ports: Ports,
    token: str,
    options: Mapping[str, str],
    sections: Sections,
) -> Path:
    """Write ``master.ini``, logging and the web templates into `directory`; return its path."""
    web = directory / "web"
    # The jar has no templates and the HTTP API answers 500 without these two.
    _write(web / "templates" / "screen" / "webapi.vm", "$sb\n")
    _write(web / "templates" / "layout" / "webapi.vm", "$screen_placeholder\n")
    (web / "assets").mkdir(exist_ok=True)
    _write_logging(directory)
    master = {
        "hostName": HOST,
        "port": str(ports.master),
        "webPort": str(ports.master_web),
        "confModAuthToken": token,
        "webResourcePath": str(web),
        "consumerBalancePeriodMs": "3000",
        "firstBalanceDelayAfterStartMs": "3000",
    }
    metadata = {
        "zkNodeRoot": "/tubemq",
        "zkServerAddr": f"{HOST}:{ports.zookeeper}",
        "zkSessionTimeoutMs": "30000",
        "zkConnectionTimeoutMs": "30000",
        "zkSyncTimeMs": "5000",
        "zkCommitPeriodMs": "5000",
    }
    first = {"master": master | dict(options), "meta_zookeeper": metadata}
    return _write(directory / "master.ini", _ini(first | dict(sections)))


def write_broker(
    directory: Path,
    ports: Ports,
    broker_id: int,
    options: Mapping[str, str],
    sections: Sections,
) -> Path:
    """Write ``broker.ini`` and logging into `directory`; messages live below ``data``."""
    _write_logging(directory)
    broker = {
        "brokerId": str(broker_id),
        "hostName": HOST,
        "port": str(ports.broker),
        "webPort": str(ports.broker_web),
        "masterAddressList": f"{HOST}:{ports.master}",
        "primaryPath": str(directory / "data"),
        "maxSegmentSize": "1073741824",
        "maxIndexSegmentSize": "22020096",
        "transferSize": "524288",
    }
    first = {"broker": broker | dict(options)}
    return _write(directory / "broker.ini", _ini(first | dict(sections)))


def _write_logging(directory: Path) -> None:
    _write(directory / "log4j2.xml", _LOG4J)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _ini(sections: Sections) -> str:
    blocks = []
    for name, keys in sections.items():
        lines = "".join(f"{key}={value}\n" for key, value in keys.items())
        blocks.append(f"[{name}]\n{lines}")
    return "\n".join(blocks)
