"""Connections and drivers of both kinds behind the same blocking calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.system.behaviour.shells import LoopShell, OnLoop
from tubemq_client import ClientSettings
from tubemq_client._io import asyncio_connection, blocking
from tubemq_client._io.asyncio_driver import AsyncDriver
from tubemq_client._io.driver import BlockingDriver
from tubemq_client.model import Address

SETTINGS = ClientSettings(masters=(), rpc_timeout_ms=10_000, connect_timeout_ms=10_000)


@pytest.fixture(params=["blocking", "asyncio"])
def loop(request: pytest.FixtureRequest) -> Iterator[LoopShell | None]:
    """Return the loop on which to run asyncio's half; None for the blocking half."""
    if request.param == "blocking":
        yield None
        return
    with LoopShell() as loop:
        yield loop


@pytest.fixture
def connect(loop: LoopShell | None) -> Iterator[Callable[..., Any]]:
    """Return a function that opens connections, which are closed with the test."""
    connections: list[Any] = []

    def open_(address: Address, **options: Any) -> Any:
        settings = dataclasses.replace(SETTINGS, **options)
        if loop is None:
            connections.append(blocking.connect(address, settings))
        else:
            connection = loop.wait(asyncio_connection.connect(address, settings))
            connections.append(OnLoop(connection, loop.wait))
        return connections[-1]

    yield open_
    for connection in connections:
        connection.close()


@pytest.fixture
def make_driver(loop: LoopShell | None) -> Iterator[Callable[..., Any]]:
    drivers: list[Any] = []

    def make(**options: Any) -> Any:
        settings = dataclasses.replace(SETTINGS, **options)
        driver = (
            BlockingDriver(settings) if loop is None else OnLoop(AsyncDriver(settings), loop.wait)
        )
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.close()
