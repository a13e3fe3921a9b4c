"""A genuine TubeMQ with two brokers that share its topics, to stop, kill or retire the second.

    with TwoBrokers(topics=[TopicSpec("orders", partitions=2)]) as pair:
        pair.wait_accepting()      # 1:0, 1:1, 2:0 and 2:1
        pair.second.kill()
        pair.mend()                # both serve again, all topics accept

The first broker is `cluster`'s, with its own ways to end and start it. The DANGER described in
`genuine` applies here too: run inside `isolation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.devkit.running import Running
from tools.devkit.tubemq.genuine import GenuineTubeMQ, HeapSizes, TopicSpec
from tools.devkit.tubemq.second_broker import SecondBroker
from tubemq_client.model import Address

__all__ = ["TwoBrokers"]

_HEAPS = HeapSizes(master="256m", broker="256m", broker_direct="256m")


class TwoBrokers(Running):
    """One ZooKeeper, one master, two brokers in `workdir`; `options` are `GenuineTubeMQ`'s.

    A context manager; not thread-safe. `cluster` is the master with broker 1, `second` broker 2.
    Every topic is on both, with the specified number of partitions on each.
    """

    def __init__(
        self, workdir: Path | str | None = None, *, topics: Sequence[TopicSpec], **options: Any
    ) -> None:
        self._topics = tuple(topics)
        self.cluster = GenuineTubeMQ(workdir, topics=topics, **{"heaps": _HEAPS, **options})
        self._second: SecondBroker | None = None

    @property
    def second(self) -> SecondBroker:
        """Broker 2; the cluster must have been started."""
        if self._second is None:
            raise RuntimeError("the brokers are not running; call start() first")
        return self._second

    @property
    def masters(self) -> tuple[Address]:
        """Addresses in the form of `ClientSettings.masters`."""
        return (self.cluster.master_address,)

    def start(self) -> None:
        """Start all; topics do not accept yet. Raises `GenuineFailed`; then nothing runs."""
        self.cluster.start()
        try:
            self._second = SecondBroker(self.cluster)
            self._second.join(*self._topics)
        except BaseException:
            self.stop()
            raise

    def wait_accepting(self, *, timeout_s: float = 150.0) -> None:
        """Wait until the master routes every topic on both brokers. Raises `GenuineFailed`."""
        self.cluster.wait_accepting(timeout_s=timeout_s)

    def restore_both(self) -> None:
        """Restore both brokers from any state and wait until they accept: at once if they serve,
        else after some 35 s. Raises `GenuineFailed`."""
        if not self.cluster.servers.broker.running:
            self.cluster.start_broker()
        self.second.restore()
        self.wait_accepting()

    def stop(self) -> None:
        """Stop everything. Safe to repeat."""
        second, self._second = self._second, None
        if second is not None:
            second.kill()
        self.cluster.stop()
