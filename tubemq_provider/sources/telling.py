"""Showing a group's offsets at brokers, some of which may not answer.

One loop for every kind of source: what a broker that is away costs, and when nothing was told at
all. How a broker is told, and which errors mean what, is the kind's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TypeVar

__all__ = ["tell_brokers"]

Place = TypeVar("Place", bound=Hashable)
"""A partition, or a queue."""


def tell_brokers(
    offsets: Mapping[Place, int],
    tell: Callable[[Place, int], None],
    *,
    known: Collection[Place],
    absent: str,
    broker_of: Callable[[Place], Hashable],
    away: tuple[type[Exception], ...],
    refusals: tuple[type[Exception], ...] = (),
) -> dict[Place, str]:
    """`tell` each of `known` its offset; the places left out, with the reason (`absent` for those
    that are not known).

    After an error of `away` its broker is not asked again, because each of its places would wait
    for it anew; an error of `refusals` costs its own place only. Raises the last of them if no
    place was told, and all other errors at once.
    """
    left_out: dict[Place, str] = {}
    silent: dict[Hashable, Exception] = {}
    trouble: Exception | None = None
    for place, offset in offsets.items():
        if place not in known:
            left_out[place] = absent
            continue
        error = silent.get(broker_of(place))
        if error is None:
            try:
                tell(place, offset)
                continue
            except away as caught:
                silent[broker_of(place)] = error = caught
            except refusals as caught:
                error = caught
        trouble = error
        left_out[place] = str(error)
    if trouble is not None and len(left_out) == len(offsets):
        raise trouble
    return left_out
