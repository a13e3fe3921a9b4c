"""Commit of a group's offsets at brokers, some of which may not answer.

One loop for every kind of source: it skips brokers that do not answer, and fails if none does. The
request, and the meaning of errors, belong to the kind of source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TypeVar

__all__ = ["tell_brokers"]

Place = TypeVar("Place", bound=Hashable)
"""Partition, or queue."""


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
    """Call `tell` with the offset of each of `known`; return the places left out, with the reason.

    The reason of places that are not in `known` is `absent`. After an error of `away` its broker is
    skipped, because each of its places would wait again; an error of `refusals` affects its place
    only. Raises the last of them if every place failed, and all other errors at once.
    """
    left_out: dict[Place, str] = {}
    silent: dict[Hashable, Exception] = {}
    last_error: Exception | None = None
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
        last_error = error
        left_out[place] = str(error)
    if last_error is not None and len(left_out) == len(offsets):
        raise last_error
    return left_out
