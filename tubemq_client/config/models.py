"""The option models of clients, consumers and producers. Ranges follow upstream's clients.

Every option has an effect; `docs/protocol/options.md` lists them all, with the names that the Java,
C++ and Go clients use. Build models with `Model.parse({...})` to get one `errors.ConfigError` that
lists every problem; calling the class directly raises pydantic's own `ValidationError`.
"""

from __future__ import annotations

import re
import string
from dataclasses import fields
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tubemq_client import errors
from tubemq_client._core.balance_orders import BoundStart
from tubemq_client._wire.strings import (
    DEFAULT_MASTER_PORT,
    DEFAULT_MASTER_TLS_PORT,
    is_ipv6,
)
from tubemq_client.config.base import CommonOptions
from tubemq_client.config.groups import Bound, FilterItem, GroupName, TopicName, Topics
from tubemq_client.config.security import Auth, Tls
from tubemq_client.model import (
    Address,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    ReaderSettings,
)

__all__ = [
    "ClientConfig",
    "ConsumerConfig",
    "FilterItem",
    "GroupName",
    "ProducerConfig",
    "TopicName",
]

_MIB = 2**20

_IN_NO_NAME = re.escape("".join(sorted(set(string.punctuation) - set("-._")))) + r"\s"
"""Characters that no host name has, for a class of characters."""


