"""Exact ranges on the genuine broker: every window equals the producer's own receipts.

The same suite as on the embedded server (`tests/system/behaviour`), in the order memory, busy,
parallel, files: by the time the last part runs, the broker has flushed what the first one produced.
"""

from __future__ import annotations

import time

import pytest

from tests.system.behaviour.windows import Feeder, Ledger, check_window, run_parallel, run_windows
from tests.system.real import topics
from tools.devkit.patience import PATIENCE
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client import ClientSettings, Metadata, OffsetRange

pytestmark = pytest.mark.real

NAMES = [topics.ONE_STORE.name, topics.TWO_STORES.name, topics.SINGLE.name]
GROUP = "exact"
FLUSH_DEADLINE_S = 90


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture(scope="module")
def feeders(settings: ClientSettings, ledger: Ledger) -> list[Feeder]:
    feeders = [Feeder(settings, name, ledger, seed) for seed, name in enumerate(NAMES)]
    for feeder in feeders:
        feeder.produce(4_000)
    return feeders


def test_forty_windows_from_memory(
    settings: ClientSettings, ledger: Ledger, feeders: list[Feeder]
) -> None:
    assert run_windows(settings, GROUP, ledger, NAMES, 40, 1) > 0


def test_a_hundred_windows_while_producing(
    settings: ClientSettings, ledger: Ledger, feeders: list[Feeder]
) -> None:
    for feeder in feeders:
        feeder.start()
    try:
        assert run_windows(settings, GROUP, ledger, NAMES, 100, 2) > 0
        assert run_parallel(settings, GROUP, ledger, NAMES[0], readers=8, each=4) > 0
    finally:
        for feeder in feeders:
            feeder.stop()


def test_sixty_windows_from_files(
    settings: ClientSettings, ledger: Ledger, feeders: list[Feeder]
) -> None:
    """Everything is behind the stable end, so reads come from files, half of the rest at a time."""
    deadline = time.monotonic() + FLUSH_DEADLINE_S * PATIENCE
    with Metadata(settings) as metadata:
        for name in NAMES:
            while any(
                end.max_offset < ledger.stable_end_of(partition)
                for partition, end in metadata.ends(name, GROUP).items()
            ):
                assert time.monotonic() < deadline, f"{name} was not flushed in time"
                time.sleep(1)
    assert run_windows(settings, GROUP, ledger, NAMES, 60, 3) > 0


def test_the_whole_topic_is_what_was_sent(
    settings: ClientSettings, ledger: Ledger, feeders: list[Feeder]
) -> None:
    total = 0
    for partition in list(ledger.rows):
        whole = OffsetRange(partition, 0, ledger.stable_end_of(partition))
        total += check_window(settings, GROUP, ledger, whole)
    assert total == sum(map(len, ledger.rows.values()))


def test_readers_booked_a_bounded_number_of_groups(
    genuine: GenuineTubeMQ, settings: ClientSettings, ledger: Ledger
) -> None:
    """The broker books every group for weeks: 232 windows later there are at most 65 of ours."""
    booked = [name for name in topics.booked_groups(genuine) if name.startswith(f"{GROUP}.")]
    assert 0 < len(booked) <= 65
