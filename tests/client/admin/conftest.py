"""Every scenario runs on both administration clients and, where marked, on both kinds of server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kit.servers import embedded_tubemq
from tests.system.behaviour.shells import LoopShell, OnLoop
from tests.system.behaviour.sites import EMBEDDED_TOPICS, SINGLE
from tests.system.behaviour.windows import settings_for
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client import AssignedConsumer, ClientSettings, Partition, Producer, Record
from tubemq_client.admin import AdminClient, AsyncAdminClient
from tubemq_client.embedded import Switches

_numbers = itertools.count(1)

TOKEN = "s3cret-token"


@dataclass
class Site:
    """One cluster, and helpers that make records and positions on it."""

    settings: ClientSettings
    web: str
    token: str
    broker_id: int
    kind: str

    def send(self, partition: Partition, count: int) -> None:
        with Producer(self.settings) as producer:
            list(producer.send_many(partition.topic, [Record(b"x", partition=partition)] * count))

    def place(self, group: str, partition: Partition, offset: int) -> None:
        """Register as `group` for a moment, so that its broker keeps a position."""
        with AssignedConsumer(self.settings, group, {partition.topic: ()}) as consumer:
            consumer.assign(partition, offset)
            consumer.release(partition)


Make = Callable[..., Any]


@pytest.fixture(params=["sync", "aio"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Return `make(urls, token=…)`, which makes a client of either API behind blocking calls."""
    clients: list[Any] = []

    def keep(client: Any) -> Any:
        clients.append(client)
        return client

    if request.param == "sync":
        yield lambda *args, **options: keep(AdminClient(*args, **options))
        for client in clients:
            client.close()
        return
    with LoopShell() as shell:
        yield lambda *args, **options: keep(OnLoop(AsyncAdminClient(*args, **options), shell.wait))
        for client in clients:
            client.close()


mq = embedded_tubemq(
    EMBEDDED_TOPICS, scope="session", http=True, switches=Switches(admin_token=TOKEN)
)


@pytest.fixture(params=["embedded", pytest.param("genuine", marks=pytest.mark.real)])
def site(request: pytest.FixtureRequest) -> Site:
    """Return a cluster of either kind. It is shared, so scenarios use separate groups."""
    if request.param == "genuine":
        real = request.getfixturevalue("genuine")
        request.getfixturevalue("remembered")
        settings = settings_for(real.masters)
        return Site(settings, real.master_web, real.admin_token, real.broker_id, "genuine")
    embedded = request.getfixturevalue("mq")
    web = embedded.master_web
    return Site(settings_for(embedded.masters), web, TOKEN, 1, "embedded")


@pytest.fixture(scope="session")
def remembered(genuine: GenuineTubeMQ) -> str:
    """Return a group with a position, set early: the broker's next scan records it."""
    with AdminClient(genuine.master_web) as client:
        client.set_offsets("remembered_group", {Partition(genuine.broker_id, SINGLE, 0): "latest"})
    return "remembered_group"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run scenarios that wait for a genuine server's timers there with one client only."""
    left_out = [
        item
        for item in items
        if item.get_closest_marker("real")
        and "aio" in item.name
        and "once_on_genuine" in getattr(item, "fixturenames", ())
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def once_on_genuine() -> None:
    """Return the names of scenarios that wait for a genuine server's timers."""


@pytest.fixture
def admin(make: Make, site: Site) -> Any:
    return make(site.web, token=site.token)


@pytest.fixture
def group() -> str:
    return f"administered_{next(_numbers)}"


@pytest.fixture
def new_topic() -> str:
    return f"made_{next(_numbers)}"
