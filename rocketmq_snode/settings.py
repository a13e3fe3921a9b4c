"""Settings of a node: plain values, validated on construction.

`options` reads them from a TOML file and the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final
from urllib.parse import urlsplit

from rocketmq_client import errors
from rocketmq_client.model import Address, Credentials, TlsSettings, address_text

__all__ = ["FAST_PORT_DISTANCE", "SnodeSettings"]

FAST_PORT_DISTANCE: Final = 2
"""Clients up to 4.4 send to the port of a broker less this, which brokers call the fast remoting
port (`vipChannelEnabled`)."""

_ADDRESSES: Final = frozenset({"listen", "advertise", "metrics_listen", "admin_listen"})

_WILDCARDS = {"0.0.0.0", "::", ""}  # noqa: S104 - refused, not bound


@dataclass(frozen=True, slots=True)
class SnodeSettings:
    """Settings of a node. Times are milliseconds.

    `advertise` is the address in routes, the listening one by default: it may not be a wildcard.
    `ports` are virtual ports, broker name → port, for clients that send no broker name. `topics`
    and `groups` are allow-lists; empty: all. `pool_size` connections to each broker are shared by
    all requests outside of groups. A client may have `max_in_flight_per_client` requests in flight,
    a broker `max_in_flight_per_broker` of all clients together, plus `max_pulls_per_broker` pulls;
    requests beyond that are answered "busy". A client is cut off if it sends nothing for `idle_ms`
    without a request in flight, like brokers do, and if a frame is not whole after
    `frame_timeout_ms`. There may be `max_clients` connections; unfinished frames of all of them may
    have `max_unfinished_bytes`, and unread answers `max_queued_bytes`: beyond that the oldest, or
    the largest, is cut off. `tls_cert_file` and `tls_key_file` encrypt connections of clients,
    `tls` those to brokers. `users` are access keys and secrets of clients: with them the node
    verifies every request. `credentials` then sign it again for brokers; without them the client's
    signature is forwarded. `admins` are those users who may create topics and reset offsets through
    a node with `credentials`. `admin_listen` serves clients and connections as JSON.
    `name_servers_url` is an address server: a page with the name servers, read at the start and
    every two minutes. With `fast_port` the node also listens at each port − 2, to which clients up
    to 4.4 send.
    """

    name_servers: tuple[Address, ...]
    listen: Address = ("127.0.0.1", 11911)
    advertise: Address | None = None
    name: str = "snode"
    cluster: str = "DefaultCluster"
    reuse_port: bool = False
    ports: tuple[tuple[str, int], ...] = ()
    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    pool_size: int = 2
    max_in_flight_per_client: int = 256
    max_in_flight_per_broker: int = 2_048
    max_pulls_per_broker: int = 16_384
    max_clients: int = 4_096
    max_unfinished_bytes: int = 128 * 1024 * 1024
    max_queued_bytes: int = 128 * 1024 * 1024
    frame_timeout_ms: int = 60_000
    max_frame_bytes: int = 16 * 1024 * 1024
    upstream_timeout_ms: int = 5_000
    connect_timeout_ms: int = 3_000
    idle_ms: int = 120_000
    drain_ms: int = 10_000
    registry_period_ms: int = 10_000
    discovery_period_ms: int = 5_000
    heartbeat_retry_ms: int = 500
    metrics_listen: Address | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls: TlsSettings | None = None
    credentials: Credentials | None = None
    users: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    admin_listen: Address | None = None
    admins: frozenset[str] = frozenset()
    name_servers_url: str | None = None
    fast_port: bool = False

    def __post_init__(self) -> None:
        problems = []
        if not self.name_servers and self.name_servers_url is None:
            problems.append("name_servers: give at least one 'host:port', or name_servers_url")
        url = self.name_servers_url
        if url is not None and not url.startswith(("http://", "https://")):
            problems.append("name_servers_url: not an address with http:// or https://")
        if (self.advertise or self.listen)[0] in _WILDCARDS:
            problems.append(
                f"advertise: {(self.advertise or self.listen)[0]!r} is not an address that clients "
                "can connect to, and routes contain it"
            )
        positive = (
            *("pool_size", "max_in_flight_per_client", "max_in_flight_per_broker"),
            *("max_pulls_per_broker", "max_clients", "frame_timeout_ms"),
        )
        problems += [
            f"{name}: {getattr(self, name)} is less than 1"
            for name in positive
            if getattr(self, name) < 1
        ]
        problems += [
            f"{name}: {getattr(self, name)} is less than a frame (max_frame_bytes)"
            for name in ("max_unfinished_bytes", "max_queued_bytes")
            if getattr(self, name) < self.max_frame_bytes
        ]
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            problems.append("tls_cert_file, tls_key_file: give both or none")
        if self.credentials is not None and not self.users:
            problems.append(
                "credentials: without users every client that reaches the node would have its "
                "rights; give users, or leave credentials out and let brokers verify clients' "
                "signatures"
            )
        if strangers := sorted(self.admins - {name for name, _ in self.users}):
            problems.append(f"admins: {', '.join(strangers)} not among users")
        if repeated := self._repeated_ports():
            problems.append(f"listen, ports, fast_port: port {repeated[0]} is used twice")
        credentials = self.credentials
        texts: list[object] = [text for user in self.users for text in user]
        texts += [credentials.access_key, credentials.secret_key] if credentials else []
        if not all(isinstance(text, str) and text for text in texts):
            problems.append("users, credentials: a key or a secret is empty or not text")
        if problems:
            raise errors.ConfigError(problems, subject="snode options")

    def _repeated_ports(self) -> list[int]:
        ports = [port for port in (self.listen[1], *(port for _, port in self.ports)) if port]
        ports += [port - FAST_PORT_DISTANCE for port in ports if self.fast_port]
        return sorted(port for port in set(ports) if ports.count(port) > 1)

    def shown(self) -> dict[str, object]:
        """Return the settings for a log: of secrets only whether, or how many, there are."""
        values: dict[str, object] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "users":
                value = len(value)
            elif item.name in ("credentials", "tls"):
                value = value is not None
            elif item.name == "name_servers_url":
                value = None if value is None else _without_login(value)
            elif item.name == "name_servers":
                value = [address_text(server) for server in value]
            elif item.name in _ADDRESSES:
                value = None if value is None else address_text(value)
            elif isinstance(value, frozenset):
                value = sorted(value)
            values[item.name] = value
        return values


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
