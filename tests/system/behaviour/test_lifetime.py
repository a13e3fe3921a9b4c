"""No socket or thread outlives a client, however often one is created and ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SHARED
from tests.system.behaviour.windows import Feeder, Ledger
from tools.devkit.patience import PATIENCE
from tubemq_client import ClientSettings, OffsetRange, Partition, errors
from tubemq_client.embedded import EmbeddedTubeMQ

PARTITION = Partition(1, SHARED, 0)
ROUNDS = 10
DESCRIPTORS = Path("/proc/self/fd")

pytestmark = pytest.mark.skipif(not DESCRIPTORS.exists(), reason="counts descriptors in /proc")


def held() -> tuple[int, int]:
    """Open descriptors and threads of this process."""
    return sum(1 for _ in DESCRIPTORS.iterdir()), threading.active_count()


def grown_since(before: tuple[int, int]) -> list[int]:
    """By how much, once the server's side has noticed too, which takes it a moment."""
    deadline = time.monotonic() + 60 * PATIENCE
    while True:
        grown = [max(0, now - then) for now, then in zip(held(), before, strict=True)]
        if not any(grown) or time.monotonic() > deadline:
            return grown
        time.sleep(0.05)


def use_everything(shell: Shell, settings: ClientSettings, range_: OffsetRange) -> None:
    with shell.Producer(settings) as producer:
        producer.send(SHARED, b"x", partition=PARTITION)
    with shell.AssignedConsumer(settings, "everything", {SHARED: ()}) as consumer:
        consumer.assign(PARTITION)
    with shell.Consumer(settings, "everything_dealt", {SHARED: ()}) as consumer:
        consumer.receive(0)
    with shell.RangeReader(settings, group="everything") as reader:
        assert list(reader.read(range_))


def fail_everywhere(shell: Shell, settings: ClientSettings, range_: OffsetRange) -> None:
    with pytest.raises(errors.UnknownTopic), shell.Metadata(settings) as metadata:
        metadata.topic("nowhere")
    with pytest.raises(errors.UnknownTopic):
        shell.AssignedConsumer(settings, "failing", {"nowhere": ()}).__enter__()
    with shell.RangeReader(settings, group="failing") as reader:
        for _ in reader.read(range_):
            break


@pytest.mark.parametrize("use", [use_everything, fail_everywhere])
def test_nothing_is_left_after_many_clients(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    use: Callable[[Shell, ClientSettings, OffsetRange], None],
) -> None:
    Feeder(settings, SHARED, ledger, 1).produce(100, [PARTITION])
    by_hand.broker(1).flush()
    range_ = OffsetRange(PARTITION, 0, ledger.stable_end_of(PARTITION))
    use(shell, settings, range_)
    time.sleep(0.2)
    before = held()
    for _ in range(ROUNDS):
        use(shell, settings, range_)
    assert grown_since(before) == [0, 0]
