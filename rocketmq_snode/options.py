"""The node's options: a TOML or Java properties file, and the environment, which has precedence.

Unknown names and options without effect are refused, and all problems are listed together
(`errors.ConfigError`): a mistyped user must not start a node that verifies no request. Messages
never contain values of users and credentials. Only this module needs pydantic.
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from rocketmq_client import errors
from rocketmq_client.config.models import parse_server, parse_servers
from rocketmq_client.model import Address, Credentials
from rocketmq_snode.settings import SnodeSettings
from tubemq_client.config.base import CommonOptions
from tubemq_client.config.security import Tls

__all__ = ["JAVA_NAMES", "JAVA_NAMES_WITHOUT_EFFECT", "SnodeConfig", "read_options"]

_LOG = logging.getLogger(__name__)

JAVA_NAMES: Final = {
    "namesrvAddr": "name_servers",
    "snodeName": "name",
    "snodeAddr": "advertise",
    "clusterName": "cluster",
    "registerNameServerPeriod": "registry_period_ms",
}
"""Options of RocketMQ's node in Java properties files, and what they are called here. `listenPort`
is the port of `listen`, whose host is that of `snodeAddr`; `serverChannelMaxIdleTimeSeconds` is
`idle_ms`."""

JAVA_NAMES_WITHOUT_EFFECT: Final = frozenset(
    {
        "rocketmqHome",
        *(
            f"snode{kind}{end}"
            for kind in ("SendMessage", "PullMessage", "HeartBeat", "PushMessage")
            for end in ("MinPoolSize", "MaxPoolSize")
        ),
        *(
            f"snode{kind}ThreadPoolQueueCapacity"
            for kind in ("Send", "Pull", "HeartBeat", "Push", "SendMessage", "PullMessage")
        ),
        "snodeHeartBeatInterval",
        "houseKeepingInterval",
        "notifyConsumerIdsChangedEnable",
        "autoCreateSubscriptionGroup",
        "fetchNamesrvAddrByAddressServer",
    }
)
"""Options of RocketMQ's node that need no value here: one event loop has no pools, and brokers keep
members and groups. They are accepted and named in the log."""

_JAVA_FILES: Final = frozenset({".properties", ".conf"})
_LISTEN_PORT: Final = "listenPort"
_IDLE_S: Final = "serverChannelMaxIdleTimeSeconds"
_ADDRESS_SERVER: Final = "fetchNamesrvAddrByAddressServer"

_PREFIX = "SNODE_"
_DEFAULT_PORT = 11911
_INJECTED = re.compile(
    r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Variables that Kubernetes adds for a Service whose name begins with ``snode``."""
_INJECTED_PORT = re.compile(r"(.+_)?PORT=(tcp|udp|sctp)://.*")
_KEY_FIELDS = ("access_key", "secret_key", "security_token")


def _address(value: object) -> object:
    address = parse_server(value, _DEFAULT_PORT)
    if address is None:
        raise ValueError("not host:port")
    return address


def _ports(value: object) -> object:
    """Parse `{"broker-a": 11921}`, as a table or JSON, or ``broker-a=11921,broker-b=11922``."""
    return _pairs(value, "broker=port")


def _users(value: object) -> object:
    """Parse `{"reader01": "secret"}`, as a table or JSON, or
    ``reader01=secret,reader02=secret``."""
    pairs = _pairs(value, "key=secret")
    for place, (key, secret) in enumerate(pairs, 1):
        if not isinstance(secret, str):
            raise ValueError(f"item {place}: its secret is not text; put digits in quotes")  # noqa: TRY004 - pydantic wants it
        if not key or not secret:
            raise ValueError(f"item {place}: its key or its secret is empty")
    if not pairs:
        raise ValueError("no user is given; leave it out, and brokers verify clients' signatures")
    return pairs


