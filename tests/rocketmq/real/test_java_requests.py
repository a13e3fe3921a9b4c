"""Requests with a reply between this client and unmodified Java clients, in both directions, on
genuine brokers, directly and through a node."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from rocketmq_client import ClientSettings
from rocketmq_client.model import address_text
from tests.rocketmq.behaviour.test_requests import replying
from tests.rocketmq.real.test_java_through_nodes import java_client
from tests.rocketmq.shells import Shell
from tests.snode.processes import NodeProcess
from tools.devkit.patience import PATIENCE

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.soak]

COUNT = 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["direct", "node"])
@pytest.mark.parametrize("line", ["4.9.7", "5.5.0"])
def test_java_and_python_reply_to_each_other(line, way, shell: Shell, open_site) -> None:
    site = open_site(line)
    to_java, to_python = site.topic(4), site.topic(4)
    with ExitStack() as stack:
        address = site.settings.name_servers[0]
        if way == "node":
            address = stack.enter_context(NodeProcess(address, "one")).address
        settings = ClientSettings((address,))
        servers = address_text(address)
        java = java_client(stack, line, "Requests", "reply", servers, to_java, to_java)
        _until(lambda: java.said("READY"))
        with shell.Requester(settings) as asker:
            bodies = [
                asker.request(to_java, b"%d" % number, timeout_ms=60_000).body
                for number in range(COUNT)
            ]
            began = time.monotonic()
            assert asker.request(to_java, b"last", timeout_ms=60_000).body == b"java:last"
            took = time.monotonic() - began
        with replying(shell, settings, to_python):
            asking = java_client(stack, line, "Requests", "ask", servers, to_python, str(COUNT))
            _until(lambda: len(asking.said("REPLY")) == COUNT)
        # Java's send of a reply returns once the broker has heard that it arrived.
        _until(lambda: len(java.said("SENT")) == COUNT + 1)

    print(f"{line}, {way}: the last reply came {took * 1000:.0f} ms after its request")
    assert bodies == [b"java:%d" % number for number in range(COUNT)]
    assert asking.said("REPLY") == [f"ask{number}"[::-1] for number in range(COUNT)]
    assert java.said("FAILED") == asking.said("FAILED") == []


def _until(true) -> None:
    deadline = time.monotonic() + 120 * PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)
