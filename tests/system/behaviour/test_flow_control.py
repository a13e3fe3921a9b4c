"""Flow control on both servers: refusals of a broker, rules that a consumer learns and obeys.

The same rules code decides the refusals of an embedded broker and the expectations for a genuine
one, so a test that passes on both shows that the rules are interpreted correctly.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from tests.system.behaviour.conftest import PATIENT, embedded
from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import EMBEDDED_TOPICS, SINGLE, Site, bodies, new_group
from tests.system.behaviour.windows import settings_for
from tools.devkit.patience import PATIENCE
from tubemq_client import Partition
from tubemq_client._core.effects import Await
from tubemq_client._core.flow_control import Allowance, FlowControl, FlowRules
from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession
from tubemq_client._core.registration import Registration
from tubemq_client._io.driver import BlockingDriver
from tubemq_client.admin import AdminClient
from tubemq_client.embedded import EmbeddedTubeMQ, Switches

SetRules = Callable[[list[dict[str, Any]]], None]

PAUSE_MS = 700
LARGE = 400_000
"""Bytes of a record: more than a slice of 5 s may bring under the rule of 1 MiB a minute."""


def rules(limit_mib: int) -> list[dict[str, Any]]:
    limit = {"start": "00:00", "end": "24:00", "dltInM": 21}
    return [{"type": 0, "rule": [limit | {"limitInM": limit_mib, "freqInMs": PAUSE_MS}]}]


@pytest.fixture(params=["embedded", pytest.param("genuine", marks=pytest.mark.real)])
def limited(request: pytest.FixtureRequest) -> Iterator[tuple[Site, SetRules]]:
    """Start a server whose brokers accept flow rules; none are left behind."""
    with contextlib.ExitStack() as stack:
        if request.param == "genuine":
            server = request.getfixturevalue("genuine")
            brokers, token = [server.broker_id], server.admin_token
        else:
            server = stack.enter_context(EmbeddedTubeMQ(1, EMBEDDED_TOPICS))
            brokers, token = server.broker_ids, Switches().admin_token
        site = Site(settings_for(server.masters, **PATIENT), brokers)
        web = f"http://{server.master_web}"
        admin = stack.enter_context(AdminClient(web, token=token))

        def set_rules(found: list[dict[str, Any]]) -> None:
            admin.set_cluster_settings(flow_control=bool(found), flow_rules=found)
            wait_until_limited(site, bool(found))

        try:
            yield site, set_rules
        finally:
            set_rules([])


def wait_until_limited(site: Site, wanted: bool) -> None:
    """Brokers hear of rules with their next heartbeat to the master, some seconds later."""
    site.send(site.partition(SINGLE), *(bytes(LARGE) for _ in range(6)))
    deadline = time.monotonic() + 60 * PATIENCE
    while True:
        with Reader(site, site.end(site.partition(SINGLE)) - 6 * 28) as reader:
            if (452 in [reader.fetch().errCode for _ in range(4)]) is wanted:
                return
        assert time.monotonic() < deadline, "the broker does not take the rules"
        time.sleep(1)


def learned(site: Site) -> FlowControl:
    """Return the master's rules for a consumer that registers now."""
    control, session = FlowControl(), MasterSession(site.settings.masters)
    group = new_group()
    client_id = Reader.ids.consumer(group, "Balance")
    driver = BlockingDriver(site.settings)
    try:
        driver.run(session.register_consumer(client_id, group, {SINGLE: ()}, flow=control))
        driver.run(session.close_consumer(client_id, group))
    finally:
        driver.close()
    return control


class Reader:
    """A registration that fetches as fast as it likes, without confirming by RPC 18."""

    ids = ClientIds("127.0.0.1", 7, 1_700_000_000_000, itertools.count(1))

    def __init__(self, site: Site, start: int) -> None:
        self._driver = BlockingDriver(site.settings)
        partition = site.partition(SINGLE)
        with_brokers = MasterSession(site.settings.masters)
        group = new_group()
        client_id = self.ids.consumer(group, "Balance")
        topics: dict[str, tuple[str, ...]] = {SINGLE: ()}
        self._driver.run(with_brokers.register_consumer(client_id, group, topics))
        broker = with_brokers.brokers[partition.broker_id]
        self._lease = Registration(broker, partition, group, client_id)
        self._driver.run(self._lease.register(start))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.run(self._lease.unregister())
        self._driver.close()

    def fetch(self, *, exempt: bool = False) -> Any:
        return self._driver.run(self._fetch(exempt))

    def _fetch(self, exempt: bool) -> Any:
        ticket = yield from self._lease.post_fetch(consumed=True, escape_limit=exempt)
        return (yield Await(ticket))


