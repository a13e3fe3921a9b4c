"""Option models of clients and producers, with ranges that servers and networks support.

Every option has an effect. Build models with `Model.parse({...})` to get one `errors.ConfigError`
that lists every problem; calling the class directly raises pydantic's own `ValidationError`.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from rocketmq_client import errors
from rocketmq_client.model import (
    Address,
    ClientSettings,
    ConsumerSettings,
    Credentials,
    ProducerSettings,
    ReaderSettings,
)
from tubemq_client.config.base import CommonOptions
from tubemq_client.config.security import Tls

__all__ = [
    "AuthConfig",
    "ClientConfig",
    "ConsumerConfig",
    "NameServers",
    "ProducerConfig",
    "parse_server",
    "parse_servers",
]

_DEFAULT_PORT = 9876
_SERVER = re.compile(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^:;,\s\[\]@/?#]+))(?::(\d{1,5}))?")
_MIB = 2**20


def parse_servers(value: object) -> object:
    """Parse `"ns1:9876;ns2"`, separated by `;` or `,`, or a list of such items or of pairs."""
    if isinstance(value, str):
        value = [item.strip() for item in re.split("[;,]", value) if item.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError("give 'host:port[;host:port…]'")  # noqa: TRY004 - pydantic wants it
    servers = [parse_server(item) for item in value]
    wrong = [item for item, server in zip(value, servers, strict=True) if server is None]
    if wrong:
        raise ValueError(f"{errors.shown_addresses(wrong)}: not host:port")
    return tuple(servers)


def parse_server(item: object, default_port: int = _DEFAULT_PORT) -> object:
    """Return host and port of ``host:port``, None for any other text; pydantic validates other
    types."""
    if not isinstance(item, str):
        return item
    match = _SERVER.fullmatch(item)
    if match is None:
        return None
    port = int(match[3] or default_port)
    return (match[1] or match[2], port) if port < 65536 else None


NameServers = Annotated[tuple[Address, ...], BeforeValidator(parse_servers), Field(min_length=1)]


class AuthConfig(CommonOptions):
    """An access key of the cluster, for brokers with access control."""

    access_key: str = Field(min_length=1, max_length=256, description="name of the key")
    secret_key: SecretStr = Field(min_length=1, description="signs requests; it is never sent")
    security_token: SecretStr | None = Field(None, description="token of a temporary key")

    def settings(self) -> Credentials:
        """Return the plain settings of clients."""
        token = self.security_token.get_secret_value() if self.security_token else None
        return Credentials(self.access_key, self.secret_key.get_secret_value(), token)


Auth = Annotated[
    AuthConfig | None, Field(None, description="the access key, if brokers ask for one")
]


class ClientConfig(CommonOptions):
    """Options to reach a cluster."""

    name_servers: NameServers = Field(description="name servers, tried in this order")
    rpc_timeout_ms: int = Field(
        10_000, ge=1_000, le=600_000, description="time for one request, ms"
    )
    connect_timeout_ms: int = Field(
        3_000, ge=100, le=60_000, description="time to open a connection, ms"
    )
    max_frame_bytes: int = Field(
        16 * _MIB, ge=_MIB, le=256 * _MIB, description="largest answer that is read, bytes"
    )
    idle_connection_ms: int = Field(
        100_000, ge=5_000, le=115_000, description="a silent connection is replaced after it, ms"
    )
    reconnect_pause_ms: int = Field(
        100, ge=10, le=60_000, description="pause after a connection was refused, ms; doubles"
    )
    longest_reconnect_pause_ms: int = Field(
        2_000, ge=10, le=60_000, description="that pause at most, ms"
    )
    route_period_ms: int = Field(
        30_000, ge=100, le=600_000, description="a route is asked for again after it, ms"
    )
    auth: Auth
    tls: Tls

    def settings(self) -> ClientSettings:
        """Return the plain settings of clients."""
        own = {"auth", "tls"}
        values = {
            f.name: getattr(self, f.name) for f in fields(ClientSettings) if f.name not in own
        }
        return ClientSettings(
            **values,
            auth=self.auth.settings() if self.auth else None,
            tls=self.tls.settings() if self.tls else None,
        )


class ConsumerConfig(ClientConfig):
    """Reading: a client config plus the options of ranges and of a group's members."""

    deadline_ms: int = Field(
        60_000, ge=1_000, le=3_600_000, description="time a read may go without progress, ms"
    )
    in_flight: int = Field(4, ge=1, le=64, description="pulls that a read has in flight")
    gap_policy: Literal["fail", "skip"] = Field(
        "fail", description="what to do when retention removed records that are to be read"
    )
    consume_from: Literal["first", "last"] | Annotated[int, Field(ge=0)] = Field(
        "last", description="where a queue without a committed offset begins; or a time, ms"
    )
    allocation: Literal["average", "circle", "hash"] = Field(
        "average", description="how queues are shared among the members of a group"
    )
    batch_records: int = Field(32, ge=1, le=2**31 - 1, description="records of a batch")
    pull_records: int = Field(32, ge=1, le=1_000, description="records that a pull asks for")
    queue_records: int = Field(
        1_000, ge=1, le=2**31 - 1, description="records not confirmed that end pulls of a queue"
    )
    queue_bytes: int = Field(
        16 * _MIB, ge=1, le=2**31 - 1, description="bytes of bodies that do the same"
    )
    hold_ms: int = Field(
        15_000, ge=0, le=60_000, description="a broker holds a pull at the end so long, ms"
    )
    heartbeat_ms: int = Field(30_000, ge=100, le=60_000, description="between heartbeats, ms")
    rebalance_ms: int = Field(
        20_000, ge=100, le=3_600_000, description="queues are allocated again after it, ms"
    )
    commit_ms: int = Field(
        5_000, ge=100, le=3_600_000, description="positions are committed after it, ms"
    )
    max_retries: int = Field(
        16, ge=0, le=10_000, description="returns of a record before it is a dead letter"
    )
    ordered: bool = Field(default=False, description="read only queues that are locked")
    mode: Literal["clustering", "broadcasting"] = Field(
        "clustering", description="each record for one member, or for every one"
    )
    offsets_file: str | None = Field(
        None, description="positions of a member that gets every record"
    )

    def consumer_settings(self) -> ConsumerSettings:
        """Return the plain settings of a group's member. Raises `errors.ConfigError`."""
        return ConsumerSettings(**{f.name: getattr(self, f.name) for f in fields(ConsumerSettings)})

    def reader_settings(self) -> ReaderSettings:
        """Return the plain settings of a client that reads ranges. Raises `errors.ConfigError`."""
        client = self.settings()
        return ReaderSettings(
            **{f.name: getattr(client, f.name) for f in fields(client)},
            in_flight=self.in_flight,
            deadline_ms=self.deadline_ms,
            member=self.consumer_settings(),
        )


