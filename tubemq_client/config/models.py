"""The option models. Ranges follow upstream's clients; see `docs/protocol/options.md`.

Build them with `validated(Model, {...})` or `Model.parse(...)` to get one `errors.ConfigError` that
lists every problem; calling the class directly raises pydantic's own `ValidationError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tubemq_client import errors
from tubemq_client.model import Address, ClientSettings

__all__ = [
    "ClientConfig",
    "CommonOptions",
    "ConsumerConfig",
    "FilterItem",
    "GroupName",
    "ProducerConfig",
    "TopicName",
    "from_url",
    "validated",
]

DEFAULT_MASTER_PORT = 8715

_GROUP = re.compile(r"[a-zA-Z][\w-]+")
_TOPIC = re.compile(r"[a-zA-Z]\w+")
_FILTER = re.compile(r"[\w-]+", re.ASCII)

Model = TypeVar("Model", bound=BaseModel)


def _masters(value: object) -> object:
    """`"m1:8715,m2"`, or a list of such items, or of (host, port) pairs."""
    if isinstance(value, str):
        value = [item.strip() for item in value.split(",") if item.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError("give 'host:port[,host:port…]'")  # noqa: TRY004 - pydantic wants it
    found = [_master(item) for item in value]
    wrong = [repr(item) for item, master in zip(value, found, strict=True) if master is None]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: not host:port")
    return tuple(found)


def _master(item: object) -> object:
    """Host and port, or None for text that names neither; other types are left to pydantic."""
    if not isinstance(item, str):
        return item
    host, _, port = item.rpartition(":") if ":" in item else (item, "", "")
    if not port:
        return (host, DEFAULT_MASTER_PORT)
    if not (host and port.isdecimal() and 0 < int(port) < 65536):
        return None
    return (host.strip("[]"), int(port))


def _named(pattern: re.Pattern[str], limit: int, what: str) -> BeforeValidator:
    def check(value: object) -> object:
        if not isinstance(value, str) or not pattern.fullmatch(value) or len(value) > limit:
            raise ValueError(
                f"{value!r} is not a {what}: it must match {pattern.pattern} and have at most "
                f"{limit} characters"
            )
        return value

    return BeforeValidator(check)


Masters = Annotated[tuple[Address, ...], BeforeValidator(_masters), Field(min_length=1)]
GroupName = Annotated[str, _named(_GROUP, 1024, "group name")]
TopicName = Annotated[str, _named(_TOPIC, 64, "topic name")]
FilterItem = Annotated[str, _named(_FILTER, 256, "stream id to filter by")]


class CommonOptions(BaseModel):
    """Base of all option models: frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """The model for `options`. Raises `errors.ConfigError` with every problem."""
        return validated(cls, options)


class ClientConfig(CommonOptions):
    """How to reach a cluster."""

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

    def settings(self) -> ClientSettings:
        """The plain values that shells run on."""
        return ClientSettings(
            masters=self.masters,
            rpc_timeout_ms=self.rpc_timeout_ms,
            connect_timeout_ms=self.connect_timeout_ms,
            heartbeat_period_ms=self.heartbeat_period_ms,
        )


class ConsumerConfig(ClientConfig):
    """Reading: a client config plus what a group reads and how it treats trouble."""

    topic: TopicName = Field(description="topic to read")
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


class ProducerConfig(ClientConfig):
    """Writing: a client config plus the producer's window."""

    in_flight: int = Field(64, ge=1, le=10_000, description="records sent and not yet answered")


def validated(model: type[Model], options: Mapping[str, Any]) -> Model:
    """`model(**options)`, with all problems in one `errors.ConfigError` that names each option."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        problems = [_problem(item, model) for item in error.errors()]
        raise errors.ConfigError(problems, subject=f"{model.__name__} options") from None


def _problem(item: Any, model: type[BaseModel]) -> str:
    name = ".".join(str(part) for part in item["loc"]) or "options"
    if item["type"] == "extra_forbidden":
        return f"{name}: unknown option; known: {', '.join(sorted(model.model_fields))}"
    message = item["msg"].removeprefix("Value error, ")
    return f"{name}: {message[0].lower()}{message[1:]}"


def from_url(url: str) -> dict[str, Any]:
    """Options from `tubemq://m1:8715,m2:8715/topic?group=g&rpc_timeout_ms=5000`.

    Repeat `filters=` for several stream ids. Pass the result to a model's `parse`. Raises
    `errors.ConfigError` when it is no such URL or carries a password (use options for secrets).
    """
    parts = urlsplit(url)
    problems = []
    if parts.scheme != "tubemq" or not parts.netloc:
        problems.append(f"{parts.scheme}://… is not tubemq://host:port[,host:port]/topic?group=…")
    if "@" in parts.netloc:
        problems.append("credentials do not belong into a URL; pass them as options")
    if problems:
        raise errors.ConfigError(problems, subject="URL")
    options: dict[str, Any] = {"masters": parts.netloc}
    topic = parts.path.strip("/")
    if topic:
        options["topic"] = topic
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key == "filters":
            options.setdefault("filters", []).append(value)
        else:
            options[key] = value
    return options