def _pairs(value: object, form: str) -> tuple[tuple[Any, Any], ...]:
    if isinstance(value, str) and (parsed := _json_of(value)) is not None:
        value = parsed
    if isinstance(value, str):
        items = [item.partition("=") for item in value.split(",")] if value.strip() else []
        for place, (key, sign, text) in enumerate(items, 1):
            if not (key.strip() and sign and text.strip()) or ";" in text:
                raise ValueError(
                    f"item {place} is not {form}; give {form},{form} or JSON (a value with a comma "
                    "or a semicolon needs it)"
                )
        value = [(key.strip(), text.strip()) for key, _, text in items]
    entries = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(entries, list | tuple) or not all(_is_pair(item) for item in entries):
        raise ValueError(f"give a table, {form},{form} or JSON")
    if len({item[0] for item in entries}) < len(entries):
        raise ValueError("a name is repeated")
    return tuple((key, text) for key, text in entries)


def _is_pair(item: object) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)


def _json_of(text: str) -> object:
    """Parse JSON; return None for text in another form. Raises `ValueError`."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return _unique_keys(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it begins like JSON but is not JSON: {error.msg}") from None


def _unique_keys(text: str) -> object:
    def judged(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name is repeated")
        return dict(pairs)

    parsed: object = json.loads(text, object_pairs_hook=judged)
    return parsed


def _credentials(value: object) -> object:
    """Parse `{"access_key": …, "secret_key": …, "security_token": …}`, as a table or JSON, or
    ``key=secret``."""
    if value is None or isinstance(value, Credentials):
        return value
    if isinstance(value, str) and (parsed := _json_of(value)) is not None:
        value = parsed
    if isinstance(value, str) and "=" in value:
        key, _, secret = value.partition("=")
        value = {"access_key": key.strip(), "secret_key": secret.strip()}
    if not isinstance(value, Mapping) or not all(map(value.get, _KEY_FIELDS[:2])):
        raise ValueError("give access_key and secret_key, and perhaps security_token")
    if not value.keys() <= set(_KEY_FIELDS):
        raise ValueError(f"unknown field; known: {', '.join(_KEY_FIELDS)}")
    fields = {name: text for name, text in value.items() if text is not None}
    wrong = sorted(name for name, text in fields.items() if not isinstance(text, str) or not text)
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: empty or not text; put digits in quotes")
    return Credentials(**fields)


def _names(value: object) -> object:
    """Parse ``orders,payments``, JSON, or a list."""
    if isinstance(value, str):
        parsed = _json_of(value)
        value = value.split(",") if parsed is None else parsed
    if not isinstance(value, list | tuple | set | frozenset):
        raise ValueError("give a list, or names with commas between them")  # noqa: TRY004 - pydantic wants it
    names = [item.strip() if isinstance(item, str) else item for item in value]
    if "" in names:
        raise ValueError("a name is empty; leave the option out to serve all")
    return names


Servers = Annotated[tuple[Address, ...], BeforeValidator(parse_servers)]
Names = Annotated[frozenset[str], BeforeValidator(_names)]
Port = Annotated[int, Field(ge=1, le=65_535)]
At = Annotated[Address, BeforeValidator(_address)]


class SnodeConfig(CommonOptions):
    """Options of a node: addresses, access and limits."""

    name_servers: Servers = Field(description="name servers, tried in this order")
    name_servers_url: str | None = Field(
        None, description="page with the name servers, read every two minutes"
    )
    listen: At = Field(("127.0.0.1", 11911), description="where clients connect")
    advertise: At | None = Field(None, description="what routes say; `listen` by default")
    name: str = Field("snode", min_length=1, max_length=100, description="name in the registry")
    cluster: str = Field("DefaultCluster", min_length=1, description="cluster in the registry")
    reuse_port: bool = Field(default=False, description="several nodes on one host and port")
    fast_port: bool = Field(
        default=False, description="listen at each port - 2 too, for clients up to 4.4"
    )
    ports: Annotated[tuple[tuple[str, Port], ...], BeforeValidator(_ports)] = Field(
        (), description="virtual ports by broker name, for clients that name no broker"
    )
    topics: Names = Field(frozenset(), description="topics served; all by default")
    groups: Names = Field(frozenset(), description="groups served; all by default")
    pool_size: int = Field(2, ge=1, le=64, description="shared connections to each broker")
    max_in_flight_per_client: int = Field(256, ge=1, le=65_536, description="then: busy")
    max_in_flight_per_broker: int = Field(2_048, ge=1, le=1_048_576, description="then: busy")
    max_pulls_per_broker: int = Field(16_384, ge=1, le=1_048_576, description="then: busy")
    max_clients: int = Field(4_096, ge=1, le=1_048_576, description="connections at a time")
    max_unfinished_bytes: int = Field(
        128 * 2**20, ge=2**20, le=2**40, description="of incomplete frames of all clients"
    )
    max_queued_bytes: int = Field(
        128 * 2**20, ge=2**20, le=2**40, description="of answers that clients have not taken"
    )
    frame_timeout_ms: int = Field(60_000, ge=100, le=3_600_000, description="for one frame, ms")
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
    users: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_users)] = Field(
        (), repr=False, description="access keys of clients and their secrets; verified here"
    )
    admins: Names = Field(
        frozenset(), description="users who may create topics and reset offsets with credentials"
    )
    admin_listen: At | None = Field(None, description="/clients as JSON; off by default")

    def settings(self) -> SnodeSettings:
        """Return the plain settings of a node."""
        names = {field.name for field in fields(SnodeSettings)} - {"tls"}
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        return SnodeSettings(**values, tls=self.tls.settings() if self.tls else None)


def read_options(path: Path | None, environment: Mapping[str, str]) -> SnodeSettings:
    """Return settings from a file and the environment. Raises `errors.ConfigError`.

    A file that ends in ``.properties`` or ``.conf`` has Java's names (`JAVA_NAMES`), any other is
    TOML. Without any name server, ``NAMESRV_ADDR`` of the environment gives them.
    """
    options: dict[str, Any] = {}
    if path is not None:
        try:
            text = path.read_text()
            options = _java_options(text) if path.suffix in _JAVA_FILES else tomllib.loads(text)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise errors.ConfigError(f"{path}: {reason}", subject="snode options") from error
    options |= {
        key.removeprefix(_PREFIX).lower(): value
        for key, value in environment.items()
        if key.startswith(_PREFIX) and not _is_injected(key.removeprefix(_PREFIX), value)
    }
    if not options.keys() & {"name_servers", "name_servers_url"} and "NAMESRV_ADDR" in environment:
        options["name_servers"] = environment["NAMESRV_ADDR"]
    if "name_servers_url" in options:
        options.setdefault("name_servers", ())
    return SnodeConfig.parse(options).settings()


def _java_options(text: str) -> dict[str, Any]:
    """Parse a Java properties file with the names of RocketMQ's own node. Raises
    `errors.ConfigError` with every unknown name."""
    given: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        name, sign, value = (part.strip() for part in stripped.partition("="))
        if not sign or not name:
            problems.append(f"line {number} is not name=value")
        elif name in given:
            problems.append(f"line {number}: {name} is repeated")
        else:
            given[name] = value
    own = SnodeConfig.model_fields.keys()
    known = JAVA_NAMES.keys() | JAVA_NAMES_WITHOUT_EFFECT | {_LISTEN_PORT, _IDLE_S} | own
    for name in given.keys() - known:
        near = get_close_matches(name, sorted(known), n=1)
        problems.append(f"{name}: unknown option" + (f"; did you mean {near[0]}?" if near else ""))
    if given.get(_ADDRESS_SERVER, "false").lower() == "true" and "name_servers_url" not in given:
        problems.append(f"{_ADDRESS_SERVER}: give the page's address, name_servers_url=http://…")
    if problems:
        raise errors.ConfigError(sorted(problems), subject="snode options")
    options: dict[str, Any] = {
        JAVA_NAMES.get(name, name): value
        for name, value in given.items()
        if name in JAVA_NAMES or name in own
    }
    if _IDLE_S in given and given[_IDLE_S].isdecimal():
        options.setdefault("idle_ms", int(given[_IDLE_S]) * 1000)
    if _LISTEN_PORT in given:
        host = given.get("snodeAddr", "").rpartition(":")[0] or "127.0.0.1"
        options.setdefault("listen", f"{host}:{given[_LISTEN_PORT]}")
    if without := sorted(given.keys() & JAVA_NAMES_WITHOUT_EFFECT - {_ADDRESS_SERVER}):
        _LOG.warning("options without effect here: %s", ", ".join(without))
    return options


def _is_injected(name: str, value: str) -> bool:
    return bool(_INJECTED.fullmatch(name) or _INJECTED_PORT.fullmatch(f"{name}={value}"))