class ProducerConfig(CommonOptions):
    """Options of sending."""

    compress_over_bytes: int | None = Field(
        4096, ge=0, description="larger bodies are compressed; none: never"
    )
    compression: Literal["zlib", "lz4", "zstd"] = Field(
        "zlib", description="how; lz4 and zstd need pyarrow"
    )
    retries: int = Field(2, ge=0, le=100, description="sends again what was not stored, at most")
    retry_pause_ms: int = Field(50, ge=0, le=60_000, description="time between those, ms")
    retry_unknown: bool = Field(
        default=False, description="send again what may have been stored: at least once"
    )
    max_message_bytes: int = Field(
        4 * _MIB, ge=1, le=16 * _MIB, description="larger bodies are refused, bytes as sent"
    )
    max_in_flight: int = Field(
        1_000, ge=1, le=1_000_000, description="records under way of `send_async`"
    )
    max_in_flight_bytes: int = Field(64 * _MIB, ge=1, le=2**40, description="bytes of their bodies")
    avoid_slow: bool = Field(
        default=False, description="avoid brokers for a while that were slow or failed"
    )
    trace: bool = Field(
        default=False, description="send what became of a send to RMQ_SYS_TRACE_TOPIC"
    )

    def settings(self) -> ProducerSettings:
        """Return the plain settings of producers."""
        return ProducerSettings(**self.model_dump())
