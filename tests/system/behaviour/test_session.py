"""Connections that clients share, and those they keep for themselves."""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from tests.system.behaviour.exchange import exchange
from tests.system.behaviour.shells import LoopShell, OnLoop, Shell
from tests.system.behaviour.sites import EMBEDDED_TOPICS, SINGLE, eventually
from tests.system.behaviour.windows import settings_for
from tubemq_client import ClientSettings, Partition, aio, errors, sync
from tubemq_client.embedded import EmbeddedTubeMQ
from tubemq_client.testing.proxy import FaultProxy, Faults

PARTITION = Partition(1, SINGLE, 0)


async def _made(settings: ClientSettings) -> aio.Session:
    return aio.Session(settings)


async def _closed(session: aio.Session) -> None:
    await session.close()


def open_session(shell: Shell, settings: ClientSettings, stack: ExitStack) -> Any:
    """Open the session that clients share, closed with the stack."""
    if not isinstance(shell, LoopShell):
        return stack.enter_context(sync.Session(settings))
    session = shell.wait(_made(settings))
    stack.callback(lambda: shell.wait(_closed(session)))
    return session


def close(shell: Shell, session: Any) -> None:
    if isinstance(shell, LoopShell):
        OnLoop(session, shell.wait).close()
    else:
        session.close()


@pytest.mark.parametrize("shared", [True, False])
def test_clients_of_a_session_share_one_connection_to_each_server(
    shell: Shell, shared: bool
) -> None:
    with EmbeddedTubeMQ(1, EMBEDDED_TOPICS, http=False) as mq, ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(mq.master_address))
        settings = settings_for(f"{proxy.address[0]}:{proxy.address[1]}")
        used = open_session(shell, settings, stack) if shared else settings
        for number in range(2):
            exchange(shell, used, PARTITION, f"session_{number}")
        assert (proxy.connections == 1) is shared


def test_closing_a_client_leaves_the_session_to_the_others(shell: Shell) -> None:
    with EmbeddedTubeMQ(1, EMBEDDED_TOPICS, http=False) as mq, ExitStack() as stack:
        session = open_session(shell, settings_for(mq.masters), stack)
        with shell.Metadata(session) as staying:
            with shell.Metadata(session) as leaving:
                leaving.topic(SINGLE)
            with pytest.raises(errors.ClosedError):
                leaving.topic(SINGLE)
            assert staying.topic(SINGLE).partitions
            close(shell, session)
            close(shell, session)
            with pytest.raises(errors.ClosedError):
                staying.topic(SINGLE)


def test_a_session_crosses_processes_as_its_settings() -> None:
    settings = settings_for("m1:1")
    with sync.Session(settings) as session:
        assert pickle.loads(pickle.dumps(session)) == settings


@pytest.mark.parametrize("preconnect", [True, False])
def test_brokers_are_connected_to_as_soon_as_they_are_known_if_asked_to(
    shell: Shell, preconnect: bool
) -> None:
    with EmbeddedTubeMQ(2, EMBEDDED_TOPICS, http=False) as mq:
        gone = mq.broker(2)
        gone.stop()  # an unreachable server delays no other
        settings = replace(settings_for(mq.masters), preconnect=preconnect)
        with shell.Metadata(settings) as metadata:
            metadata.topic(SINGLE)
            if preconnect:
                assert eventually(lambda: mq.broker(1).connections or None) == 1
            assert metadata.topic(SINGLE).brokers.keys() == {1, 2}
            assert mq.broker(1).connections == int(preconnect)


def test_producers_connect_ahead_too(shell: Shell) -> None:
    with EmbeddedTubeMQ(1, EMBEDDED_TOPICS, http=False) as mq:
        settings = replace(settings_for(mq.masters), preconnect=True)
        with shell.Producer(settings) as producer:
            producer.publish(SINGLE)
            assert eventually(lambda: mq.broker(1).connections or None) == 1


def test_late_and_doubled_replies_are_dropped(shell: Shell) -> None:
    with (
        EmbeddedTubeMQ(1, EMBEDDED_TOPICS, http=False) as mq,
        FaultProxy(mq.master_address, Faults(twice=True)) as proxy,
    ):
        settings = settings_for(f"{proxy.address[0]}:{proxy.address[1]}", rpc_timeout_ms=1_000)
        with shell.Metadata(settings) as metadata:
            before = metadata.topic(SINGLE)
            proxy.faults.stall = True
            with pytest.raises(errors.NetworkError, match="rpc_timeout_ms"):
                metadata.topic(SINGLE)
            proxy.faults.stall = False
            assert [metadata.topic(SINGLE) for _ in range(3)] == [before] * 3
        assert proxy.connections == 2, "one that answers nothing is replaced"
