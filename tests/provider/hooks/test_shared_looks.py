"""Looks that callers of one event loop share: one asks, the others take its answer."""

from __future__ import annotations

import asyncio

import pytest

from tubemq_client import errors
from tubemq_provider.hooks.sharing import Looks, looks_at


class Broker:
    """What is asked: counts, and answers when it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.failure: Exception | None = None

    async def look(self) -> int:
        self.asked += 1
        number = self.asked
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return number


def test_many_callers_at_once_cost_one_look() -> None:
    async def run() -> None:
        looks, broker = Looks(), Broker()
        waiting = [asyncio.create_task(looks.get("orders", 0, broker.look)) for _ in range(50)]
        await asyncio.sleep(0)
        broker.may_answer.set()
        assert await asyncio.gather(*waiting) == [1] * 50
        assert await looks.get("orders", 60, broker.look) == 1, "it is young enough"
        assert await looks.get("orders", 0, broker.look) == 2, "it is too old"
        assert await looks.get("payments", 60, broker.look) == 3, "another question"

    asyncio.run(run())


def test_a_caller_that_leaves_does_not_take_the_answer_from_the_others() -> None:
    async def run() -> None:
        looks, broker = Looks(), Broker()
        first = asyncio.create_task(looks.get("orders", 60, broker.look))
        second = asyncio.create_task(looks.get("orders", 60, broker.look))
        await asyncio.sleep(0)
        first.cancel()
        broker.may_answer.set()
        assert await second == 1

    asyncio.run(run())


def test_a_failure_is_for_those_that_wait_and_not_kept() -> None:
    async def run() -> None:
        looks, broker = Looks(), Broker()
        broker.may_answer.set()
        broker.failure = errors.ConnectError("away")
        with pytest.raises(errors.ConnectError):
            await looks.get("orders", 60, broker.look)
        broker.failure = None
        assert await looks.get("orders", 60, broker.look) == 2

    asyncio.run(run())


def test_equal_settings_share_and_others_do_not() -> None:
    async def run() -> None:
        assert looks_at(("a", 1)) is looks_at(("a", 1))
        assert looks_at(("a", 1)) is not looks_at(("b", 1))

    asyncio.run(run())
