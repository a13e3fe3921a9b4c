"""Fixtures of all RocketMQ tests: sites (started once a session) and shells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.rocketmq import sites
from tests.rocketmq.shells import Shell, shell_of

RARE_PAIRS = {
    ("4.9.7", "aio"),
    ("5.5.0", "sync"),
    ("4.9.7", "node"),
    ("5.5.0", "node"),
    ("5.5.0", "test_random_windows_equal_the_receipts_over_a_killed_broker"),
    ("5.5.0", "test_windows_of_tags_equal_filtering"),
    ("4.9.7", "test_windows_through_a_node_equal_the_receipts"),
    ("4.9.7", "test_windows_of_time_hold_what_was_stored_in_them"),
}
"""Genuine line and shell, way, or test; the other pairs run with every change, these with the long
tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        chosen = getattr(getattr(item, "callspec", None), "params", {})
        name = getattr(item, "originalname", "")
        site = chosen.get("site")
        others = (chosen.get("shell"), chosen.get("settings"), name)
        if {(site, other) for other in others} & RARE_PAIRS:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def open_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], sites.Site]]:
    open_sites: dict[str, sites.Site] = {}
    with ExitStack() as stack:

        def find(name: str) -> sites.Site:
            if name not in open_sites:
                directory = tmp_path_factory.mktemp(f"rocketmq-{name}")
                open_sites[name] = stack.enter_context(sites.site_of(name, directory))
            return open_sites[name]

        yield find


@pytest.fixture(params=sites.ALL)
def site(request: pytest.FixtureRequest, open_site: Callable[[str], sites.Site]) -> sites.Site:
    return open_site(request.param)


@pytest.fixture(params=["sync", "aio"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    with shell_of(request.param) as opened:
        yield opened
