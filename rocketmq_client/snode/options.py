"""The node's options where people type them: a TOML file, and the environment, which wins.

Unknown names are refused and every problem is listed at once (`errors.ConfigError`). Only here is
pydantic needed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rocketmq_client import errors
from rocketmq_client.config.models import NameServers, parse_server
from rocketmq_client.model import Address, Credentials
from rocketmq_client.snode.settings import SnodeSettings
from tubemq_client.config.base import CommonOptions
from tubemq_client.config.security import Tls

__all__ = ["SnodeConfig", "read_options"]

_PREFIX = "SNODE_"
_LISTS = ("topics", "groups")
_DEFAULT_PORT = 11911


def _address(value: object) -> object:
    found = parse_server(value, _DEFAULT_PORT)
    if found is None:
        raise ValueError("not host:port")
    return found


def _pairs(value: object) -> object:
    """`{"broker-a": 11921}`, or ``broker-a=11921,broker-b=11922``."""
    if isinstance(value, str):
        value = dict(item.split("=", 1) for item in value.split(",") if "=" in item)
    return tuple(value.items()) if isinstance(value, Mapping) else value


def _credentials(value: object) -> object:
    """`{"access_key": …, "secret_key": …, "security_token": …}`, or ``key=secret``."""
    if isinstance(value, str) and "=" in value:
        key, secret = value.split("=", 1)
        return Credentials(key, secret)
    if isinstance(value, Mapping):
        try:
            return Credentials(**value)
        except TypeError:
            raise ValueError("give access_key and secret_key, and perhaps security_token") from None
    return value


At = Annotated[Address, BeforeValidator(_address)]


class SnodeConfig(CommonOptions):
    """How a node listens, what it says of itself, and what it bears."""

    name_servers: NameServers = Field(description="name servers, tried in this order")
    listen: At = Field(("127.0.0.1", 11911), description="where clients connect")
    advertise: At | None = Field(None, description="what routes say; `listen` by default")
    name: str = Field("snode", min_length=1, max_length=100, description="name in the registry")
    cluster: str = Field("DefaultCluster", min_length=1, description="cluster in the registry")
    reuse_port: bool = Field(default=False, description="several nodes on one host and port")
    ports: Annotated[tuple[tuple[str, int], ...], BeforeValidator(_pairs)] = Field(
        (), description="virtual ports by broker name, for clients that name no broker"
    )
    topics: frozenset[str] = Field(frozenset(), description="topics served; all by default")
    groups: frozenset[str] = Field(frozenset(), description="groups served; all by default")
    pool_size: int = Field(2, ge=1, le=64, description="shared connections to each broker")
    max_in_flight_per_client: int = Field(256, ge=1, le=65_536, description="then: busy")
    max_in_flight_per_broker: int = Field(2_048, ge=1, le=1_048_576, description="then: busy")
    max_frame_bytes: int = Field(
        16 * 2**20, ge=2**20, le=256 * 2**20, description="largest frame, bytes"
    )
    upstream_timeout_ms: int = Field(5_000, ge=100, le=60_000, description="for one answer, ms")
    connect_timeout_ms: int = Field(3_000, ge=100, le=60_000, description="to connect, ms")
    idle_ms: int = Field(120_000, ge=100, le=3_600_000, description="silent clients go, ms")
    drain_ms: int = Field(10_000, ge=0, le=600_000, description="for answers when stopping, ms")
    registry_period_ms: int = Field(10_000, ge=100, le=40_000, description="entry renewed, ms")
    discovery_period_ms: int = Field(5_000, ge=100, le=60_000, description="look for brokers, ms")
    heartbeat_retry_ms: int = Field(500, ge=10, le=30_000, description="members come back, ms")
    metrics_listen: At | None = Field(None, description="/metrics and /healthz; off by default")
    tls_cert_file: str | None = Field(None, description="certificate that clients see, PEM")
    tls_key_file: str | None = Field(None, description="its key, PEM")
    tls: Tls
    credentials: Annotated[Credentials | None, BeforeValidator(_credentials)] = Field(
        None, repr=False, description="access key and secret for brokers; needs users"
    )
    users: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_pairs)] = Field(
        (), repr=False, description="access keys of clients and their secrets; verified here"
    )
    admin_listen: At | None = Field(None, description="/clients as JSON; off by default")

    def settings(self) -> SnodeSettings:
        """The plain value that a node runs on."""
        names = {field.name for field in fields(SnodeSettings)} - {"tls"}
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        return SnodeSettings(**values, tls=self.tls.settings() if self.tls else None)


def read_options(path: Path | None, environment: Mapping[str, str]) -> SnodeSettings:
    """Settings from a file and the environment. Raises `errors.ConfigError`."""
    options: dict[str, Any] = {}
    if path is not None:
        try:
            options = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise errors.ConfigError(f"{path}: {error}", subject="snode options") from error
    for key, value in environment.items():
        if key.startswith(_PREFIX):
            name = key.removeprefix(_PREFIX).lower()
            options[name] = value.split(",") if name in _LISTS else value
    return SnodeConfig.parse(options).settings()
