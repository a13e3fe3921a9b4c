"""Options from where people keep them: a URL, a file, the environment.

Each function gives a plain mapping for a model's `parse`, so that sources can be combined. What
comes later wins: file or URL, then the environment (`with_environment`), then what the caller sets
on the result. Reads one file and writes nothing; checking values is the models' business.
"""

from __future__ import annotations

import configparser
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel

from tubemq_client import errors
from tubemq_client.config.security import AuthConfig, TlsConfig

__all__ = ["from_file", "from_url", "with_environment"]

_PREFIX = "TUBEMQ_"
_NESTED: dict[str, type[BaseModel]] = {"auth": AuthConfig, "tls": TlsConfig}
_SECRET = ("password", "key_password")
_OFF = ("false", "no", "off", "0", "")

# The keys of the C++ SDK's configuration, and what they are called here.
_INI = {
    "master_addrinfo": "masters",
    "usr_name": "auth.username",
    "usr_passwd": "auth.password",
    "rpc_read_timeout_ms": "rpc_timeout_ms",
    "heartbeat_period_ms": "heartbeat_period_ms",
    "max_heartbeat_retry_times": "max_heartbeat_failures",
    "heartbeat_period_afterfail_ms": "heartbeat_period_after_failures_ms",
    "dns_xfs_period_ms": "dns_refresh_ms",
    "group_name": "group",
    "consume_position": "consume_position",
    "max_subinfo_report_intvl": "report_every_beats",
    "max_part_check_period_ms": "ready_wait_ms",
    "msg_notfound_wait_period_ms": "not_found_wait_ms",
    "reb_confirm_wait_period_ms": "rebalance_confirm_wait_ms",
    "max_confirm_wait_period_ms": "confirm_timeout_ms",
    "shutdown_reb_wait_period_ms": "close_wait_ms",
}
# Switches, logs, threads and polling of that SDK, which have no counterpart here.
_INI_IDLE = (
    "auth_enable",
    "is_rollback_if_confirm_timeout",
    "log_level",
    "log_num",
    "log_path",
    "log_size",
    "network_threads",
    "part_check_slice_ms",
    "signal_threads",
    "timer_threads",
    "tls_enabled",
)
_INI_POSITIONS = {"-1": "earliest", "0": "latest", "1": "always_latest"}


def from_url(url: str) -> dict[str, Any]:
    """Options from `tubemq://m1:8715,m2:8715/topic?group=g&rpc_timeout_ms=5000`.

    Repeat `filters=` for several stream ids; options of a group are written `tls.ca_file=`. Pass
    the result to a model's `parse`. Raises `errors.ConfigError` when it is no such URL or carries a
    password (use options, a file or the environment for secrets).
    """
    parts = urlsplit(url)
    problems = []
    if parts.scheme != "tubemq" or not parts.netloc:
        problems.append(f"{parts.scheme}://… is not tubemq://host:port[,host:port]/topic?group=…")
    query = parse_qsl(parts.query, keep_blank_values=True)
    if "@" in parts.netloc or any(key.rpartition(".")[2] in _SECRET for key, _ in query):
        problems.append("credentials do not belong into a URL; pass them as options")
    if problems:
        raise errors.ConfigError(problems, subject="URL")
    options: dict[str, Any] = {"masters": parts.netloc}
    topic = parts.path.strip("/")
    if topic:
        options["topic"] = topic
    for key, value in query:
        if key == "filters":
            options.setdefault("filters", []).append(value)
        else:
            _put(options, key, value)
    return options


def from_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Options from a TOML file (`.toml`: our names, groups as tables) or from an INI file of the
    C++ SDK (any other name: its keys in the section `[TubeMQ]`).

    Raises `errors.ConfigError` for a file that cannot be read or has keys that mean nothing here.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise errors.ConfigError(f"{file}: {reason}", subject="option file") from error
    if file.suffix.lower() == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise errors.ConfigError(f"{file}: {error}", subject="option file") from None
    return _from_ini(file, text)


def with_environment(
    model: type[BaseModel],
    options: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`options`, overruled by the environment: `TUBEMQ_RPC_TIMEOUT_MS`, `TUBEMQ_AUTH_PASSWORD`,
    `TUBEMQ_TLS_CA_FILE`, `TUBEMQ_FILTERS=a,b`: the names of `model`'s options in capitals.

    Nobody calls this unasked. Names that are no option of `model` are left alone.
    """
    source = os.environ if environ is None else environ
    merged: dict[str, Any] = dict(options or {})
    for name in model.model_fields:
        if (value := source.get(_PREFIX + name.upper())) is not None:
            merged[name] = value.split(",") if name == "filters" else value
    for group, nested in _NESTED.items():
        if group not in model.model_fields:
            continue
        for name in nested.model_fields:
            value = source.get(f"{_PREFIX}{group.upper()}_{name.upper()}")
            if value is not None:
                _put(merged, f"{group}.{name}", value)
    return merged


def _put(options: dict[str, Any], key: str, value: str) -> None:
    """Set `key`, which may be `group.name`; a switch that says yes gives way to its details."""
    group, dot, name = key.partition(".")
    known = options.get(group)
    if dot and group in _NESTED:
        options[group] = {**known, name: value} if isinstance(known, Mapping) else {name: value}
    elif key in _NESTED and isinstance(known, Mapping) and value.lower() not in _OFF:
        return
    else:
        options[key] = value


def _from_ini(file: Path, text: str) -> dict[str, Any]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text, source=str(file))
        keys = dict(parser["TubeMQ"])
    except configparser.Error as error:
        message = str(error).replace("\n", " ")
        raise errors.ConfigError(message, subject="option file") from None
    except KeyError:
        raise errors.ConfigError(f"{file}: no section [TubeMQ]", subject="option file") from None
    problems = _ini_problems(keys)
    if problems:
        raise errors.ConfigError([f"{file}: {problem}" for problem in problems], subject="options")
    authenticates = keys.get("auth_enable", "true").lower() not in _OFF
    options: dict[str, Any] = {}
    for key, name in _INI.items():
        if key not in keys or (name.startswith("auth.") and not authenticates):
            continue
        value = keys[key]
        _put(options, name, _INI_POSITIONS[value] if key == "consume_position" else value)
    return options


def _ini_problems(keys: Mapping[str, str]) -> list[str]:
    problems = [
        f"{key}: means nothing here; known: {', '.join(sorted((*_INI, *_INI_IDLE)))}"
        for key in keys
        if key not in _INI and key not in _INI_IDLE
    ]
    if keys.get("tls_enabled", "").lower() not in _OFF:
        problems.append("tls_enabled: Java key stores are not read; use a TOML file with [tls]")
    if keys.get("is_rollback_if_confirm_timeout", "true").lower() in _OFF:
        problems.append(
            "is_rollback_if_confirm_timeout: a batch that nobody confirmed is always rolled back"
        )
    position = keys.get("consume_position", "0")
    if position not in _INI_POSITIONS:
        problems.append(f"consume_position: {position!r} is not -1, 0 or 1")
    return problems
