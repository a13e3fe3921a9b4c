"""Settings of a node: plain values, validated on construction.

`options` reads them from a TOML file and the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketmq_client import errors
from rocketmq_client.model import Address, Credentials, TlsSettings

__all__ = ["SnodeSettings"]

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
    signature is forwarded. `admin_listen` serves clients and connections as JSON.
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

    def __post_init__(self) -> None:
        problems = []
        if not self.name_servers:
            problems.append("name_servers: give at least one 'host:port'")
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
        credentials = self.credentials
        texts: list[object] = [text for user in self.users for text in user]
        texts += [credentials.access_key, credentials.secret_key] if credentials else []
        if not all(isinstance(text, str) and text for text in texts):
            problems.append("users, credentials: a key or a secret is empty or not text")
        if problems:
            raise errors.ConfigError(problems, subject="snode options")
