"""Sources of options: a URL, a file, the environment.

Each function returns a plain mapping for a model's `parse`, so that sources can be combined. Later
ones win: file or URL, then the environment (`with_environment`), then what the caller sets on the
result. Reads one file and writes nothing; validating values is the models' business.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel

from tubemq_client import errors
from tubemq_client.config.foreign import is_go_address, of_go, of_ini
from tubemq_client.config.groups import BoundConfig
from tubemq_client.config.security import AuthConfig, TlsConfig

__all__ = ["from_file", "from_url", "with_environment"]

_PREFIX = "TUBEMQ_"
_NESTED: dict[str, type[BaseModel]] = {"auth": AuthConfig, "tls": TlsConfig, "bound": BoundConfig}
_SECRET = ("password", "key_password")
_ON = ("true", "t", "yes", "y", "on", "1")
_OFF = ("false", "f", "no", "n", "off", "0")


def from_url(url: str) -> dict[str, Any]:
    """Return options from `tubemq://m1:8715,m2:8715/topic?group=g&rpc_timeout_ms=5000`, or from an
    address of Go's client (`m1:8715,m2:8715?topic=orders&group=g`, with its names).

    Repeat `filters=` for several stream ids; options of a group are written `tls.ca_file=`; several
    topics are `topics=orders,clicks` or JSON, instead of the path. Pass the result to a model's
    `parse`. Raises `errors.ConfigError` if it is no such URL or contains a password (use options, a
    file or the environment for secrets).
    """
    if is_go_address(url):
        return of_go(url, _put)
    problems = []
    try:
        parts = urlsplit(url)
    except ValueError as error:  # brackets of an IPv6 address; its text may repeat the address
        reason = "it cannot be read as a URL" if "@" in url else f"{error}"
        raise errors.ConfigError(reason, subject="URL") from None
    if parts.scheme != "tubemq" or not parts.netloc:
        problems.append(f"{parts.scheme}://… is not tubemq://host:port[,host:port]/topic?group=…")
    query = parse_qsl(parts.query, keep_blank_values=True)
    if "@" in url.partition("?")[0] or any(key.rpartition(".")[2] in _SECRET for key, _ in query):
        problems.append("credentials do not belong into a URL; pass them as options")
    topic = parts.path.strip("/")
    names = ["masters", *(["topic"] if topic else []), *(key for key, _ in query)]
    problems += [
        f"{key}: is there more than once"
        for key, count in Counter(names).items()
        if count > 1 and key != "filters"
    ]
    if parts.fragment:
        problems.append("'#': means nothing here; in a value it is written %23")
    if problems:
        raise errors.ConfigError(problems, subject="URL")
    options: dict[str, Any] = {"masters": parts.netloc}
    if topic:
        options["topic"] = topic
    for key, value in query:
        if key == "filters":
            options.setdefault("filters", []).append(value)
        else:
            _put(options, key, value)
    return options


def from_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return options from a TOML file (`.toml`: our names, groups as tables) or from an INI file of
    the C++ SDK (any other name: its keys in the section `[TubeMQ]`).

    Options missing in a C++ file get that SDK's default if it differs from ours, and a log line
    reports it: a group without `consume_position` starts at the latest record. Raises
    `errors.ConfigError` for a file that cannot be read or has uncurrent keys.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise errors.ConfigError(f"{file}: {reason}", subject="option file") from error
    if file.suffix.lower() == ".toml":
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise errors.ConfigError(f"{file}: {error}", subject="option file") from None
    return of_ini(str(file), text, _put)


def with_environment(
    model: type[BaseModel],
    options: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return `options`, overruled by the environment: `TUBEMQ_RPC_TIMEOUT_MS`,
    `TUBEMQ_AUTH_PASSWORD`, `TUBEMQ_TLS_CA_FILE`, `TUBEMQ_FILTERS=a,b`.

    The variables are the names of `model`'s options in capitals. Details of TLS switch it on,
    unless `tls` is off. The library never calls this by itself. Names that are no option of `model`
    are ignored.
    """
    source = os.environ if environ is None else environ
    merged: dict[str, Any] = dict(options or {})
    for name in model.model_fields:
        if (value := source.get(_PREFIX + name.upper())) is not None:
            _put(merged, name, value.split(",") if name == "filters" else value)
    for group, nested in _NESTED.items():
        if group not in model.model_fields:
            continue
        for name in nested.model_fields:
            value = source.get(f"{_PREFIX}{group.upper()}_{name.upper()}")
            if value is not None:
                _put(merged, f"{group}.{name}", value)
    return merged


def _put(options: dict[str, Any], key: str, value: Any) -> None:
    """Set `key`, which may be `group.name`; details replace a switch that is on, but not one that
    is off."""
    group, dot, name = key.partition(".")
    current = options.get(group)
    if dot and group in _NESTED:
        if current is False or (isinstance(current, str) and current.lower() in _OFF):
            return
        options[group] = {**current, name: value} if isinstance(current, Mapping) else {name: value}
    elif key in _NESTED and isinstance(current, Mapping) and value.lower() in _ON:
        return
    else:
        options[key] = value
