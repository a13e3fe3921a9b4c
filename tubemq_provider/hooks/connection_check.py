"""Steps of ``Test`` of a connection, and their report.

Steps run in order, from names to brokers; the first failure ends the test. Steps that were not
tried are reported as well: an answer of a master does not prove that everything works. Nothing is
changed and no group registers for records.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tubemq_client import errors
from tubemq_client.model import address_text
from tubemq_client.sync import Metadata

if TYPE_CHECKING:
    from tubemq_client.model import Address
    from tubemq_provider.hooks.connection import ConnectionConfig

_PROBE_TOPIC = "tubemq_connection_test"


def check_connection(config: ConnectionConfig) -> tuple[bool, str]:
    """Return success, and a report of each step. Raises `errors.TubeMQError` if masters fail."""
    steps = [_names(config), *_masters(config)]
    if not config.admin_url:
        steps.append("not tried: administration (no admin_url) and brokers (it would name them)")
        return True, "; ".join(steps)
    try:
        brokers = _administration(config)
    except errors.TubeMQError as exc:
        return False, "; ".join([*steps, f"administration at {config.admin_url}: {exc}"])
    token = "with" if config.admin_token else "without"
    steps.append(f"administration at {config.admin_url} answered ({token} a token for changes)")
    unreachable = [text for broker in brokers if (text := _unreachable(broker, config))]
    if unreachable:
        return False, "; ".join([*steps, *unreachable])
    steps.append(f"{len(brokers)} brokers accept connections" if brokers else "no broker is online")
    return True, "; ".join(steps)


def _names(config: ConnectionConfig) -> str:
    """Resolve the masters' names. Raises `errors.ConnectError` if none can be resolved."""
    unresolved = {}
    for address in config.masters:
        try:
            socket.getaddrinfo(*address)
        except OSError as exc:
            unresolved[address_text(address)] = str(exc)
    text = ", ".join(f"{address} cannot be resolved: {why}" for address, why in unresolved.items())
    if len(unresolved) == len(config.masters):
        raise errors.ConnectError(text)
    resolved = ", ".join(address_text(address) for address in config.masters)
    return f"{resolved} resolved" + (f", but {text}" if text else "")


def _masters(config: ConnectionConfig) -> list[str]:
    """Look up a topic, as every task does; the topic need not exist."""
    steps = ["a master answered" + (" over TLS" if config.tls else "")]
    try:
        with Metadata(config.settings()) as client:
            client.topic(_PROBE_TOPIC)
    except errors.Forbidden:
        refused = True
    except (errors.UnknownTopic, errors.BadRequest):
        refused = False
    else:
        refused = False
    if config.auth:
        word = "refused" if refused else "not refused (a cluster without users accepts any)"
        steps.append(f"user {config.auth.username!r} was {word}")
    return steps


def _administration(config: ConnectionConfig) -> list[Address]:
    """Return the addresses of brokers that masters report as running."""
    from tubemq_client.admin import AdminClient

    with AdminClient(
        config.admin_urls(), timeout_ms=config.rpc_timeout_ms, **config.admin_tls()
    ) as client:
        client.master_group()
        return [
            (broker.host, broker.tls_port if config.tls else broker.port)
            for broker in client.brokers()
            if broker.manage_status == "online"
        ]


def _unreachable(broker: Address, config: ConnectionConfig) -> str | None:
    try:
        socket.create_connection(broker, timeout=config.connect_timeout_ms / 1000).close()
    except OSError as exc:
        return f"broker {address_text(broker)} does not accept connections: {exc}"
    return None