def predicted(found: list[tuple[int, Any]], flow: FlowRules) -> list[int]:
    """Return the codes that the rules demand for fetches at these times with these results."""
    allowance, codes, lag = Allowance(), [], -1
    for at_ms, reply in found:
        wait = allowance.refused_ms(flow, lag, at_ms, at_ms) if codes else 0
        codes.append(452 if wait else 200)
        if reply.errCode == 200:
            lag = reply.currDataDlt
            allowance.sent(sum(52 + len(message.payLoadData) for message in reply.messages))
    return codes


@pytest.mark.parametrize("limit_mib", [1, 0])
def test_a_broker_refuses_what_the_rules_predict(
    limited: tuple[Site, SetRules], limit_mib: int
) -> None:
    site, set_rules = limited
    start = site.end(site.partition(SINGLE))
    set_rules(rules(limit_mib))
    site.send(site.partition(SINGLE), *(bytes(LARGE) for _ in range(8)))
    with Reader(site, max(start, site.end(site.partition(SINGLE)) - 8 * 28)) as reader:
        found = [(time.time_ns() // 1_000_000, reader.fetch()) for _ in range(6)]
        codes = [reply.errCode for _, reply in found]
        assert codes == predicted(found, FlowRules.parse(json.dumps(rules(limit_mib))))
        assert codes[-1] == 452
        assert {r.minLimitTime for _, r in found if r.errCode == 452} == {PAUSE_MS}
        exempt = reader.fetch(exempt=True)
        expected = (200, 0) if limit_mib else (452, 0)
        assert (exempt.errCode, exempt.minLimitTime) == expected, "passing lifts no limit of 0"


def test_a_consumer_learns_the_rules_when_it_registers(limited: tuple[Site, SetRules]) -> None:
    site, set_rules = limited
    wanted = [*rules(1), {"type": 1, "rule": [{"zeroCnt": 2, "freqInMs": 1_500}]}]
    set_rules(wanted)
    control = learned(site)
    assert control.default == FlowRules.parse(json.dumps(wanted))
    assert control.default_id >= 0
    set_rules([])
    assert learned(site).default == FlowRules()


def test_nothing_is_refused_without_rules(limited: tuple[Site, SetRules]) -> None:
    site, set_rules = limited
    set_rules([])
    start = site.end(site.partition(SINGLE))
    site.send(site.partition(SINGLE), *(bytes(LARGE) for _ in range(4)))
    with Reader(site, start) as reader:
        assert {reader.fetch().errCode for _ in range(4)} <= {200, 404}


def test_a_consumer_waits_instead_of_failing(
    shell: Shell, limited: tuple[Site, SetRules], group: str
) -> None:
    site, set_rules = limited
    partition = site.partition(SINGLE)
    set_rules(rules(1))
    start = site.end(partition)
    site.send(partition, *(bytes(LARGE) for _ in range(8)))
    with shell.AssignedConsumer(site.settings, group, {SINGLE: ()}) as consumer:
        consumer.assign(partition, start)
        read = 0
        for _ in range(40):
            batch = consumer.pull(partition, timeout_ms=500)
            if batch is None:
                break  # the slice is used up
            read += len(bodies(batch))
            consumer.confirm(batch)
        assert 1 <= read < 8
        assert consumer.pull(partition) is None, "the broker is left alone meanwhile"


def test_a_waiting_pull_returns_what_comes_later(shell: Shell, group: str) -> None:
    with embedded(Switches()) as server:
        site = Site(settings_for(server.masters, **PATIENT), server.broker_ids)
        partition = Partition(1, SINGLE, 0)
        with shell.AssignedConsumer(site.settings, group, {SINGLE: ()}) as consumer:
            consumer.assign(partition)
            assert consumer.pull(partition, timeout_ms=1) is None
            site.send(partition, b"late")
            assert bodies(consumer.pull(partition, timeout_ms=10_000)) == [b"late"]