def _masters(value: object) -> object:
    """Accept `"m1:8715,m2"`, or a list of such items, or of (host, port) pairs."""
    if isinstance(value, str):
        value = [item.strip() for item in value.split(",") if item.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError("give 'host:port[,host:port…]'")  # noqa: TRY004 - pydantic wants it
    masters = [_master(item) for item in value]
    wrong = [item for item, master in zip(value, masters, strict=True) if master is None]
    if wrong:
        several = any(re.search(r"[\s;|]", text) for text in wrong)
        hint = "; write a comma between masters" if several else ""
        raise ValueError(f"{errors.shown_addresses(wrong)}: not host:port{hint}")
    return tuple(masters)


def _master(item: object) -> object:
    """Return host and port (0: the default one), or None for text that names neither; other types
    are left to pydantic. An IPv6 address is in brackets if a port follows it. Names may have
    letters of any script."""
    if not isinstance(item, str):
        return item
    match = re.fullmatch(rf"(?:\[([0-9a-fA-F:.%\w]+)\]|([^{_IN_NO_NAME}]+))(?::([0-9]*))?", item)
    if match is None:
        return (item, 0) if is_ipv6(item) else None
    host, port = match[1] or match[2], match[3]
    if not port:
        return (host, 0)
    return (host, int(port)) if 0 < int(port[:6]) < 65536 else None


Masters = Annotated[tuple[Address, ...], BeforeValidator(_masters), Field(min_length=1)]


class ClientConfig(CommonOptions):
    """Connection to a cluster."""

    masters: Masters = Field(description="master addresses, tried in this order")
    rpc_timeout_ms: int = Field(
        10_000, ge=1_000, le=600_000, description="time for one request, ms"
    )
    connect_timeout_ms: int = Field(
        3_000, ge=100, le=60_000, description="time to open a connection, ms"
    )
    heartbeat_period_ms: int = Field(
        10_000, ge=1_000, le=13_000, description="time between heartbeats, ms"
    )
    heartbeat_period_after_failures_ms: int = Field(
        60_000, ge=1_000, le=600_000, description="the same once heartbeats keep failing, ms"
    )
    max_heartbeat_failures: int = Field(
        5, ge=1, le=100, description="failures in a row before heartbeats slow down"
    )
    register_attempts: int = Field(
        5, ge=1, le=100, description="attempts to register, of a producer or a group's member"
    )
    register_pause_ms: int = Field(
        1_000, ge=0, le=60_000, description="time between those attempts, ms"
    )
    fail_over_wait_ms: int = Field(
        5_000,
        ge=0,
        le=600_000,
        description="time for which look-ups continue while masters change, ms",
    )
    idle_connection_ms: int = Field(
        180_000, ge=15_000, le=3_600_000, description="a silent connection is closed after it, ms"
    )
    dns_refresh_ms: int = Field(
        30_000,
        ge=1_000,
        le=3_600_000,
        description="names of masters are looked up again, ms",
    )
    reconnect_pause_ms: int = Field(
        100, ge=10, le=60_000, description="pause after a connection was refused, ms; doubles"
    )
    longest_reconnect_pause_ms: int = Field(
        2_000, ge=10, le=600_000, description="the longest such pause, ms"
    )
    max_frame_bytes: int = Field(
        32 * _MIB, ge=_MIB, le=1024 * _MIB, description="largest reply that is read, bytes"
    )
    preconnect: bool = Field(
        default=False, description="connect to brokers as soon as they are known"
    )
    auth: Auth = None
    tls: Tls = None

    @model_validator(mode="after")
    def _pauses_grow(self) -> Self:
        problems = [
            f"{longer} {getattr(self, longer)} is less than {shorter} {getattr(self, shorter)}"
            for shorter, longer in (
                ("heartbeat_period_ms", "heartbeat_period_after_failures_ms"),
                ("reconnect_pause_ms", "longest_reconnect_pause_ms"),
            )
            if getattr(self, longer) < getattr(self, shorter)
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _masters_have_ports(self) -> Self:
        port = DEFAULT_MASTER_TLS_PORT if self.tls else DEFAULT_MASTER_PORT
        # Not by assignment, because the model is frozen.
        self.__dict__["masters"] = tuple(
            (host, own_port or port) for host, own_port in self.masters
        )
        return self

    def settings(self) -> ClientSettings:
        """Return the plain values of the client."""
        own = ("masters", "auth", "tls")
        return ClientSettings(
            masters=self.masters,
            auth=self.auth.settings() if self.auth else None,
            tls=self.tls.settings() if self.tls else None,
            **{f.name: getattr(self, f.name) for f in fields(ClientSettings) if f.name not in own},
        )


class ConsumerConfig(ClientConfig):
    """Reading: a client config plus a group's subscription and its error handling."""

    topic: TopicName | None = Field(None, description="topic to read, if it is one")
    topics: Topics = Field(None, description="topics to read, each with stream ids to filter by")
    group: GroupName = Field(description="consumer group; readers use pool names made from it")
    filters: tuple[FilterItem, ...] = Field(
        (), max_length=500, description="stream ids to read; empty reads everything"
    )
    pool_size: int = Field(32, ge=1, le=100, description="reader and probe groups, each")
    corrupt_records: Literal["fail", "drop", "quarantine"] = Field(
        "fail", description="what to do with a record whose checksum is wrong"
    )
    gap_policy: Literal["fail", "skip"] = Field(
        "fail", description="what to do when retention removed part of a range"
    )
    deadline_ms: int = Field(
        60_000, ge=1_000, le=3_600_000, description="time a read may go without progress, ms"
    )
    consume_position: Literal["earliest", "latest", "always_latest"] = Field(
        "earliest", description="where a group without a stored position starts"
    )
    not_found_wait_ms: int = Field(
        400, ge=0, le=60_000, description="pause before an empty partition is asked again, ms"
    )
    ready_wait_ms: int = Field(
        90_000, ge=-1, le=3_600_000, description="wait for the first partition, ms; -1: forever"
    )
    confirm_timeout_ms: int = Field(
        60_000, ge=1_000, le=3_600_000, description="a batch not confirmed in it is rolled back, ms"
    )
    confirm_locally: bool = Field(
        default=False, description="confirm with the next fetch instead of a request"
    )
    rebalance_confirm_wait_ms: int = Field(
        3_000, ge=0, le=60_000, description="wait for a batch when its partition moves away, ms"
    )
    rollback_on_rebalance: bool = Field(
        default=True, description="deliver that batch again if it was not confirmed in time"
    )
    report_every_beats: int = Field(
        6, ge=3, le=1_000, description="heartbeats between reports of all partitions held"
    )
    close_wait_ms: int = Field(
        10_000, ge=0, le=600_000, description="time to end what is under way at close, ms"
    )
    metadata_period_ms: int = Field(
        10_000, ge=0, le=3_600_000, description="age at which partitions are asked for again, ms"
    )

    bound: Bound = None

    @model_validator(mode="after")
    def _reads_something(self) -> Self:
        problems = []
        if (self.topic is None) == (self.topics is None):
            problems.append("give topic, or topics for several")
        if self.topics is not None and self.filters:
            problems.append("filters are those of topic; in topics each has its own")
        if not problems and self.bound is not None:
            try:
                problems += self.bound.start().problems(self.subscription)
            except ValueError as error:
                problems.append(f"bound.offsets: {error}")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def subscription(self) -> dict[str, tuple[str, ...]]:
        """Topics to read, and the stream ids each is filtered by (empty: everything)."""
        if self.topics is not None:
            return dict(self.topics)
        return {self.topic: self.filters} if self.topic is not None else {}

    @property
    def bound_start(self) -> BoundStart | None:
        """Start of the whole group, if configured."""
        return self.bound.start() if self.bound is not None else None

    def consumer_settings(self) -> ConsumerSettings:
        """Return the plain values of a group's member."""
        return ConsumerSettings(**{f.name: getattr(self, f.name) for f in fields(ConsumerSettings)})

    def reader_settings(self) -> ReaderSettings:
        """Return the plain values of a client that reads ranges."""
        client = self.settings()
        return ReaderSettings(
            **{f.name: getattr(client, f.name) for f in fields(client)},
            pool_size=self.pool_size,
            deadline_ms=self.deadline_ms,
            member=self.consumer_settings(),
        )


class ProducerConfig(ClientConfig):
    """Writing: a client config plus limits of records in flight and the back-off of a producer."""

    in_flight: int = Field(64, ge=1, le=10_000, description="records sent and not yet answered")
    max_in_flight: int = Field(
        500_000, ge=1, le=10_000_000, description="the same over all calls of a producer"
    )
    max_in_flight_per_broker: int = Field(
        50_000, ge=1, le=10_000_000, description="the same for each broker"
    )
    unavailable_quarantine_ms: int = Field(
        50_000, ge=0, le=3_600_000, description="time without a broker that answered 503, ms"
    )
    link_window_ms: int = Field(
        60_000, ge=1_000, le=3_600_000, description="time in which failed connections count, ms"
    )
    link_max_failures: int = Field(
        5, ge=1, le=10_000, description="failed connections that a broker may have in it"
    )
    link_quarantine_ms: int = Field(
        1_800_000, ge=0, le=86_400_000, description="time without a broker that had more, ms"
    )
    link_max_quarantined_share: float = Field(
        0.3, ge=0, le=1, description="share of the brokers that may be left out for it"
    )
    partition_max_failures: int = Field(
        3, ge=1, le=10_000, description="failures that a partition may have in a row"
    )
    partition_quarantine_ms: int = Field(
        3_000, ge=0, le=3_600_000, description="time without a partition that had more, ms"
    )
    retry_unknown: bool = Field(
        default=False,
        description="send a record again whose fate is unknown: it may be stored twice",
    )
    verify_checksum: bool = Field(
        default=True, description="have brokers check every record before they store it"
    )
    overflow_retries: int = Field(
        60, ge=0, le=100_000, description="further attempts for a record refused for overflow"
    )
    overflow_pause_ms: int = Field(
        50, ge=1, le=60_000, description="time between those attempts, ms"
    )
    large_records: Literal["refuse", "send"] = Field(
        "refuse", description="what to do with a record that groups may never get, for its size"
    )

    def producer_settings(self) -> ProducerSettings:
        """Return the plain values of a producer."""
        return ProducerSettings(**{f.name: getattr(self, f.name) for f in fields(ProducerSettings)})
