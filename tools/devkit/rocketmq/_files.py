"""The configuration files of genuine RocketMQ servers, as text. No process, no decision.

The smallest settings that work on a small host: without them a broker maps files of 1 GiB, creates
misspelt topics, and refuses sends when the host is busy. Options are written last and may replace
any of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["HOST", "write_broker", "write_name_server"]

HOST = "127.0.0.1"

_LOGBACK = """\
<configuration>
  <appender name="S" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5p %t %c{0} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="S"/></root>
</configuration>
"""

_BROKER = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "bindAddress": HOST,
    "mappedFileSizeCommitLog": "16777216",
    "mappedFileSizeConsumeQueue": "600000",
    "mappedFileSizeTimerLog": "1048576",
    "timerMaxDelaySec": "86400",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "diskMaxUsedSpaceRatio": "98",
    "autoCreateTopicEnable": "false",
    "enablePropertyFilter": "true",
    "brokerFastFailureEnable": "false",
}


def write_name_server(home: Path, port: int) -> Path:
    """Write ``namesrv.properties`` and logging below `home`; return its path."""
    _write_logging(home)
    path = home / "conf" / "namesrv.properties"
    options = {
        "listenPort": str(port),
        "bindAddress": HOST,
        "kvConfigPath": str(home / "kv.json"),
        "configStorePath": str(path),
        "rocketmqHome": str(home),
    }
    return _write(path, options)


def write_broker(
    home: Path, name: str, port: int, name_server: str, options: Mapping[str, str]
) -> Path:
    """Write ``broker.properties`` and logging below `home`; return its path."""
    _write_logging(home)
    own = {
        "brokerName": name,
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "namesrvAddr": name_server,
        "storePathRootDir": str(home / "store"),
        "storePathCommitLog": str(home / "store" / "commitlog"),
    }
    return _write(home / "conf" / "broker.properties", _BROKER | own | dict(options))


def _write_logging(home: Path) -> None:
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for part in ("namesrv", "broker", "tools"):
        (home / "conf" / f"logback_{part}.xml").write_text(_LOGBACK)


def _write(path: Path, options: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    return path
