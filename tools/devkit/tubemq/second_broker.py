"""A second genuine broker behind the master of a running genuine TubeMQ: to join, lose and remove.

The broker has the id 2, and separate ports, directory and address: the master accepts one broker
per address, whatever the port, and every address of 127/8 is loopback. It must carry a topic to be
useful; other topics of the cluster are not affected.

    with SecondBroker(cluster) as second:
        second.join(TopicSpec("orders", partitions=2))   # routed about 35 s later
        second.kill()
        second.start()
        second.decommission()
        second.kill()

The DANGER described in `genuine` applies here too: run inside `isolation`.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from types import TracebackType
from typing import Self

from tools.devkit.patience import PATIENCE
from tools.devkit.processes import listens, tail
from tools.devkit.tubemq._server_files import HOST
from tools.devkit.tubemq._servers import REGISTRATION_FAILED, HeapSizes, Setup, broker_process
from tools.devkit.tubemq._webapi import WebApi
from tools.devkit.tubemq.genuine import GenuineFailed, GenuineTubeMQ, TopicSpec, free_ports
from tubemq_client.model import Address

__all__ = ["SecondBroker"]

_ID = 2
_HOST = "127.0.0.2"
_HEAPS = HeapSizes(broker="256m", broker_direct="256m")
_OPTIONS = {"heartbeatPeriodMs": "1000", "hostName": _HOST}
_OPERATOR = "docker"
_POLL_S = 0.25


class SecondBroker:
    """One more broker of `cluster`, which must run and outlive it; nothing runs before `join`.

    A context manager that ends the process on exit; the cluster keeps the broker's configuration
    unless it was decommissioned. Not thread-safe.
    """

    id = _ID

    def __init__(self, cluster: GenuineTubeMQ) -> None:
        place, chosen = cluster.place, free_ports()
        self._ports = replace(place.ports, broker=chosen.broker, broker_web=chosen.broker_web)
        setup = Setup(broker_id=_ID, heaps=_HEAPS, broker_options=_OPTIONS)
        self._process = broker_process(place, setup, "broker2", self._ports)
        self._api = WebApi(HOST, place.ports.master_web, "webapi.htm", cluster.admin_token)
        self._online = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def address(self) -> Address:
        """RPC address of the broker."""
        return (_HOST, self._ports.broker)

    def join(self, *topics: TopicSpec, timeout_s: float = 60.0) -> None:
        """Configure the broker at the master with `topics`, and start it. Raises `GenuineFailed`.

        The master announces its partitions to readers some ten seconds later, to producers half a
        minute after that.
        """
        self._change(
            "admin_add_broker_configure",
            brokerIp=_HOST,
            brokerPort=self._ports.broker,
            brokerWebPort=self._ports.broker_web,
        )
        self._change("admin_online_broker_configure")
        self._online = True
        for spec in topics:
            self._change(
                "admin_add_topic_deploy_info",
                topicName=spec.name,
                numTopicStores=spec.stores,
                numPartitions=spec.partitions,
                **spec.options,
            )
        self.start(timeout_s=timeout_s)

    def start(self, *, timeout_s: float = 60.0) -> None:
        """Start it, also after a kill; on return it is registered. Raises `GenuineFailed`."""
        self._process.start()
        deadline = time.monotonic() + timeout_s * PATIENCE
        while not listens(self.address):
            ended = self._process.returncode is not None
            if (
                ended
                or time.monotonic() > deadline
                or self._process.has_logged(REGISTRATION_FAILED)
            ):
                raise GenuineFailed(f"the second broker does not serve\n{tail(self._process.log)}")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Send SIGTERM: the broker writes everything to disk and ends. Safe to repeat."""
        self._process.stop(30.0)

    def kill(self) -> None:
        """Send SIGKILL: acknowledged messages that are not on disk are lost. Safe to repeat."""
        self._process.kill()

    def pause(self) -> None:
        """Send SIGSTOP: it keeps connections, accepts more, and answers nothing until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._signal(signal.SIGCONT)

    def decommission(self) -> None:
        """Take the broker offline at the master: topics on it are no longer announced, at once.

        The system's own topic is still announced, even of a dead one. Its configuration stays.
        """
        self._change("admin_offline_broker_configure")
        self._online = False

    def restore(self) -> None:
        """Put it online and start it, from any state; no effect on a broker that serves.

        Its topics are routed some 35 s later. Raises `GenuineFailed`.
        """
        if not self._online:
            self._change("admin_online_broker_configure")
            self._online = True
        if not self._process.running:
            self.start()

    def _signal(self, number: signal.Signals) -> None:
        pid = self._process.pid
        if pid is None:
            raise GenuineFailed("the second broker does not run")
        os.kill(pid, number)

    def _change(self, method: str, **parameters: object) -> None:
        users = {"createUser": _OPERATOR, "modifyUser": _OPERATOR}
        self._api.modify(method, brokerId=_ID, **users, **parameters)
