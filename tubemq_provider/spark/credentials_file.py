"""Secrets on the way from a driver to its tasks: the client's credentials and TLS settings, and the
options of the storage that tasks write to.

Options of a data source appear in query plans, so they hold at most the paths of files
(`configFile`, `storageFile`). The files are read on the driver; tasks get the contents inside their
pickled work and need neither the files nor pydantic. Certificates and keys that TLS settings name
must exist on every executor.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tubemq_client.errors import ConfigError
from tubemq_client.model import ClientSettings

if TYPE_CHECKING:
    from tubemq_client.model import Address


def needs_access(settings: Any) -> bool:
    """Return True if the settings hold secrets, which options must not carry."""
    return settings.auth is not None or settings.tls is not None


def settings_of(
    masters: tuple[Address, ...], rpc_timeout_ms: int, config_file: str | None, *, said: bool
) -> ClientSettings:
    """Return the client settings of checked options, on the driver only. The file provides what the
    options do not: masters and, unless an option set it (`said`), the timeout. Raises
    `ConfigError`."""
    if config_file is None:
        return ClientSettings(masters=masters, rpc_timeout_ms=rpc_timeout_ms)
    timeout_ms = rpc_timeout_ms if said else None
    return settings_from(config_file, masters=masters or None, rpc_timeout_ms=timeout_ms)


def settings_from(path: str, **overrides: Any) -> ClientSettings:
    """Return the settings in the option file `path`, a TOML or INI file as `config.from_file` reads
    them; `overrides` that are not None win. Raises `ConfigError` with every problem."""
    from tubemq_client.config import ClientConfig, ConsumerConfig, ProducerConfig, from_file

    overridden = {name: value for name, value in overrides.items() if value is not None}
    document = from_file(path)
    refuse_unknown(document, path, ConsumerConfig, ProducerConfig)
    options = {name: value for name, value in document.items() if name in _OPTIONS}
    try:
        return ClientConfig.parse({**options, **overridden}).settings()
    except ConfigError as error:
        raise ConfigError(error.problems, subject=f"configFile {path}") from None


def refuse_unknown(document: Mapping[str, Any], path: str, *models: Any) -> None:
    """Raise `ConfigError` for names in the file `path` that are options of none of the `models`:
    with a misspelt ``[tls]`` the connection would not be encrypted."""
    options = {name for model in models for name in model.model_fields}
    if unknown := sorted(document.keys() - options):
        problems = [f"{name}: unknown option" for name in unknown]
        raise ConfigError(problems, subject=f"configFile {path}")


_OPTIONS = frozenset(item.name for item in fields(ClientSettings))
"""Options that readers use; the rest of a file is for consumers and producers."""
_IN_OPTIONS = frozenset({"masters", "name_servers", "rpc_timeout_ms", "auth", "tls"})
"""Settings that need no line of their own: they are among the options, or tables of the file."""
_OF_READS = frozenset({"pool_size", "in_flight", "deadline_ms", "member"})
"""Settings of reads, which are options of the formats, and of members, of which tasks are none."""


@contextmanager
def access_file(settings: Any) -> Iterator[str | None]:
    """Provide a file for the option `configFile`, see `secret_file`; None if the settings have
    neither secrets nor other values that no option of the formats has."""
    if not needs_access(settings) and not _changed(settings):
        yield None
        return
    with secret_file("access.toml", _toml(settings)) as path:
        yield path


@contextmanager
def storage_file(options: Mapping[str, str]) -> Iterator[str | None]:
    """Provide a file with the options of a storage, see `secret_file`; None if there are none: the
    process that opens the storage then uses its environment."""
    if not options:
        yield None
        return
    with secret_file("storage.json", json.dumps(dict(options))) as path:
        yield path


def storage_from(path: str | None) -> dict[str, str]:
    """Read the options from the path that `storage_file` returned. Driver only."""
    if path is None:
        return {}
    options: dict[str, str] = json.loads(Path(path).read_text(encoding="utf-8"))
    return options


@contextmanager
def secret_file(name: str, text: str) -> Iterator[str]:
    """Provide a file that exists during the `with`, readable by its owner only.

    On Linux the file is in the memory of this process, and on disk there is only a link to it: a
    process that is killed leaves no password behind. Elsewhere a killed process leaves the file.
    """
    with tempfile.TemporaryDirectory(prefix="tubemq-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / name
        with _in_memory(path) or _on_disk(path) as file:
            file.write(text)
            file.flush()
            yield str(path)


def _in_memory(path: Path) -> IO[str] | None:
    """Create a file in this process's memory, with a link at `path`; None if that is not
    possible."""
    if not hasattr(os, "memfd_create") or not _may_link_memory():
        return None
    try:
        descriptor = os.memfd_create("tubemq-access")
    except OSError:
        return None
    os.fchmod(descriptor, 0o600)
    path.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
    if not path.exists():  # no /proc, or one that hides processes
        os.close(descriptor)
        path.unlink()
        return None
    return os.fdopen(descriptor, "w", encoding="utf-8")


def _may_link_memory() -> bool:
    """Return True if other processes of this user may access this one's /proc: not after the
    process has changed its user, as Celery workers do (``--uid``)."""
    try:
        return Path(f"/proc/{os.getpid()}/fd").stat().st_uid == os.geteuid()
    except OSError:
        return False


def _on_disk(path: Path) -> IO[str]:
    return os.fdopen(
        os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8"
    )


def _changed(settings: Any) -> dict[str, Any]:
    """Return the client's settings that are not at their default, and need a line in the file."""
    return {
        item.name: value
        for item in fields(settings)
        if item.name not in _IN_OPTIONS | _OF_READS
        and (value := getattr(settings, item.name)) != item.default
    }


def _toml(settings: Any) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in _changed(settings).items()]
    for group in ("auth", "tls"):
        value = getattr(settings, group)
        if value is not None:
            lines.append(f"[{group}]")
            members = ((field.name, getattr(value, field.name)) for field in fields(value))
            # TOML reads JSON's strings, numbers and booleans, except for surrogate pairs in
            # escapes.
            texts = {
                name: json.dumps(m, ensure_ascii=False) for name, m in members if m is not None
            }
            lines += [f"{name} = {text}" for name, text in texts.items()]
    return "\n".join(lines) + "\n"
