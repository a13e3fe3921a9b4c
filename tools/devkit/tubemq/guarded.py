"""A genuine TubeMQ that requires users, visit tokens and client certificates.

Upstream's server can do mutual TLS only (one-way TLS ends its process at the first connection), on
separate ports next to the plain ones; a client that asks over TLS is sent to the TLS ports. It
checks that a signature is present and recent, not whose it is. Brokers take the switches from the
master::

    stores = KeyStores("server.p12", "trust.p12", "changeit")
    with guarded_cluster(stores, topics=[TopicSpec("orders")]) as cluster:
        cluster.wait_accepting()
        settings = ClientSettings((cluster.tls_address,), auth=…, tls=…)

The DANGER described in `genuine` applies here too: run inside `isolation`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tools.devkit.tubemq._server_files import HOST
from tools.devkit.tubemq.genuine import GenuineTubeMQ, free_ports
from tubemq_client.model import Address

__all__ = ["GuardedTubeMQ", "KeyStores", "guarded_cluster"]


@dataclass(frozen=True, slots=True)
class KeyStores:
    """PKCS12 or JKS files: the server's own pair, and trusted certificates.

    One password opens both; a wrong one only shows when the first TLS connection ends the server.
    """

    key_store: str | os.PathLike[str]
    trust_store: str | os.PathLike[str]
    password: str


class GuardedTubeMQ(GenuineTubeMQ):
    """A genuine cluster with TLS ports. Plain ports stay open and require users as well."""

    def __init__(self, *, tls_ports: tuple[int, int], **options: Any) -> None:
        super().__init__(**options)
        self._tls_ports = tls_ports

    @property
    def tls_address(self) -> Address:
        """Address of the master over TLS."""
        return (HOST, self._tls_ports[0])

    @property
    def broker_tls_address(self) -> Address:
        """Address at which the broker speaks TLS."""
        return (HOST, self._tls_ports[1])


def guarded_cluster(
    stores: KeyStores, *, users: bool = True, visit_tokens: bool = True, **options: Any
) -> GuardedTubeMQ:
    """Return a cluster to start, with `options` of `GenuineTubeMQ`.

    `users` requires a signature of producers and consumers. `visit_tokens` makes brokers require
    the master's token, from 60 s after their registration (the least that a master accepts).
    """
    ports, spare = free_ports(), free_ports()
    in_use = {ports.zookeeper, ports.master, ports.master_web, ports.broker, ports.broker_web}
    free = (spare.master, spare.broker, spare.zookeeper, spare.master_web, spare.broker_web)
    master, broker = [port for port in free if port not in in_use][:2]
    switches = {
        "startProduceAuthenticate": str(users).lower(),
        "startConsumeAuthenticate": str(users).lower(),
        "startVisitTokenCheck": str(visit_tokens).lower(),
        "visitTokenValidPeriodMs": "180000",
    }
    return GuardedTubeMQ(
        tls_ports=(master, broker),
        ports=ports,
        master_options={**switches, **options.pop("master_options", {})},
        master_sections={"tlsSetting": _tls(stores, master)},
        broker_options={
            "visitTokenCheckInValidTimeMs": "60000",
            **options.pop("broker_options", {}),
        },
        broker_sections={"tlsSetting": _tls(stores, broker)},
        broker_defaults={"brokerTLSPort": broker, **options.pop("broker_defaults", {})},
        **options,
    )


def _tls(stores: KeyStores, port: int) -> dict[str, str]:
    return {
        "tlsEnable": "true",
        "tlsPort": str(port),
        "tlsKeyStorePath": str(stores.key_store),
        "tlsKeyStorePassword": stores.password,
        "tlsTwoWayAuthEnable": "true",
        "tlsTrustStorePath": str(stores.trust_store),
        "tlsTrustStorePassword": stores.password,
    }
