"""What ``Test`` of a connection tries, and how it says what came of it.

One step after the other, from names to brokers; the first that fails ends it, and what was not
tried is said as well: "it works" would be too much to say of a master that answered. Nothing is
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

__all__ = ["tested"]

_PROBE_TOPIC = "tubemq_connection_test"


def tested(config: ConnectionConfig) -> tuple[bool, str]:
    """Whether all went well, and each step. Raises `errors.TubeMQError` where masters fail."""
    said = [_names(config), *_masters(config)]
    if not config.admin_url:
        said.append("not tried: administration (no admin_url) and brokers (it would name them)")
        return True, "; ".join(said)
    try:
        brokers = _administration(config)
    except errors.TubeMQError as exc:
        return False, "; ".join([*said, f"administration at {config.admin_url}: {exc}"])
    token = "with" if config.admin_token else "without"
    said.append(f"administration at {config.admin_url} answered ({token} a token for changes)")
    away = [text for broker in brokers if (text := _away(broker, config))]
    if away:
        return False, "; ".join([*said, *away])
    said.append(f"{len(brokers)} brokers accept connections" if brokers else "no broker is on line")
    return True, "; ".join(said)


def _names(config: ConnectionConfig) -> str:
    """Raises `errors.ConnectError` if no master's name can be resolved."""
    lost = {}
    for address in config.masters:
        try:
            socket.getaddrinfo(*address)
        except OSError as exc:
            lost[address_text(address)] = str(exc)
    text = ", ".join(f"{address} cannot be resolved: {why}" for address, why in lost.items())
    if len(lost) == len(config.masters):
        raise errors.ConnectError(text)
    found = ", ".join(address_text(address) for address in config.masters)
    return f"{found} resolved" + (f", but {text}" if text else "")


def _masters(config: ConnectionConfig) -> list[str]:
    """A look-up as every task makes it; the topic need not exist."""
    said = ["a master answered" + (" over TLS" if config.tls else "")]
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
        said.append(f"user {config.auth.username!r} was {word}")
    return said


def _administration(config: ConnectionConfig) -> list[Address]:
    """The addresses of brokers that masters count as running."""
    from tubemq_client.admin import AdminClient

    with AdminClient(
        config.admin_urls(), timeout_ms=config.rpc_timeout_ms, **config.admin_tls()
    ) as client:
        client.master_group()
        return [
            (found.host, found.tls_port if config.tls else found.port)
            for found in client.brokers()
            if found.manage_status == "online"
        ]


def _away(broker: Address, config: ConnectionConfig) -> str | None:
    try:
        socket.create_connection(broker, timeout=config.connect_timeout_ms / 1000).close()
    except OSError as exc:
        return f"broker {address_text(broker)} does not accept connections: {exc}"
    return None
